"""Servers and clients that `bench.api` measures with."""
