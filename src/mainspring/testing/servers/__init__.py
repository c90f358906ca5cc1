"""Servers that chaos runs and drills start, pause and kill, one module each.

`process` is what they share; `proxy` is a network that fails.
"""
