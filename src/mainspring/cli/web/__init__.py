"""What leads to the web UI, and the overview for terminals."""
