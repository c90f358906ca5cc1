-- oldest: 1
-- The whole of the ledger, the queue and their surroundings, in a schema of its own. Instants and durations are microseconds; ids sort
-- by time, bytewise. Names are always qualified: behind a pooler no session remembers a search path.

CREATE TABLE mainspring.jobs (
  id            text COLLATE "C" PRIMARY KEY,
  namespace     text COLLATE "C" NOT NULL DEFAULT 'default',
  name          text COLLATE "C" NOT NULL,
  app           text COLLATE "C" NOT NULL DEFAULT 'default',
  task          text COLLATE "C" NOT NULL,
  args          text NOT NULL DEFAULT '{}',
  queue         text COLLATE "C" NOT NULL DEFAULT 'default',
  priority      smallint NOT NULL DEFAULT 5 CHECK (priority BETWEEN 1 AND 10),
  key           text,
  "limit"       integer CHECK ("limit" > 0),
  "trigger"     text NOT NULL,
  policy        text NOT NULL DEFAULT '{}',
  options       text NOT NULL DEFAULT '{}',
  next_fire_at  bigint,
  version       integer NOT NULL DEFAULT 1,
  paused_at     bigint,
  paused_why    text NOT NULL DEFAULT '',
  fired         bigint NOT NULL DEFAULT 0,
  last_fire_at  bigint,
  created_at    bigint NOT NULL,
  updated_at    bigint NOT NULL,
  UNIQUE (namespace, name)
) WITH (fillfactor = 70);
CREATE INDEX jobs_due ON mainspring.jobs (next_fire_at) WHERE next_fire_at IS NOT NULL AND paused_at IS NULL;

-- When a job was changed last (not by firings), so that planners see edits cheaply. Apart from the jobs, whose every index costs each
-- firing. Numbers are given under the lock of the counter `job_changes`, so that whoever sees one has seen all before it.
CREATE TABLE mainspring.changes (
  job_id text COLLATE "C" PRIMARY KEY,
  number bigint NOT NULL
);
CREATE INDEX changes_by_number ON mainspring.changes (number);

-- What an `after` job knows of each upstream: the newest firing it has used, and the newest that ended.
CREATE TABLE mainspring.upstreams (
  job_id         text COLLATE "C" NOT NULL,
  upstream_id    text COLLATE "C" NOT NULL,
  consumed_at    bigint NOT NULL DEFAULT 0,
  latest_at      bigint NOT NULL DEFAULT 0,
  latest_outcome text NOT NULL DEFAULT 'fired',
  PRIMARY KEY (job_id, upstream_id)
);
CREATE INDEX upstreams_by_upstream ON mainspring.upstreams (upstream_id);

CREATE TABLE mainspring.calendars (
  namespace  text COLLATE "C" NOT NULL DEFAULT 'default',
  name       text COLLATE "C" NOT NULL,
  definition text NOT NULL,
  updated_at bigint NOT NULL,
  PRIMARY KEY (namespace, name)
);

-- The ledger: one row per due instant, region and index, whatever became of it. Kept longer than the runs' history, and in one piece, so
-- that an instant is unique for as long as it is known at all.
-- A row with another count than 1 stands for the missed instants from fire_at to last_at (0: too many to count).
CREATE TABLE mainspring.firings (
  job_id      text COLLATE "C" NOT NULL,
  fire_at     bigint NOT NULL,
  region      text COLLATE "C" NOT NULL DEFAULT 'default',
  idx         integer NOT NULL DEFAULT 0,
  kind        text NOT NULL CHECK (kind IN ('scheduled', 'manual', 'after', 'backfill')),
  outcome     text NOT NULL CHECK (outcome IN ('fired', 'missed', 'succeeded', 'failed', 'cancelled', 'skipped')),
  reason      text NOT NULL DEFAULT '',
  run_id      text COLLATE "C",
  request_id  text COLLATE "C",
  last_at     bigint,
  count       bigint NOT NULL DEFAULT 1,
  created_at  bigint NOT NULL,
  finished_at bigint,
  PRIMARY KEY (job_id, fire_at, region, idx)
) WITH (fillfactor = 80);
CREATE UNIQUE INDEX firings_by_request ON mainspring.firings (job_id, request_id, region, idx) WHERE request_id IS NOT NULL;
CREATE INDEX firings_by_age ON mainspring.firings (created_at);

