-- oldest: 27
-- The schema of 1.0.0. Instants and durations are microseconds; JSON is text. Columns are in the order in which they came to be.
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
  origin        TEXT NOT NULL DEFAULT '',    -- where it comes from: code, call, api, cli
  source        TEXT NOT NULL DEFAULT '',    -- tells the code of one program from that of others: a sync gives up only what its own code declared
  UNIQUE (namespace, name)
);
CREATE INDEX jobs_due ON jobs (next_fire_at) WHERE next_fire_at IS NOT NULL AND paused_at IS NULL;
-- Where more jobs are due than a planner loads, it takes the earliest of each namespace: found without a look at those of others.
CREATE INDEX jobs_due_by_namespace ON jobs (namespace, next_fire_at) WHERE next_fire_at IS NOT NULL AND paused_at IS NULL;
CREATE INDEX jobs_paused ON jobs (namespace, paused_at) WHERE paused_at IS NOT NULL;
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
CREATE INDEX firings_without_run ON firings (created_at) WHERE run_id IS NULL;

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
  special             INTEGER NOT NULL DEFAULT 0,   -- whether a claim must look closer: it needs a gate, or was lost before
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
CREATE INDEX runs_claimable ON runs (namespace, queue, region, priority, due_at, seq, task, special) WHERE state = 'pending';
CREATE INDEX runs_held ON runs (claimed_until) WHERE state = 'running';
CREATE INDEX runs_at_gate ON runs (blocked_on, priority, due_at) WHERE blocked_on IS NOT NULL;
CREATE INDEX runs_of_job ON runs (job_id, region) WHERE job_id IS NOT NULL;
CREATE INDEX runs_expiring ON runs (expires_at) WHERE expires_at IS NOT NULL AND state <> 'running';
CREATE INDEX runs_cancelling ON runs (cancel_requested_at) WHERE cancel_requested_at IS NOT NULL;
-- Of these two there are few; the reaper looks once a second for due runs that may leave their region, and for those whose total timeout is over.
CREATE INDEX runs_failover ON runs (due_at, id) WHERE state = 'pending' AND instr(options, '"region_failover":') > 0;
CREATE INDEX runs_giving_up ON runs (json_extract(options, '$.give_up_at')) WHERE state <> 'running' AND instr(options, '"give_up_at":') > 0;
-- Lists of unfinished runs read no others, also where nothing matches. Those of a namespace read the indexes of pending, running and blocked
-- runs. The task is first in its index, so that no query by namespace alone goes by it. Runs of the region `default` and runs that were not
-- submitted over HTTP are in none of the last two.
CREATE INDEX runs_blocked ON runs (namespace, queue, task) WHERE state = 'blocked';
CREATE INDEX runs_by_job ON runs (namespace, job, id) WHERE job IS NOT NULL;
CREATE INDEX runs_by_task ON runs (task, namespace, id);
CREATE INDEX runs_by_region ON runs (namespace, region, id) WHERE region <> 'default';
CREATE INDEX runs_by_submitter ON runs (namespace, json_extract(options, '$.submitted_by'), id) WHERE instr(options, '"submitted_by":') > 0;

-- The tags of unfinished runs that have any. Transactions that add or end runs keep it, by one statement for all of them: a trigger runs for each.
CREATE TABLE run_tags (
  namespace TEXT NOT NULL,
  tag       TEXT NOT NULL,
  id        TEXT NOT NULL,
  PRIMARY KEY (namespace, tag, id)
) WITHOUT ROWID;

