"""Backups: `backups` (the verbs), `manifest` (what a backup holds), `archive` (compressed files), `sqlite`, `postgres`
(what each store writes and reads), `settling` (what makes a restored store safe to start), `recovery` (whether a server
can go back to a point in time)."""
