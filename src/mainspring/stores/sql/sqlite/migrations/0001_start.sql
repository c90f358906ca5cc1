-- oldest: 1
-- The whole of the ledger, the queue and their surroundings. Instants and durations are microseconds; JSON is text.
-- Where rows come one by one, a CHECK spells its values out: for a list of more than two, SQLite builds a table at each insert.

CREATE TABLE jobs (
  id            TEXT PRIMARY KEY,
  namespace     TEXT NOT NULL DEFAULT 'default',
  name          TEXT NOT NULL,
  app           TEXT NOT NULL DEFAULT 'default',
  task          TEXT NOT NULL,
  args          TEXT NOT NULL DEFAULT '{}',
  queue         TEXT NOT NULL DEFAULT 'default',
  priority      INTEGER NOT NULL DEFAULT 5 CHECK (priority BETWEEN 1 AND 10),
  key           TEXT,
  "limit"       INTEGER CHECK ("limit" > 0),
  "trigger"     TEXT NOT NULL,
  policy        TEXT NOT NULL DEFAULT '{}',
  options       TEXT NOT NULL DEFAULT '{}',
  next_fire_at  INTEGER,
  version       INTEGER NOT NULL DEFAULT 1,
  changed       INTEGER NOT NULL,            -- grows with every edit (not with firings), so that planners see edits cheaply
  paused_at     INTEGER,
  paused_why    TEXT NOT NULL DEFAULT '',
  fired         INTEGER NOT NULL DEFAULT 0,
  last_fire_at  INTEGER,
  created_at    INTEGER NOT NULL,
  updated_at    INTEGER NOT NULL,
  UNIQUE (namespace, name)
);
CREATE INDEX jobs_due ON jobs (next_fire_at) WHERE next_fire_at IS NOT NULL AND paused_at IS NULL;
CREATE INDEX jobs_changed ON jobs (changed);
CREATE INDEX jobs_app ON jobs (app, namespace);
CREATE INDEX jobs_limited ON jobs (id)
WHERE json_extract(policy, '$.keep_succeeded') IS NOT NULL OR json_extract(policy, '$.keep_failed') IS NOT NULL;

-- What an `after` job knows of each upstream: the newest firing it has used, and the newest that ended.
CREATE TABLE upstreams (
  job_id         TEXT NOT NULL,
  upstream_id    TEXT NOT NULL,
  consumed_at    INTEGER NOT NULL DEFAULT 0,
  latest_at      INTEGER NOT NULL DEFAULT 0,
  latest_outcome TEXT NOT NULL DEFAULT 'fired',
  PRIMARY KEY (job_id, upstream_id)
) WITHOUT ROWID;
CREATE INDEX upstreams_by_upstream ON upstreams (upstream_id);

CREATE TABLE calendars (
  namespace  TEXT NOT NULL DEFAULT 'default',
  name       TEXT NOT NULL,
  definition TEXT NOT NULL,
  updated_at INTEGER NOT NULL,
  PRIMARY KEY (namespace, name)
) WITHOUT ROWID;

-- The ledger: one row per due instant, region and index, whatever became of it. Kept longer than the runs' history.
-- A row with another count than 1 stands for the missed instants from fire_at to last_at (0: too many to count).
CREATE TABLE firings (
  job_id      TEXT NOT NULL,
  fire_at     INTEGER NOT NULL,
  region      TEXT NOT NULL DEFAULT 'default',
  idx         INTEGER NOT NULL DEFAULT 0,
  kind        TEXT NOT NULL CHECK (kind = 'scheduled' OR kind = 'manual' OR kind = 'after' OR kind = 'backfill'),
  outcome     TEXT NOT NULL CHECK (outcome = 'fired' OR outcome = 'missed' OR outcome = 'succeeded' OR outcome = 'failed' OR outcome = 'cancelled'
                                      OR outcome = 'skipped'),
  reason      TEXT NOT NULL DEFAULT '',
  run_id      TEXT,
  request_id  TEXT,
  last_at     INTEGER,
  count       INTEGER NOT NULL DEFAULT 1,
  created_at  INTEGER NOT NULL,
  finished_at INTEGER,
  PRIMARY KEY (job_id, fire_at, region, idx)
) WITHOUT ROWID;
CREATE UNIQUE INDEX firings_by_request ON firings (job_id, request_id, region, idx) WHERE request_id IS NOT NULL;
CREATE INDEX firings_by_age ON firings (created_at);

