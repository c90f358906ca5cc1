"""Adapters of the broker port."""