-- Runs that were accepted one at a time and wait for nothing. Whoever writes next takes them into `runs`. As many columns
-- as a run begins with, and no index: to be accepted costs one page.
CREATE TABLE inbox (
  seq        INTEGER PRIMARY KEY,
  id         TEXT NOT NULL,
  args       TEXT NOT NULL,
  special    INTEGER NOT NULL,
  namespace  TEXT NOT NULL,
  queue      TEXT NOT NULL,
  region     TEXT NOT NULL,
  task       TEXT NOT NULL,
  options    TEXT NOT NULL,
  priority   INTEGER NOT NULL CHECK (priority BETWEEN 1 AND 10),
  due_at     INTEGER NOT NULL,
  expires_at INTEGER,
  job_id     TEXT,
  job        TEXT,
  fire_at    INTEGER,
  idx        INTEGER NOT NULL,
  key        TEXT,
  retry_of   TEXT,
  created_at INTEGER NOT NULL,
  noted_for  TEXT NOT NULL DEFAULT '',       -- who submitted it: the audit trail tells of it when it is taken in
  request_id TEXT NOT NULL DEFAULT ''
);

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
-- Every list and count of finished runs is answered by an index, also where nothing matches. A list is the merge of the newest of each class
-- (namespace, queue, task, state) that it fits. Two filters that may never meet in one run have an index together. In none of the others are
-- runs of the region `default`, runs without a key, runs that began within a minute or took less than one, and runs that were not submitted over
-- HTTP: these cost nothing.
CREATE INDEX history_by_class ON history (namespace, queue, task, state, id);
CREATE INDEX history_by_job ON history (namespace, job, state, id) WHERE job IS NOT NULL;
CREATE INDEX history_by_region ON history (namespace, region, id) WHERE region <> 'default';
CREATE INDEX history_by_region_and_class ON history (namespace, region, queue, task, state, id) WHERE region <> 'default';
CREATE INDEX history_by_key ON history (namespace, key, id) WHERE key IS NOT NULL;
CREATE INDEX history_by_delay_and_duration ON history
  (namespace, (started_at - due_at >= 600000000) + (started_at - due_at >= 3600000000) + (started_at - due_at >= 86400000000),
   (finished_at - started_at >= 60000000) + (finished_at - started_at >= 600000000) + (finished_at - started_at >= 3600000000)
   + (finished_at - started_at >= 86400000000), id)
  WHERE started_at - due_at >= 60000000;
CREATE INDEX history_by_duration ON history
  (namespace, (finished_at - started_at >= 600000000) + (finished_at - started_at >= 3600000000) + (finished_at - started_at >= 86400000000), id)
  WHERE finished_at - started_at >= 60000000;
CREATE INDEX history_by_submitter ON history (namespace, json_extract(options, '$.submitted_by'), state, id)
WHERE instr(options, '"submitted_by":') > 0;

-- Counts, tags and what people type of ids are kept in arrears by the cleaner, up to the row that `summed_up` names, so that no run pays for them
-- when it ends; the rows after that are looked through.
CREATE TABLE tallies (
  namespace TEXT NOT NULL,
  state     TEXT NOT NULL,
  count     INTEGER NOT NULL,
  PRIMARY KEY (namespace, state)
) WITHOUT ROWID;

-- The last eight characters of ids. In batches of 4,096 runs, each of which is a few pages: a search looks into each batch.
CREATE TABLE tails (
  batch INTEGER NOT NULL,
  tail  TEXT NOT NULL,
  seq   INTEGER NOT NULL,
  PRIMARY KEY (batch, tail, seq)
) WITHOUT ROWID;

CREATE TABLE summed_up (seq INTEGER NOT NULL);
INSERT INTO summed_up VALUES (0);

CREATE TRIGGER count_forgotten AFTER DELETE ON history BEGIN
  UPDATE tallies SET count = count - 1 WHERE namespace = OLD.namespace AND state = OLD.state AND OLD.seq <= (SELECT seq FROM summed_up);
  DELETE FROM tails WHERE batch = OLD.seq >> 12 AND tail = substr(OLD.id, -8) AND seq = OLD.seq;
  -- The number of a last row that is deleted is given to the next.
  UPDATE summed_up SET seq = ifnull((SELECT max(seq) FROM history), 0) WHERE seq > ifnull((SELECT max(seq) FROM history), 0);
END;

-- The tags of finished runs that have any.
CREATE TABLE history_tags (
  namespace TEXT NOT NULL,
  tag       TEXT NOT NULL,
  id        TEXT NOT NULL,
  PRIMARY KEY (namespace, tag, id)
) WITHOUT ROWID;

CREATE TRIGGER forget_tags AFTER DELETE ON history WHEN instr(OLD.options, '"tags":[') > 0 BEGIN
  DELETE FROM history_tags
  WHERE namespace = OLD.namespace AND id = OLD.id AND tag IN (SELECT value FROM json_each(OLD.options, '$.tags'));
END;

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

-- Runs that have ended while more waited for them than one transaction judges. Recovery judges the rest.
CREATE TABLE ended_upstreams (
  run_id TEXT PRIMARY KEY,
  state  TEXT NOT NULL
) WITHOUT ROWID;

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

