"""Finished runs, events and the audit trail: reading and retention."""
