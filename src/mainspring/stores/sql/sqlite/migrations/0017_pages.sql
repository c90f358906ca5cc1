-- oldest: 1
-- What pages show beyond jobs and runs. A queue that is paused keeps its runs, and no claim takes any. Tallies count what ended, by period; error
-- groups are the kinds of failure. Both are written by the loop that reads the events, so no run pays for them when it ends.
CREATE TABLE paused_queues (
  namespace TEXT NOT NULL,
  queue     TEXT NOT NULL,
  paused_at INTEGER NOT NULL,
  reason    TEXT NOT NULL,
  PRIMARY KEY (namespace, queue)
) WITHOUT ROWID;

-- One row per period, kind (all, job, task, error) and name. The counts are JSON: see core.runs.tallies.
CREATE TABLE period_tallies (
  namespace TEXT NOT NULL,
  kind      TEXT NOT NULL,
  began_at  INTEGER NOT NULL,
  name      TEXT NOT NULL,
  counts    TEXT NOT NULL,
  PRIMARY KEY (namespace, kind, began_at, name)
) WITHOUT ROWID;
CREATE INDEX period_tallies_by_name ON period_tallies (namespace, kind, name, began_at);
CREATE INDEX period_tallies_by_age ON period_tallies (began_at);

CREATE TABLE error_groups (
  namespace TEXT NOT NULL,
  id        TEXT NOT NULL,
  type      TEXT NOT NULL,
  message   TEXT NOT NULL,
  place     TEXT NOT NULL,
  first_at  INTEGER NOT NULL,
  last_at   INTEGER NOT NULL,
  count     INTEGER NOT NULL,
  last_run  TEXT NOT NULL,
  PRIMARY KEY (namespace, id)
) WITHOUT ROWID;
CREATE INDEX error_groups_by_time ON error_groups (namespace, last_at);

CREATE TABLE error_runs (
  namespace TEXT NOT NULL,
  error     TEXT NOT NULL,
  run_id    TEXT NOT NULL,
  PRIMARY KEY (namespace, error, run_id)
) WITHOUT ROWID;
CREATE INDEX error_runs_by_id ON error_runs (run_id);
