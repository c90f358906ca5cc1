"""What keeps a server usable under load: capacity, rate limits, shedding, idempotent replies, shared watchers."""
