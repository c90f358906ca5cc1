"""Adapters of the cache port."""
