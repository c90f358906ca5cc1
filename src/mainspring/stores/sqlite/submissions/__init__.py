"""Accepting runs."""
