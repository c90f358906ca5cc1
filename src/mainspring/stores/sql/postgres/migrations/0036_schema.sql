-- oldest: 36
-- The schema of 1.0.0. Instants and durations are microseconds; ids sort by time, bytewise. Columns are in the order in which they came to be.
-- Names are always qualified: behind a pooler no session remembers a search path.

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
  origin        text NOT NULL DEFAULT '',    -- where it comes from: code, call, api, cli
  source        text NOT NULL DEFAULT '',    -- tells the code of one program from that of others: a sync gives up only what its own code declared
  UNIQUE (namespace, name)
) WITH (fillfactor = 70);
CREATE INDEX jobs_due ON mainspring.jobs (next_fire_at) WHERE next_fire_at IS NOT NULL AND paused_at IS NULL;
-- Where more jobs are due than a planner loads, it takes the earliest of each namespace: found without a look at those of others.
CREATE INDEX jobs_due_by_namespace ON mainspring.jobs (namespace, next_fire_at) WHERE next_fire_at IS NOT NULL AND paused_at IS NULL;
CREATE INDEX jobs_paused ON mainspring.jobs (namespace, paused_at) WHERE paused_at IS NOT NULL;

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
CREATE INDEX firings_without_run ON mainspring.firings (created_at) WHERE run_id IS NULL;

-- The hot table: runs that have not ended. The new version of a run that is claimed finds room on its page: one record less in the log, and no
-- other page to look for. `seq` is the order of acceptance; within a line, whose lock is taken first, of commits.
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
  special             boolean NOT NULL DEFAULT false, -- whether a claim must look closer: it needs a gate, may expire, or was lost before
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
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0,
        autovacuum_analyze_scale_factor = 0.1, autovacuum_analyze_threshold = 5000);
CREATE INDEX runs_claimable ON mainspring.runs (namespace, queue, region, priority, due_at, seq) WHERE state = 'pending';
CREATE INDEX runs_held ON mainspring.runs (claimed_until) WHERE state = 'running';
CREATE INDEX runs_at_gate ON mainspring.runs (namespace, blocked_on, priority, due_at, seq) WHERE blocked_on IS NOT NULL;
CREATE INDEX runs_of_job ON mainspring.runs (job_id, region) WHERE job_id IS NOT NULL;
CREATE INDEX runs_expiring ON mainspring.runs (expires_at) WHERE expires_at IS NOT NULL AND state <> 'running';
CREATE INDEX runs_cancelling ON mainspring.runs (cancel_requested_at) WHERE cancel_requested_at IS NOT NULL;
-- Of these two there are few; the reaper looks once a second for due runs that may leave their region, and for those whose total timeout is over.
CREATE INDEX runs_failover ON mainspring.runs (due_at, id) WHERE state = 'pending' AND strpos(options, '"region_failover":') > 0;
CREATE INDEX runs_giving_up ON mainspring.runs (((options::json ->> 'give_up_at')::bigint))
  WHERE state <> 'running' AND strpos(options, '"give_up_at":') > 0;
-- Lists of unfinished runs read no others, also where nothing matches. Those of a namespace read the indexes of pending, running and blocked
-- runs. Running runs are few: a claim adds nothing to the indexes of those that wait. `id || ''`: no other index is in this order, so that no
-- plan, not even one that was made while the table was empty, goes by another.
CREATE INDEX runs_blocked ON mainspring.runs (namespace, queue) WHERE state = 'blocked';
CREATE INDEX runs_by_job ON mainspring.runs (namespace, job, (id || '')) WHERE job IS NOT NULL;
CREATE INDEX runs_waiting_by_task ON mainspring.runs (namespace, task, (id || '')) WHERE state <> 'running';
CREATE INDEX runs_waiting_by_submitter ON mainspring.runs (namespace, ((options::json ->> 'submitted_by') COLLATE "C"), (id || ''))
  WHERE state <> 'running' AND strpos(options, '"submitted_by":') > 0;

-- The tags of unfinished runs that have any, so that a list by tag reads no others. Triggers keep it: ../functions/run_tags.sql.
CREATE TABLE mainspring.run_tags (
  namespace text COLLATE "C" NOT NULL,
  tag       text COLLATE "C" NOT NULL,
  id        text COLLATE "C" NOT NULL,
  PRIMARY KEY (namespace, tag, id)
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);

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
-- Every list and count of finished runs is answered by an index, also where nothing matches. Two filters that may never meet in one run have an
-- index together. In none of the last six are runs of the region `default`, runs without a key, runs that began within a minute or took less
-- than one, and runs that were not submitted over HTTP: these cost nothing.
CREATE INDEX history_by_class ON mainspring.history (namespace, queue, task, state, id);
CREATE INDEX history_by_job ON mainspring.history (namespace, job, state, id) WHERE job IS NOT NULL;
CREATE INDEX history_by_region ON mainspring.history (namespace, region, id) WHERE region <> 'default';
CREATE INDEX history_by_region_and_class ON mainspring.history (namespace, region, queue, task, state, id) WHERE region <> 'default';
CREATE INDEX history_by_key ON mainspring.history (namespace, key, id) WHERE key IS NOT NULL;
CREATE INDEX history_by_delay_and_duration ON mainspring.history
  (namespace, width_bucket(started_at - due_at, '{60000000,600000000,3600000000,86400000000}'::bigint[]),
   width_bucket(finished_at - started_at, '{60000000,600000000,3600000000,86400000000}'::bigint[]), id) WHERE started_at - due_at >= 60000000;
