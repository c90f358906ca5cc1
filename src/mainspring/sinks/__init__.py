"""Adapters of the sink port."""
