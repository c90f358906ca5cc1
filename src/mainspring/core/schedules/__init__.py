"""When a job is due: cron, triggers, calendars."""
