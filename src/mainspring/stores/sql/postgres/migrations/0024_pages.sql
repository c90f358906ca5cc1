-- oldest: 1
-- What pages show beyond jobs and runs. A queue that is paused keeps its runs, and no claim takes any. Tallies count what ended, by period; error
-- groups are the kinds of failure. Both are written by the loop that reads the events, so no run pays for them when it ends.
CREATE TABLE mainspring.paused_queues (
  namespace text COLLATE "C" NOT NULL,
  queue     text COLLATE "C" NOT NULL,
  paused_at bigint NOT NULL,
  reason    text NOT NULL,
  PRIMARY KEY (namespace, queue)
);

-- One row per period, kind (all, job, task, error) and name. The counts are JSON: see core.runs.tallies.
CREATE TABLE mainspring.period_tallies (
  namespace text COLLATE "C" NOT NULL,
  kind      text COLLATE "C" NOT NULL,
  began_at  bigint NOT NULL,
  name      text COLLATE "C" NOT NULL,
  counts    text NOT NULL,
  PRIMARY KEY (namespace, kind, began_at, name)
) WITH (fillfactor = 70);
CREATE INDEX period_tallies_by_name ON mainspring.period_tallies (namespace, kind, name, began_at);
CREATE INDEX period_tallies_by_age ON mainspring.period_tallies (began_at);

CREATE TABLE mainspring.error_groups (
  namespace text COLLATE "C" NOT NULL,
  id        text COLLATE "C" NOT NULL,
  type      text NOT NULL,
  message   text NOT NULL,
  place     text NOT NULL,
  first_at  bigint NOT NULL,
  last_at   bigint NOT NULL,
  count     bigint NOT NULL,
  last_run  text NOT NULL,
  PRIMARY KEY (namespace, id)
);
CREATE INDEX error_groups_by_time ON mainspring.error_groups (namespace, last_at);

CREATE TABLE mainspring.error_runs (
  namespace text COLLATE "C" NOT NULL,
  error     text COLLATE "C" NOT NULL,
  run_id    text COLLATE "C" NOT NULL,
  PRIMARY KEY (namespace, error, run_id)
);
CREATE INDEX error_runs_by_id ON mainspring.error_runs (run_id);
