"""The chores of a fleet, done by one process at a time, under a lease. None of them needs a scheduler.

`chores` starts and stops them; `chore_lease` decides whether this process does them. `reaper` recovers the runs of
dead workers, `cleaner` applies retention, `relay` numbers events and passes them to sinks, `alerter` reports failures,
and `status_feeder` fills the status cache.
"""
