"""Accepting runs: alone, together, in the caller's transaction, handed over to an idle worker."""
