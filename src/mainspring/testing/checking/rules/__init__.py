"""The invariants, by subject: each is a function from stories to findings."""
