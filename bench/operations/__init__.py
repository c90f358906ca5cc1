"""Backups, drills, scaling and containers."""
