"""The loops of a worker: claim, run, report, keep the claims, and stop in time."""
