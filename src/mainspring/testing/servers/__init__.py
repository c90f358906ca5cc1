"""Servers for tests and benchmarks, one module each: started, paused, killed.

`process` is what they share; `proxy` is a network that fails.
"""
