"""What belongs to a process as a whole: event loop, background tasks, watchdog, counters, secrets, ids."""
