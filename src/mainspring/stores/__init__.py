"""Adapters of the store port."""
