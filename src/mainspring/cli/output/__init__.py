"""What people and scripts see: tables, JSON, times, errors, text made safe for terminals."""
