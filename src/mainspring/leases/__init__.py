"""Adapters of the lease port."""
