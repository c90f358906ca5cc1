-- oldest: 1
-- The nodes of a cluster without a leader, with the time at which each checked in most recently.
CREATE TABLE nodes (
  name          TEXT PRIMARY KEY,
  coordination  TEXT NOT NULL,
  every         INTEGER NOT NULL,
  started_at    INTEGER NOT NULL,
  checked_in_at INTEGER NOT NULL
) WITHOUT ROWID;
