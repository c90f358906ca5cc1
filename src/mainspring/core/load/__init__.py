"""Decisions under load: rate limits, circuit breaker, degradation, how long a leader may trust its lease."""
