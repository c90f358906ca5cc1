"""How programs are started and ended: a small process of its own, which needs nothing but the standard library.

The worker starts one *fork_server*. For every program it forks a *shim*, which starts the program under its limits,
adopts all that the program leaves behind, and ends the whole family: when the program ends, when the worker asks for
it, and when the worker is gone, however it went.
"""
