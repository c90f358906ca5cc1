-- For `claimed_until IS NOT NULL` see work.sql.

-- lock_running: what must be known of running runs that stand in no line, to end or give back their attempts
SELECT seq, id, token, namespace, task, worker, attempt, started_at, queue, options, losses, cancel_requested_at, cancel_reason, job_id, job,
       fire_at, region, idx, dependants, lines, gates
FROM mainspring.runs WHERE id = ANY ($1::text[]) AND claimed_until IS NOT NULL AND lines = 0 ORDER BY id FOR UPDATE;

-- lock_running_in_lines: the same of those that stand in lines, whose locks are taken first
SELECT seq, id, token, namespace, task, worker, attempt, started_at, queue, options, losses, cancel_requested_at, cancel_reason, job_id, job,
       fire_at, region, idx, dependants, lines, gates
FROM mainspring.runs WHERE id = ANY ($1::text[]) AND claimed_until IS NOT NULL AND lines > 0 ORDER BY id FOR UPDATE;

-- lock_unstarted: what must be known of runs to end them before they start
SELECT id, namespace, task, state, job_id, job, fire_at, region, idx, dependants, lines, gates, options, queue
FROM mainspring.runs WHERE id = ANY ($1::text[]) AND state IN ('blocked', 'pending') ORDER BY id FOR UPDATE;

-- lock_run: the state of a run that has not ended
SELECT state FROM mainspring.runs WHERE id = $1 FOR UPDATE;

-- to_history: runs that have ended leave the hot table
WITH gone AS (DELETE FROM mainspring.runs WHERE id = ANY ($1::text[]) RETURNING *)
INSERT INTO mainspring.history (id, namespace, queue, region, task, args, options, state, outcome, reason, priority, due_at, expires_at,
                                job_id, job, fire_at, idx, key, token, attempt, losses, worker, started_at, finished_at,
                                cancel_requested_at, cancel_reason, progress, progress_note, result, error, retry_of, created_at)
SELECT r.id, r.namespace, r.queue, r.region, r.task, r.args, r.options, e.state, e.outcome, e.reason, r.priority, r.due_at, r.expires_at,
       r.job_id, r.job, r.fire_at, r.idx, r.key, r.token, r.attempt + e.attempts, r.losses + e.losses, r.worker, e.started_at, e.finished_at,
       r.cancel_requested_at, r.cancel_reason, r.progress, r.progress_note, e.result, e.error, r.retry_of, r.created_at
FROM gone AS r
JOIN unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::text[], $8::text[], $9::integer[], $10::integer[])
  AS e (id, state, outcome, reason, started_at, finished_at, result, error, attempts, losses) ON e.id = r.id;

-- end_plain: the ends of runs on which nothing else depends, without a request to cancel, as one statement, which is the transaction.
-- Under their tokens they leave the hot table, in order of id (see `connection.SETTINGS`), with their events. Which ones did
WITH gone AS (
  DELETE FROM mainspring.runs
  WHERE id = ANY (ARRAY(SELECT unnest($1::text[]))) AND token = ($10::jsonb -> id)::bigint AND claimed_until IS NOT NULL AND cancel_requested_at IS NULL
    AND job_id IS NULL AND gates IS NULL AND lines = 0 AND NOT dependants
  RETURNING *),
kept AS (
  INSERT INTO mainspring.history (id, namespace, queue, region, task, args, options, state, outcome, reason, priority, due_at, expires_at,
                                  fire_at, idx, key, token, attempt, losses, worker, started_at, finished_at, cancel_reason, progress,
                                  progress_note, result, error, retry_of, created_at)
  SELECT r.id, r.namespace, r.queue, r.region, r.task, r.args, r.options, e.state, e.outcome, e.reason, r.priority, r.due_at, r.expires_at,
         r.fire_at, r.idx, r.key, r.token, r.attempt + 1, r.losses, r.worker, coalesce(e.started_at, r.started_at), e.finished_at,
         r.cancel_reason, r.progress, r.progress_note, e.result, e.error, r.retry_of, r.created_at
  FROM gone AS r
  JOIN unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::text[], $8::text[])
    AS e (id, state, outcome, reason, started_at, finished_at, result, error) ON e.id = r.id
  RETURNING id, namespace, queue, task, worker, state, reason, attempt, finished_at - started_at AS duration),
logged AS (
  INSERT INTO mainspring.outbox (count, events, created_at)
  SELECT count(*), '[' || string_agg(
           '{"kind":"run.' || state || '","at":' || $9::bigint || ',"attempt":' || attempt || ',"run_id":' || to_json(id)
           || ',"namespace":' || to_json(namespace) || ',"task":' || to_json(task) || ',"worker":' || to_json(worker)
           || CASE WHEN queue = 'default' THEN '' ELSE ',"queue":' || to_json(queue) END
           || CASE WHEN reason = '' THEN '' ELSE ',"reason":' || to_json(reason) END || coalesce(',"duration":' || duration, '') || '}',
           ',') || ']', $9
  FROM kept HAVING count(*) > 0)
SELECT id FROM kept;