-- The hot table: runs that have not ended. `seq` is commit order.
CREATE TABLE runs (
  seq                 INTEGER PRIMARY KEY,
  id                  TEXT NOT NULL UNIQUE,
  namespace           TEXT NOT NULL DEFAULT 'default',
  queue               TEXT NOT NULL DEFAULT 'default',
  region              TEXT NOT NULL DEFAULT 'default',
  task                TEXT NOT NULL,
  args                TEXT NOT NULL,
  options             TEXT NOT NULL,
  state               TEXT NOT NULL CHECK (state = 'pending' OR state = 'running' OR state = 'blocked'),
  reason              TEXT NOT NULL DEFAULT '',
  priority            INTEGER NOT NULL CHECK (priority BETWEEN 1 AND 10),
  due_at              INTEGER NOT NULL,
  expires_at          INTEGER,
  job_id              TEXT,
  job                 TEXT,
  fire_at             INTEGER,
  idx                 INTEGER NOT NULL DEFAULT 0,
  key                 TEXT,
  gates               TEXT,                         -- JSON names of the capacities it needs while it runs
  blocked_on          TEXT,                         -- the gate that was full
  lines               INTEGER NOT NULL DEFAULT 0,   -- how many lines it stands in
  waits_for           INTEGER NOT NULL DEFAULT 0,   -- unfinished dependencies plus ungranted lines
  dependants          INTEGER NOT NULL DEFAULT 0,   -- whether other runs wait for it
  care                INTEGER NOT NULL DEFAULT 0,   -- whether a claim must look closer: it needs a gate, or was lost before
  token               INTEGER NOT NULL DEFAULT 0,
  attempt             INTEGER NOT NULL DEFAULT 0,
  losses              INTEGER NOT NULL DEFAULT 0,
  worker              TEXT,
  claimed_until       INTEGER,
  started_at          INTEGER,
  cancel_requested_at INTEGER,
  cancel_reason       TEXT NOT NULL DEFAULT '',
  progress            REAL,
  progress_note       TEXT NOT NULL DEFAULT '',
  retry_of            TEXT,
  created_at          INTEGER NOT NULL,
  CHECK ((state = 'running') = (claimed_until IS NOT NULL))
);
CREATE INDEX runs_claimable ON runs (namespace, queue, region, priority, due_at, seq, task, care) WHERE state = 'pending';
CREATE INDEX runs_held ON runs (claimed_until) WHERE state = 'running';
CREATE INDEX runs_at_gate ON runs (blocked_on, priority, due_at) WHERE blocked_on IS NOT NULL;
CREATE INDEX runs_of_job ON runs (job_id, region) WHERE job_id IS NOT NULL;
CREATE INDEX runs_expiring ON runs (expires_at) WHERE expires_at IS NOT NULL AND state <> 'running';
CREATE INDEX runs_cancelling ON runs (cancel_requested_at) WHERE cancel_requested_at IS NOT NULL;

-- Finished runs, in the order in which they finished.
CREATE TABLE history (
  seq           INTEGER PRIMARY KEY,
  id            TEXT NOT NULL UNIQUE,
  namespace     TEXT NOT NULL,
  queue         TEXT NOT NULL,
  region        TEXT NOT NULL,
  task          TEXT NOT NULL,
  args          TEXT NOT NULL,
  options       TEXT NOT NULL,
  state         TEXT NOT NULL CHECK (state = 'succeeded' OR state = 'failed' OR state = 'cancelled' OR state = 'skipped'),
  reason        TEXT NOT NULL,
  priority      INTEGER NOT NULL,
  due_at        INTEGER NOT NULL,
  expires_at    INTEGER,
  job_id        TEXT,
  job           TEXT,
  fire_at       INTEGER,
  idx           INTEGER NOT NULL,
  key           TEXT,
  token         INTEGER NOT NULL,
  attempt       INTEGER NOT NULL,
  losses        INTEGER NOT NULL,
  worker        TEXT,
  started_at    INTEGER,
  finished_at   INTEGER NOT NULL,
  cancel_requested_at INTEGER,
  cancel_reason TEXT NOT NULL,
  progress      REAL,
  progress_note TEXT NOT NULL,
  result        TEXT,
  error         TEXT,
  retry_of      TEXT,
  created_at    INTEGER NOT NULL
);
CREATE INDEX history_of_job ON history (job_id, state, seq) WHERE job_id IS NOT NULL;
CREATE INDEX history_not_succeeded ON history (state, seq) WHERE state <> 'succeeded';

