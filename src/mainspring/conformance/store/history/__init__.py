"""What a store remembers: events, the audit trail, idempotent answers, tallies."""
