-- oldest: 24
-- Runs that have ended while more waited for them than one transaction judges. Recovery judges the rest.
CREATE TABLE ended_upstreams (
  run_id TEXT PRIMARY KEY,
  state  TEXT NOT NULL
) WITHOUT ROWID;
