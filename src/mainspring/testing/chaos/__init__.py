"""Real processes under real signals, on one real store, judged by the history checker.

`python -m mainspring.testing.chaos` starts several `mainspring up`, `mainspring worker` and clients, kills (-9), stops,
drains and restarts them as a seed says, lets them heal, and checks what each of them wrote down. The same workload,
format and checker as the simulation's; what differs is that here nothing is simulated.
"""
