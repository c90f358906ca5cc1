"""Claims and what decides them: gates, key order, back-pressure."""
