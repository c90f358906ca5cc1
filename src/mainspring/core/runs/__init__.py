"""Decisions about runs: what follows an attempt, retries, priorities, dependencies, why a run waits."""
