"""What users hold: the app, tasks, handles, locks, and the blocking façade."""