CREATE INDEX history_by_duration ON mainspring.history
  (namespace, width_bucket(finished_at - started_at, '{60000000,600000000,3600000000,86400000000}'::bigint[]), id)
  WHERE finished_at - started_at >= 60000000;
CREATE INDEX history_by_submitter ON mainspring.history
  (namespace, ((options::json ->> 'submitted_by') COLLATE "C"), state, id) WHERE strpos(options, '"submitted_by":') > 0;

-- The finished runs, counted by class (namespace, queue, task, state) and day. It says which classes exist at all, so that a list is the merge of
-- the newest of each of its classes, and it is the answer to counts. Triggers keep it, so that it is right whichever program ends a run. Each
-- session counts in rows of its own (`shard`): no two transactions wait for each other. The cleaner adds up the shards of past days.
CREATE TABLE mainspring.tallies (
  namespace text COLLATE "C" NOT NULL,
  queue     text COLLATE "C" NOT NULL,
  task      text COLLATE "C" NOT NULL,
  state     text COLLATE "C" NOT NULL,
  day       bigint NOT NULL,
  shard     integer NOT NULL,
  count     bigint NOT NULL,
  PRIMARY KEY (namespace, queue, task, state, day, shard)
) WITH (fillfactor = 30, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX tallies_by_day ON mainspring.tallies (day, shard);

-- The tags of finished runs that have any; by day like history.
CREATE TABLE mainspring.history_tags (
  namespace   text COLLATE "C" NOT NULL,
  tag         text COLLATE "C" NOT NULL,
  id          text COLLATE "C" NOT NULL,
  finished_at bigint NOT NULL
) PARTITION BY RANGE (finished_at);
CREATE TABLE mainspring.history_tags_rest PARTITION OF mainspring.history_tags DEFAULT;
CREATE INDEX history_tags_rest_by_age ON mainspring.history_tags_rest (finished_at);
CREATE INDEX history_tags_by_tag ON mainspring.history_tags (namespace, tag, id, finished_at);
CREATE INDEX history_tags_of_run ON mainspring.history_tags (id);

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

-- Runs that have ended while more waited for them than one transaction judges. Recovery judges the rest.
CREATE TABLE mainspring.ended_upstreams (
  run_id text COLLATE "C" PRIMARY KEY,
  state  text NOT NULL
);

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

-- Lines that a failure stops while more runs wait in them than one transaction ends: those up to a number (`until_seq`) end with the run, which
-- keeps its place, so that none of them begins. Recovery ends the rest.
CREATE TABLE mainspring.stopped_lines (
  run_id    text COLLATE "C",
  namespace text COLLATE "C" NOT NULL,
  name      text COLLATE "C",
  until_seq bigint NOT NULL,
  PRIMARY KEY (run_id, name)
);

-- A queue that is paused keeps its runs, and no claim takes any.
CREATE TABLE mainspring.paused_queues (
  namespace text COLLATE "C" NOT NULL,
  queue     text COLLATE "C" NOT NULL,
  paused_at bigint NOT NULL,
  reason    text NOT NULL,
  PRIMARY KEY (namespace, queue)
);

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
  heartbeat_at bigint NOT NULL,
  notices      text NOT NULL DEFAULT '[]',   -- what it knows of its tasks: how they are called and executed; JSON
  drain_requested_at bigint,                 -- since when it is asked to finish what it holds and to end: its next heartbeat tells it
  version      text NOT NULL DEFAULT '',     -- of its program: a fleet has two during an upgrade
  pools        text NOT NULL DEFAULT '[]'    -- how it divides its places among priorities; JSON
) WITH (fillfactor = 30, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 200);

-- What workers with nothing to do would take at once. A lone submission is claimed for one of them in its own transaction: one sync before it
-- starts, instead of two. Nothing depends on these rows, so the log need not carry them. `ear` names the channel that the worker's process
-- listens to, and an advisory lock that its connection holds: whose lock is free is gone. `offered_at` is that process's own clock: it comes
-- back with what is handed over, and tells how old the claim may be.
CREATE UNLOGGED TABLE mainspring.offers (
  worker     text COLLATE "C" PRIMARY KEY,
  namespace  text COLLATE "C" NOT NULL,
  queues     text[] NOT NULL,
  regions    text[] NOT NULL,
  tasks      text[] NOT NULL,
  ear        text COLLATE "C" NOT NULL,
  ttl        bigint NOT NULL,
  offered_at bigint NOT NULL,
  until      bigint NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 100, autovacuum_vacuum_scale_factor = 0);

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

