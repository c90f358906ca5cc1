"""What can be done with jobs, runs, workers, calendars and events: once, for SDK, API and CLI."""
