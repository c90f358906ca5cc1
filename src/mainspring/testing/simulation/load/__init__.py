"""What a simulated world has to do.

`workload` draws the jobs, `client` submits and cancels, `tasks` is the work itself.
"""
