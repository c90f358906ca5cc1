"""Jobs and calendars, and the firings that planning writes."""
