"""Starts and ends programs from a small process, which needs only the standard library.

The worker starts one *fork server*. It forks a *shim* for every program. The shim starts the program under its limits,
adopts the processes that the program leaves behind, and ends them all: when the program ends, when the worker asks for
it, and when the worker is gone, however it died.
"""