-- add_attempts: remember attempts that another follows
INSERT INTO mainspring.attempts (run_id, attempt, token, worker, outcome, started_at, finished_at, reason, error)
SELECT * FROM unnest($1::text[], $2::integer[], $3::bigint[], $4::text[], $5::text[], $6::bigint[], $7::bigint[], $8::text[], $9::text[]);

-- back_to_pending: give running runs back to the queue, due after a delay that begins now, by the server's own clock
UPDATE mainspring.runs AS r
SET state = 'pending', reason = e.reason, due_at = greatest(r.due_at, (SELECT mainspring.store_now($6)) + e.delay),
    attempt = r.attempt + e.attempts, losses = r.losses + e.losses, special = r.special OR e.losses > 0, worker = NULL, claimed_until = NULL,
    started_at = NULL
FROM unnest($1::text[], $2::text[], $3::bigint[], $4::integer[], $5::integer[]) AS e (id, reason, delay, attempts, losses)
WHERE r.id = ANY ($1) AND r.id = e.id;

-- reported: which of these attempts have already been recorded
SELECT run_id, token FROM mainspring.attempts WHERE run_id = ANY ($1::text[]) AND finished_at >= $2 AND outcome <> 'lost'
UNION ALL
SELECT id, token FROM mainspring.history WHERE id = ANY ($1::text[]) AND finished_at >= $2 AND outcome <> 'lost';

-- request_cancel: ask for the end of a running run
UPDATE mainspring.runs
SET cancel_requested_at = coalesce(cancel_requested_at, $2), cancel_reason = CASE WHEN cancel_requested_at IS NULL THEN $3 ELSE cancel_reason END
WHERE id = $1 AND state = 'running' RETURNING namespace, job_id, job, task, worker;

-- dependants: which runs wait for which of these, up to a number
SELECT upstream_id, run_id FROM mainspring.edges WHERE upstream_id = ANY ($1::text[]) LIMIT $2;

-- take_edges: what runs that are locked waited for, of these
DELETE FROM mainspring.edges WHERE upstream_id = ANY ($1::text[]) AND run_id = ANY ($2::text[]) RETURNING upstream_id, run_id, "when", on_failure;

-- postpone_dependants: runs have ended, and some that waited for them are not judged yet
INSERT INTO mainspring.ended_upstreams (run_id, state) SELECT * FROM unnest($1::text[], $2::text[]) ON CONFLICT DO NOTHING;

-- take_ended_upstreams: what was postponed and no other transaction takes on, up to a number
DELETE FROM mainspring.ended_upstreams WHERE run_id = ANY (ARRAY(
  SELECT run_id FROM mainspring.ended_upstreams LIMIT $1 FOR UPDATE SKIP LOCKED)) RETURNING run_id, state;

-- drop_edges: what these runs waited for, when they no longer do
DELETE FROM mainspring.edges WHERE run_id = ANY ($1::text[]) RETURNING run_id;

-- wait_less: count down what runs wait for; at nothing they are pending. The state is compared in a way that no index has: runs are found by id
UPDATE mainspring.runs AS r SET waits_for = r.waits_for - e.less, state = CASE WHEN r.waits_for <= e.less THEN 'pending' ELSE 'blocked' END
FROM unnest($1::text[], $2::integer[]) AS e (id, less)
WHERE r.id = ANY ($1) AND r.id = e.id AND r.state || '' = 'blocked' AND r.waits_for > 0;

-- depend_less: the same of runs whose upstreams ended; and whether they depend on no other
UPDATE mainspring.runs AS r SET waits_for = r.waits_for - e.less, state = CASE WHEN r.waits_for <= e.less THEN 'pending' ELSE 'blocked' END
FROM unnest($1::text[], $2::integer[]) AS e (id, less)
WHERE r.id = ANY ($1) AND r.id = e.id AND r.state || '' = 'blocked' AND r.waits_for > 0
RETURNING r.id, r.namespace, r.job_id, r.job, r.task, r.fire_at, NOT EXISTS (SELECT FROM mainspring.edges AS d WHERE d.run_id = r.id);

-- lock_lines: a transaction that touches lines locks them until its end; all transactions in the same order
SELECT count(pg_advisory_xact_lock(key)) FROM (
  SELECT DISTINCT hashtextextended(namespace || '/' || name, 0) AS key FROM unnest($1::text[], $2::text[]) AS l (namespace, name)
  ORDER BY key OFFSET 0) AS keys;

-- lock_lines_of: the same for the lines in which runs stand; how many
SELECT count(pg_advisory_xact_lock(key)) FROM (
  SELECT DISTINCT hashtextextended(namespace || '/' || name, 0) AS key FROM mainspring.lines WHERE run_id = ANY ($1::text[])
  ORDER BY key OFFSET 0) AS keys;

-- leave_lines: runs give up their places in all lines
DELETE FROM mainspring.lines WHERE run_id = ANY ($1::text[]) RETURNING run_id, namespace, name, seq;

-- leave_line: a run gives up its place in one
DELETE FROM mainspring.lines WHERE run_id = $1 AND name = $2;