-- Lines that a failure stops while more runs wait in them than one transaction ends: those up to a number (`until_seq`) end with the run, which
-- keeps its place, so that none of them begins. Recovery ends the rest.
CREATE TABLE stopped_lines (
  run_id    TEXT NOT NULL,
  namespace TEXT NOT NULL,
  name      TEXT NOT NULL,
  until_seq INTEGER NOT NULL,
  PRIMARY KEY (run_id, name)
) WITHOUT ROWID;

-- A queue that is paused keeps its runs, and no claim takes any.
CREATE TABLE paused_queues (
  namespace TEXT NOT NULL,
  queue     TEXT NOT NULL,
  paused_at INTEGER NOT NULL,
  reason    TEXT NOT NULL,
  PRIMARY KEY (namespace, queue)
) WITHOUT ROWID;

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
  heartbeat_at INTEGER NOT NULL,
  notices      TEXT NOT NULL DEFAULT '[]',   -- what it knows of its tasks: how they are called and executed
  drain_requested_at INTEGER,                -- since when it is asked to finish what it holds and to end: its next heartbeat tells it
  version      TEXT NOT NULL DEFAULT '',     -- of its program: a fleet has two during an upgrade
  pools        TEXT NOT NULL DEFAULT '[]'    -- how it divides its places among priorities
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

-- The terms of each name, with their ends. An owner that died closes no term: the next one that begins does.
CREATE TABLE term_history (
  name     TEXT NOT NULL,
  number   INTEGER NOT NULL,
  owner    TEXT NOT NULL,
  began_at INTEGER NOT NULL,
  ended_at INTEGER,
  reason   TEXT NOT NULL DEFAULT '',
  PRIMARY KEY (name, number)
) WITHOUT ROWID;
CREATE INDEX term_history_by_time ON term_history (began_at);

-- The nodes of a cluster without a leader, with the time at which each checked in most recently, and what
-- it said then of its clock and its loops.
CREATE TABLE nodes (
  name          TEXT PRIMARY KEY,
  coordination  TEXT NOT NULL,
  every         INTEGER NOT NULL,
  started_at    INTEGER NOT NULL,
  checked_in_at INTEGER NOT NULL,
  skew          INTEGER NOT NULL DEFAULT 0,
  loops         TEXT NOT NULL DEFAULT '{}'
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

-- Tallies count what ended, by period; error groups are the kinds of failure. Both are written by the loop that reads the events, so no run pays
-- for them when it ends. One row per period, kind (all, job, task, error) and name; the counts are JSON: see core.runs.tallies.
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

-- What the API keeps: answers to repeated requests, limits, tokens that are no longer good, and who changed what.
CREATE TABLE replies (
  scope       TEXT NOT NULL,
  key         TEXT NOT NULL,
  fingerprint TEXT NOT NULL,
  since       INTEGER NOT NULL,              -- when the key was first seen: ids that follow from it keep this time
  held_until  INTEGER NOT NULL,              -- until then somebody works on the answer
  status      INTEGER,
  body        TEXT,
  expires_at  INTEGER NOT NULL,
  PRIMARY KEY (scope, key)
) WITHOUT ROWID;
CREATE INDEX replies_by_expiry ON replies (expires_at);

CREATE TABLE paces (
  name    TEXT PRIMARY KEY,
  paid_at INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE revocations (
  name       TEXT PRIMARY KEY,
  at         INTEGER NOT NULL,
  expires_at INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE audit (
  seq        INTEGER PRIMARY KEY,
  namespace  TEXT NOT NULL DEFAULT 'default',
  at         INTEGER NOT NULL,
  subject    TEXT NOT NULL,
  action     TEXT NOT NULL,
  target     TEXT NOT NULL,
  before     TEXT,
  after      TEXT,
  request_id TEXT NOT NULL DEFAULT ''
);
CREATE INDEX audit_by_namespace ON audit (namespace, seq);
CREATE INDEX audit_by_subject ON audit (namespace, subject, seq);
CREATE INDEX audit_by_target ON audit (namespace, target, seq);
CREATE INDEX audit_by_action ON audit (namespace, action, seq);
-- Single submissions are many, and are kept only as long as runs are.
CREATE INDEX audit_submissions_by_age ON audit (at) WHERE action = 'run.submit';
CREATE INDEX audit_others_by_age ON audit (at) WHERE action <> 'run.submit';
