"""Connections to servers, shared by the adapters that use them: connecting, and errors in our words."""