-- The hot table: runs that have not ended. `seq` is the order of acceptance; within a line, whose lock is taken first, of commits.
CREATE TABLE mainspring.runs (
  id                  text COLLATE "C" PRIMARY KEY,
  seq                 bigint NOT NULL GENERATED ALWAYS AS IDENTITY (CACHE 1),
  namespace           text COLLATE "C" NOT NULL DEFAULT 'default',
  queue               text COLLATE "C" NOT NULL DEFAULT 'default',
  region              text COLLATE "C" NOT NULL DEFAULT 'default',
  task                text COLLATE "C" NOT NULL,
  args                text NOT NULL,
  options             text NOT NULL,
  state               text COLLATE "C" NOT NULL CHECK (state IN ('blocked', 'pending', 'running')),
  reason              text NOT NULL DEFAULT '',
  priority            smallint NOT NULL CHECK (priority BETWEEN 1 AND 10),
  care                boolean NOT NULL DEFAULT false,  -- whether a claim must look closer: it needs a gate, may expire, or was lost before
  due_at              bigint NOT NULL,
  expires_at          bigint,
  job_id              text COLLATE "C",
  job                 text COLLATE "C",
  fire_at             bigint,
  idx                 integer NOT NULL DEFAULT 0,
  key                 text,
  gates               text[],                        -- names of the capacities it needs while it runs
  blocked_on          text COLLATE "C",              -- the gate that was full
  lines               integer NOT NULL DEFAULT 0,    -- how many lines it stands in
  waits_for           integer NOT NULL DEFAULT 0,    -- unfinished dependencies plus ungranted lines
  dependants          boolean NOT NULL DEFAULT false, -- whether other runs wait for it
  token               bigint NOT NULL DEFAULT 0,
  attempt             integer NOT NULL DEFAULT 0,
  losses              integer NOT NULL DEFAULT 0,
  worker              text COLLATE "C",
  claimed_until       bigint,
  started_at          bigint,
  cancel_requested_at bigint,
  cancel_reason       text NOT NULL DEFAULT '',
  progress            double precision,
  progress_note       text NOT NULL DEFAULT '',
  retry_of            text COLLATE "C",
  created_at          bigint NOT NULL,
  CHECK ((state = 'running') = (claimed_until IS NOT NULL))
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0,
        autovacuum_analyze_scale_factor = 0.1, autovacuum_analyze_threshold = 5000);
CREATE INDEX runs_claimable ON mainspring.runs (namespace, queue, region, priority, due_at, seq) WHERE state = 'pending';
CREATE INDEX runs_held ON mainspring.runs (claimed_until) WHERE state = 'running';
CREATE INDEX runs_at_gate ON mainspring.runs (namespace, blocked_on, priority, due_at, seq) WHERE blocked_on IS NOT NULL;
CREATE INDEX runs_of_job ON mainspring.runs (job_id, region) WHERE job_id IS NOT NULL;
CREATE INDEX runs_expiring ON mainspring.runs (expires_at) WHERE expires_at IS NOT NULL AND state <> 'running';
CREATE INDEX runs_cancelling ON mainspring.runs (cancel_requested_at) WHERE cancel_requested_at IS NOT NULL;

