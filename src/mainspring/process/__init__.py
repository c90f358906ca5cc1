"""What belongs to a process as a whole: event loop, background tasks, watchdog, systemd, counters, secrets, ids."""