-- waiting_in_line: those that still wait in a line, until a place, up to a number
SELECT run_id FROM mainspring.lines WHERE namespace = $1 AND name = $2 AND NOT granted AND seq <= $3 ORDER BY seq LIMIT $4;

-- last_in_line: the place of the run that came last
SELECT max(seq) FROM mainspring.lines WHERE namespace = $1 AND name = $2;

-- keep_place: a run that has ended stays in a line that it stops
INSERT INTO mainspring.lines (namespace, name, seq, run_id, capacity, granted) VALUES ($1, $2, $3, $4, 1, true);

-- stop_line: not all that wait in a line have ended with a run
INSERT INTO mainspring.stopped_lines (run_id, namespace, name, until_seq) VALUES ($1, $2, $3, $4);

-- stopped_line: a line that a run stops and that no other transaction takes on
SELECT run_id, namespace, name, until_seq FROM mainspring.stopped_lines LIMIT 1 FOR UPDATE SKIP LOCKED;

-- forget_stop: all that waited in a line have ended with a run
DELETE FROM mainspring.stopped_lines WHERE run_id = $1 AND name = $2;

-- grant_lines: admit as many waiting runs to each line as it has free slots, in order, at most 100
UPDATE mainspring.lines SET granted = true WHERE ctid = ANY (ARRAY(
  SELECT waiting.place FROM (
    SELECT l.place, bool_and(taken.count + l.number - 1 < l.capacity) OVER (PARTITION BY asked.namespace, asked.name ORDER BY l.number) AS enters
    FROM unnest($1::text[], $2::text[]) AS asked (namespace, name)
    CROSS JOIN LATERAL (
      SELECT ctid AS place, capacity, row_number() OVER (ORDER BY seq) AS number FROM mainspring.lines
      WHERE namespace = asked.namespace AND name = asked.name AND NOT granted ORDER BY seq LIMIT 100) AS l
    CROSS JOIN LATERAL (
      SELECT count(*) FROM mainspring.lines WHERE namespace = asked.namespace AND name = asked.name AND granted) AS taken
  ) AS waiting WHERE enters))
RETURNING run_id;

-- leave_gates: runs give up their places at gates; those that then have room, and how much
UPDATE mainspring.gates SET used = greatest(used - coalesce(($3::jsonb -> name)::integer, 0), 0)
WHERE namespace = $1 AND name = ANY (ARRAY(
  SELECT name FROM mainspring.gates WHERE namespace = $1 AND name = ANY ($2::text[]) ORDER BY name FOR UPDATE))
RETURNING name, capacity - used;

-- promote_at_gates: as many waiting runs as gates have room for become pending, best first. Runs that another transaction is ending are passed over.
UPDATE mainspring.runs SET state = 'pending', blocked_on = NULL, reason = '' WHERE id = ANY (ARRAY(
  SELECT r.id FROM unnest($2::text[], $3::integer[]) AS gate (name, room)
  CROSS JOIN LATERAL (
    SELECT id FROM mainspring.runs WHERE blocked_on = gate.name AND namespace = $1
    ORDER BY priority, due_at, seq LIMIT gate.room FOR UPDATE SKIP LOCKED) AS r));

-- end_firings: what the runs of firings came to
UPDATE mainspring.firings SET outcome = $1, reason = $2, finished_at = $3 WHERE ctid = ANY (ARRAY(
  SELECT f.place FROM unnest($4::text[], $5::bigint[], $6::text[], $7::integer[]) AS e (job_id, fire_at, region, idx)
  CROSS JOIN LATERAL (
    SELECT ctid AS place FROM mainspring.firings AS f
    WHERE f.job_id = e.job_id AND f.fire_at = e.fire_at AND f.region = e.region AND f.idx = e.idx FOR UPDATE) AS f));

-- downstream_jobs: the jobs that fire after these
SELECT upstream_id, job_id FROM mainspring.upstreams WHERE upstream_id = ANY ($1::text[]) ORDER BY upstream_id, job_id;

-- lock_firings: one transaction at a time combines the outcomes of a firing's runs, and sees those that ended before
SELECT count(pg_advisory_xact_lock(key)) FROM (
  SELECT DISTINCT hashtextextended(job_id || '@' || fire_at, 1) AS key FROM unnest($1::text[], $2::bigint[]) AS f (job_id, fire_at)
  ORDER BY key OFFSET 0) AS keys;

-- note_upstream: an upstream firing has ended; one that failed before and now succeeded counts as new
UPDATE mainspring.upstreams
SET consumed_at = CASE WHEN consumed_at = $1 AND latest_outcome <> 'succeeded' AND $2 = 'succeeded' THEN $1 - 1 ELSE consumed_at END,
    latest_at = $1, latest_outcome = $2
WHERE upstream_id = $3 AND latest_at <= $1 AND NOT (latest_at = $1 AND latest_outcome = $2);

-- trigger_of: the trigger of a job, and what events say of the job
SELECT "trigger", namespace, name, task FROM mainspring.jobs WHERE id = $1;

-- make_due: an `after` job is due now
UPDATE mainspring.jobs SET next_fire_at = greatest($1, coalesce(last_fire_at + 1, 0)) WHERE id = $2 AND next_fire_at IS NULL;
