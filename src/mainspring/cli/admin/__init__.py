"""Commands for operators: database, tokens, calendars, audit trail, simulator."""