-- The ended attempts but those that succeeded: these are told by the history of their runs.
CREATE TABLE attempts (
  run_id      TEXT NOT NULL,
  attempt     INTEGER NOT NULL,
  token       INTEGER NOT NULL,
  worker      TEXT NOT NULL,
  outcome     TEXT NOT NULL,
  started_at  INTEGER,
  finished_at INTEGER NOT NULL,
  reason      TEXT NOT NULL DEFAULT '',
  error       TEXT,
  PRIMARY KEY (run_id, attempt)
) WITHOUT ROWID;

CREATE TABLE logs (
  run_id  TEXT NOT NULL,
  seq     INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  at      INTEGER NOT NULL,
  stream  TEXT NOT NULL,
  text    TEXT NOT NULL,
  PRIMARY KEY (run_id, seq)
) WITHOUT ROWID;

-- Which run waits for which; deleted when the upstream run ends.
CREATE TABLE edges (
  upstream_id TEXT NOT NULL,
  run_id      TEXT NOT NULL,
  "when"      TEXT NOT NULL,
  on_failure  TEXT NOT NULL,
  PRIMARY KEY (upstream_id, run_id)
) WITHOUT ROWID;
CREATE INDEX edges_of_run ON edges (run_id);

-- Capacities. `used` counts the running runs that hold it.
CREATE TABLE gates (
  namespace TEXT NOT NULL,
  name      TEXT NOT NULL,
  capacity  INTEGER NOT NULL CHECK (capacity > 0),
  used      INTEGER NOT NULL DEFAULT 0 CHECK (used >= 0),
  PRIMARY KEY (namespace, name)
) WITHOUT ROWID;

-- Lines: keys and `overlap="queue"`. Granted in order of seq, held from acceptance to the end of the run.
CREATE TABLE lines (
  namespace TEXT NOT NULL,
  name      TEXT NOT NULL,
  seq       INTEGER NOT NULL,
  run_id    TEXT NOT NULL,
  capacity  INTEGER NOT NULL CHECK (capacity > 0),
  granted   INTEGER NOT NULL,
  PRIMARY KEY (namespace, name, seq)
) WITHOUT ROWID;
CREATE INDEX lines_of_run ON lines (run_id);

-- Answers to submissions that carried an idempotency key; outlives the run.
CREATE TABLE submissions (
  namespace   TEXT NOT NULL,
  key         TEXT NOT NULL,
  fingerprint TEXT NOT NULL,
  answer      TEXT NOT NULL,
  expires_at  INTEGER NOT NULL,
  PRIMARY KEY (namespace, key)
) WITHOUT ROWID;
CREATE INDEX submissions_by_expiry ON submissions (expires_at);

CREATE TABLE workers (
  id           TEXT PRIMARY KEY,
  namespace    TEXT NOT NULL,
  app          TEXT NOT NULL,
  host         TEXT NOT NULL,
  pid          INTEGER NOT NULL,
  queues       TEXT NOT NULL,
  regions      TEXT NOT NULL,
  tasks        TEXT NOT NULL,
  concurrency  INTEGER NOT NULL,
  running      INTEGER NOT NULL DEFAULT 0,
  state        TEXT NOT NULL CHECK (state IN ('active', 'draining', 'stopped', 'dead')),
  started_at   INTEGER NOT NULL,
  heartbeat_at INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE leases (
  name       TEXT PRIMARY KEY,
  owner      TEXT NOT NULL,
  token      INTEGER NOT NULL,
  expires_at INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE terms (
  name     TEXT PRIMARY KEY,
  number   INTEGER NOT NULL,
  owner    TEXT NOT NULL,
  began_at INTEGER NOT NULL
) WITHOUT ROWID;

-- One row per transaction that had something to tell. `position` is that of its first event; public are those up to the
-- counter `event_position`, which the relay moves on.
CREATE TABLE outbox (
  position   INTEGER PRIMARY KEY,
  count      INTEGER NOT NULL,
  events     TEXT NOT NULL,
  created_at INTEGER NOT NULL
);

-- What the store remembers of whoever used it last, e.g. the version of the zone data.
CREATE TABLE facts (
  name  TEXT PRIMARY KEY,
  value TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE counters (
  name  TEXT PRIMARY KEY,
  value INTEGER NOT NULL
) WITHOUT ROWID;
INSERT INTO counters (name, value) VALUES ('job_changes', 0), ('event_position', 0);