-- Finished runs, in partitions by the day on which they finished; the cleaner makes them ahead and drops them, whole, when their time has
-- come. A run's id begins with the time of its acceptance, which is never after its end: a search by id leaves out all days before.
-- Its last attempt is not among `attempts`: outcome, token, worker and times are here.
CREATE TABLE mainspring.history (
  id            text COLLATE "C" NOT NULL,
  finished_at   bigint NOT NULL,
  namespace     text COLLATE "C" NOT NULL,
  queue         text COLLATE "C" NOT NULL,
  region        text COLLATE "C" NOT NULL,
  task          text COLLATE "C" NOT NULL,
  args          text NOT NULL,
  options       text NOT NULL,
  state         text COLLATE "C" NOT NULL CHECK (state IN ('succeeded', 'failed', 'cancelled', 'skipped')),
  outcome       text COLLATE "C",                    -- of its last attempt; NULL if it ended without one
  reason        text NOT NULL,
  priority      smallint NOT NULL,
  due_at        bigint NOT NULL,
  expires_at    bigint,
  job_id        text COLLATE "C",
  job           text COLLATE "C",
  fire_at       bigint,
  idx           integer NOT NULL,
  key           text,
  token         bigint NOT NULL,
  attempt       integer NOT NULL,
  losses        integer NOT NULL,
  worker        text COLLATE "C",
  started_at    bigint,
  cancel_requested_at bigint,
  cancel_reason text NOT NULL,
  progress      double precision,
  progress_note text NOT NULL,
  result        text,
  error         text,
  retry_of      text COLLATE "C",
  created_at    bigint NOT NULL
) PARTITION BY RANGE (finished_at);
CREATE TABLE mainspring.history_rest PARTITION OF mainspring.history DEFAULT;
CREATE INDEX history_rest_by_age ON mainspring.history_rest (finished_at);
CREATE INDEX history_by_id ON mainspring.history (id);
CREATE INDEX history_of_job ON mainspring.history (job_id, state, finished_at) WHERE job_id IS NOT NULL;
CREATE INDEX history_not_succeeded ON mainspring.history (state, id) WHERE state <> 'succeeded';

-- Attempts that were followed by another, or that ended while their run went on; by day like history.
CREATE TABLE mainspring.attempts (
  run_id      text COLLATE "C" NOT NULL,
  attempt     integer NOT NULL,
  token       bigint NOT NULL,
  worker      text COLLATE "C" NOT NULL,
  outcome     text COLLATE "C" NOT NULL,
  started_at  bigint,
  finished_at bigint NOT NULL,
  reason      text NOT NULL DEFAULT '',
  error       text
) PARTITION BY RANGE (finished_at);
CREATE TABLE mainspring.attempts_rest PARTITION OF mainspring.attempts DEFAULT;
CREATE INDEX attempts_rest_by_age ON mainspring.attempts_rest (finished_at);
CREATE INDEX attempts_of_run ON mainspring.attempts (run_id);

-- Numbers grow over all runs: nobody has to look for the last line of a run to add one.
CREATE SEQUENCE mainspring.log_lines CACHE 1;
CREATE TABLE mainspring.logs (
  run_id  text COLLATE "C" NOT NULL,
  seq     bigint NOT NULL DEFAULT nextval('mainspring.log_lines'),
  attempt integer NOT NULL,
  at      bigint NOT NULL,
  stream  text NOT NULL,
  text    text NOT NULL
) PARTITION BY RANGE (at);
CREATE TABLE mainspring.logs_rest PARTITION OF mainspring.logs DEFAULT;
CREATE INDEX logs_rest_by_age ON mainspring.logs_rest (at);
CREATE INDEX logs_of_run ON mainspring.logs (run_id, seq);

-- Which run waits for which; deleted when the upstream run ends.
CREATE TABLE mainspring.edges (
  upstream_id text COLLATE "C" NOT NULL,
  run_id      text COLLATE "C" NOT NULL,
  "when"      text NOT NULL,
  on_failure  text NOT NULL,
  PRIMARY KEY (upstream_id, run_id)
);
CREATE INDEX edges_of_run ON mainspring.edges (run_id);

