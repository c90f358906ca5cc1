"""The web UI in a browser."""
