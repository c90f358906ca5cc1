"""Adapters of the rate limiter port."""
