"""Finished runs, events and the audit trail."""
