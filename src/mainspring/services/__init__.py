"""The loops. Each waits for a wake-up or a deadline, takes a batch, lets core decide, and writes what it decided."""
