"""Adapters of the executor port."""
