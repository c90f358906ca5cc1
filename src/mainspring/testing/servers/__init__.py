"""Servers of our own for tests and benchmarks, one module each: started, paused, killed."""
