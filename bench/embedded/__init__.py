"""Mainspring on one SQLite file beside its embedded peers."""