-- Capacities. `used` counts the running runs that hold it. Locked in order of name.
CREATE TABLE mainspring.gates (
  namespace text COLLATE "C" NOT NULL,
  name      text COLLATE "C" NOT NULL,
  capacity  integer NOT NULL CHECK (capacity > 0),
  used      integer NOT NULL DEFAULT 0 CHECK (used >= 0),
  PRIMARY KEY (namespace, name)
) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

-- Lines: keys and `overlap="queue"`. Granted in order of seq, held from acceptance to the end of the run. Whoever touches a line first
-- takes its advisory lock (of this transaction), so that the order of seq is the order of commits.
CREATE TABLE mainspring.lines (
  namespace text COLLATE "C" NOT NULL,
  name      text COLLATE "C" NOT NULL,
  seq       bigint NOT NULL,
  run_id    text COLLATE "C" NOT NULL,
  capacity  integer NOT NULL CHECK (capacity > 0),
  granted   boolean NOT NULL,
  PRIMARY KEY (namespace, name, seq)
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX lines_of_run ON mainspring.lines (run_id);

-- Answers to submissions that carried an idempotency key; outlives the run.
CREATE TABLE mainspring.submissions (
  namespace   text COLLATE "C" NOT NULL,
  key         text COLLATE "C" NOT NULL,
  fingerprint text NOT NULL,
  answer      text COLLATE "C" NOT NULL,
  expires_at  bigint NOT NULL,
  PRIMARY KEY (namespace, key)
);
CREATE INDEX submissions_by_expiry ON mainspring.submissions (expires_at);

CREATE TABLE mainspring.workers (
  id           text COLLATE "C" PRIMARY KEY,
  namespace    text COLLATE "C" NOT NULL,
  app          text NOT NULL,
  host         text NOT NULL,
  pid          integer NOT NULL,
  queues       text[] NOT NULL,
  regions      text[] NOT NULL,
  tasks        text[] NOT NULL,
  concurrency  integer NOT NULL,
  running      integer NOT NULL DEFAULT 0,
  state        text NOT NULL CHECK (state IN ('active', 'draining', 'stopped', 'dead')),
  started_at   bigint NOT NULL,
  heartbeat_at bigint NOT NULL
) WITH (fillfactor = 30, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 200);

CREATE TABLE mainspring.leases (
  name       text COLLATE "C" PRIMARY KEY,
  owner      text NOT NULL,
  token      bigint NOT NULL,
  expires_at bigint NOT NULL
) WITH (fillfactor = 20);

CREATE TABLE mainspring.terms (
  name     text COLLATE "C" PRIMARY KEY,
  number   bigint NOT NULL,
  owner    text NOT NULL,
  began_at bigint NOT NULL
) WITH (fillfactor = 20);

-- One row per transaction that had something to tell. `position`, that of its first event, is given by the relay after the commit: what
-- caused something is visible before it, and has a smaller seq.
CREATE TABLE mainspring.outbox (
  seq        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  position   bigint,
  count      integer NOT NULL,
  events     text NOT NULL,
  created_at bigint NOT NULL
) WITH (fillfactor = 90);
CREATE UNIQUE INDEX outbox_by_position ON mainspring.outbox (position) WHERE position IS NOT NULL;
CREATE INDEX outbox_unpublished ON mainspring.outbox (seq) WHERE position IS NULL;
CREATE INDEX outbox_by_age ON mainspring.outbox (created_at);

-- What the store remembers of whoever used it last, e.g. the version of the zone data.
CREATE TABLE mainspring.facts (
  name  text COLLATE "C" PRIMARY KEY,
  value text NOT NULL
);

CREATE TABLE mainspring.counters (
  name  text COLLATE "C" PRIMARY KEY,
  value bigint NOT NULL
) WITH (fillfactor = 20);
INSERT INTO mainspring.counters (name, value) VALUES ('job_changes', 0), ('event_position', 0);
