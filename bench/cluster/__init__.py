"""Mainspring on PostgreSQL beside its peers on PostgreSQL and Redis: processes that submit, processes that work."""
