"""Programs: started, confined, read from, and ended with all that they started."""
