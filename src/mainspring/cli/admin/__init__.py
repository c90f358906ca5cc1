"""Commands for operators: database, tokens, calendars, workers, audit trail, simulator."""