-- The terms of each name, with their ends. An owner that died closes no term: the next one that begins does.
CREATE TABLE mainspring.term_history (
  name     text COLLATE "C" NOT NULL,
  number   bigint NOT NULL,
  owner    text NOT NULL,
  began_at bigint NOT NULL,
  ended_at bigint,
  reason   text NOT NULL DEFAULT '',
  PRIMARY KEY (name, number)
);
CREATE INDEX term_history_by_time ON mainspring.term_history (began_at);

-- The nodes of a cluster without a leader, with the time at which each checked in most recently, and what it said then of its clock
-- and its loops.
CREATE TABLE mainspring.nodes (
  name          text COLLATE "C" PRIMARY KEY,
  coordination  text NOT NULL,
  every         bigint NOT NULL,
  started_at    bigint NOT NULL,
  checked_in_at bigint NOT NULL,
  skew          bigint NOT NULL DEFAULT 0,
  loops         text NOT NULL DEFAULT '{}'
) WITH (fillfactor = 20);

-- One row per transaction that had something to tell. `position`, that of its first event, is given by the relay after the commit: what
-- caused something is visible before it, and has a smaller seq. Events are forgotten in the order in which they were kept.
CREATE TABLE mainspring.outbox (
  seq        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  position   bigint,
  count      integer NOT NULL,
  events     text NOT NULL,
  created_at bigint NOT NULL
) WITH (fillfactor = 90);
CREATE UNIQUE INDEX outbox_by_position ON mainspring.outbox (position) WHERE position IS NOT NULL;
CREATE INDEX outbox_unpublished ON mainspring.outbox (seq) WHERE position IS NULL;
-- Events of many runs are one long text, which compresses in less than half of the time where the server has LZ4.
DO $$
BEGIN
  ALTER TABLE mainspring.outbox ALTER COLUMN events SET COMPRESSION lz4;
EXCEPTION WHEN feature_not_supported THEN
  NULL;
END $$;

-- What the store remembers of whoever used it last, e.g. the version of the zone data.
CREATE TABLE mainspring.facts (
  name  text COLLATE "C" PRIMARY KEY,
  value text NOT NULL
);
-- From these instants on, `history_tags` also has a row with the state, and one with the class, of the run behind each tag.
INSERT INTO mainspring.facts VALUES ('states_of_tags_since', '0'), ('classes_of_tags_since', '0');

CREATE TABLE mainspring.counters (
  name  text COLLATE "C" PRIMARY KEY,
  value bigint NOT NULL
) WITH (fillfactor = 20);
INSERT INTO mainspring.counters (name, value) VALUES ('job_changes', 0), ('event_position', 0);

-- Tallies count what ended, by period; error groups are the kinds of failure. Both are written by the loop that reads the events, so no run pays
-- for them when it ends. One row per period, kind (all, job, task, error) and name; the counts are JSON: see core.runs.tallies.
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

-- What the API keeps: answers to repeated requests, limits, tokens that are no longer good, and who changed what.
CREATE TABLE mainspring.replies (
  scope       text COLLATE "C" NOT NULL,
  key         text COLLATE "C" NOT NULL,
  fingerprint text NOT NULL,
  since       bigint NOT NULL,               -- when the key was first seen: ids that follow from it keep this time
  held_until  bigint NOT NULL,               -- until then somebody works on the answer
  status      integer,
  body        text,
  expires_at  bigint NOT NULL,
  PRIMARY KEY (scope, key)
);
CREATE INDEX replies_by_expiry ON mainspring.replies (expires_at);

CREATE TABLE mainspring.paces (
  name    text COLLATE "C" PRIMARY KEY,
  paid_at bigint NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE mainspring.revocations (
  name       text COLLATE "C" PRIMARY KEY,
  at         bigint NOT NULL,
  expires_at bigint NOT NULL
);

CREATE TABLE mainspring.audit (
  seq        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  namespace  text COLLATE "C" NOT NULL DEFAULT 'default',
  at         bigint NOT NULL,
  subject    text NOT NULL,
  action     text NOT NULL,
  target     text NOT NULL,
  before     text,
  after      text,
  request_id text NOT NULL DEFAULT ''
);
CREATE INDEX audit_by_namespace ON mainspring.audit (namespace, seq);
CREATE INDEX audit_by_action ON mainspring.audit (namespace, action, (-seq));
-- A target may be longer than a row of an index can be, subjects have 200 characters at most. `-seq`: no other index is in this order, so that
-- no plan, not even one that was made while the table was empty, goes by another.
CREATE INDEX audit_by_subject ON mainspring.audit (namespace, subject, (-seq));
CREATE INDEX audit_by_target ON mainspring.audit (namespace, left(target, 200), (-seq));
-- Single submissions are many, and are kept only as long as runs are.
CREATE INDEX audit_submissions_by_age ON mainspring.audit (at) WHERE action = 'run.submit';
CREATE INDEX audit_others_by_age ON mainspring.audit (at) WHERE action <> 'run.submit';

-- Which text of each function of ../functions the database has, and the schema version of the program that created it: a program replaces a
-- text that differs from its own, unless a program with a newer schema created it.
CREATE TABLE mainspring.functions (
  name    text COLLATE "C" PRIMARY KEY,
  hash    text NOT NULL,
  version integer NOT NULL
);
