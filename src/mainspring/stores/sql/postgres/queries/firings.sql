-- term: the number of the newest term; locked, so that no other term begins until this transaction has ended
SELECT number FROM mainspring.terms WHERE name = $1 FOR SHARE;

-- move_on: move jobs past the instants of their plans, those that are still as they were planned from. Locked in order of id; the array
-- besides the join keeps a prepared plan from reading all jobs
WITH held AS MATERIALIZED (SELECT id FROM mainspring.jobs WHERE id = ANY ($1) ORDER BY id FOR UPDATE)
UPDATE mainspring.jobs AS j SET next_fire_at = plan.next_fire_at, fired = j.fired + plan.fired,
                                last_fire_at = greatest(j.last_fire_at, plan.last_fire_at)
FROM unnest($1::text[], $2::integer[], $3::bigint[], $4::bigint[], $5::integer[], $6::bigint[])
     AS plan (id, version, expected, next_fire_at, fired, last_fire_at)
WHERE j.id = plan.id AND j.id = ANY ($1) AND (SELECT count(*) FROM held) >= 0
  AND j.version = plan.version AND j.next_fire_at IS NOT DISTINCT FROM plan.expected AND j.paused_at IS NULL
RETURNING j.id;

-- fire_plain: apply plans of one instant, in order of job, whose one run waits for nothing but its time: the definition is here already, and
-- need not travel. An instant that the ledger has is not among them, nor can it come in while the job is held. By place: that is how a
-- plan made while there were few jobs does not come to read all of them; which jobs moved on
WITH held AS MATERIALIZED (
  SELECT j.place, plan.* FROM unnest($1::text[], $2::integer[], $3::bigint[], $4::bigint[], $5::text[], $6::bigint[], $7::bigint[], $8::text[])
       AS plan (id, version, fire_at, next_fire_at, run_id, due_at, expires_at, region)
  CROSS JOIN LATERAL (
    SELECT ctid AS place FROM mainspring.jobs
    WHERE id = plan.id AND version = plan.version AND next_fire_at IS NOT DISTINCT FROM plan.fire_at AND paused_at IS NULL FOR UPDATE) AS j
  WHERE NOT EXISTS (SELECT FROM mainspring.firings AS f WHERE f.job_id = plan.id AND f.fire_at = plan.fire_at OFFSET 0)),
moved AS (
  UPDATE mainspring.jobs AS j
  SET next_fire_at = held.next_fire_at, fired = j.fired + 1, last_fire_at = greatest(j.last_fire_at, held.fire_at)
  FROM held WHERE j.ctid = held.place
  RETURNING j.id, j.namespace, j.name, j.queue, j.task, j.args, j.options, j.priority, held.fire_at, held.run_id, held.due_at,
            held.expires_at, held.region),
recorded AS (
  INSERT INTO mainspring.firings (job_id, fire_at, region, kind, outcome, run_id, created_at)
  SELECT id, fire_at, region, 'scheduled', 'fired', run_id, $9 FROM moved ON CONFLICT DO NOTHING),
queued AS (
  INSERT INTO mainspring.runs (id, namespace, queue, region, task, args, options, state, priority, special, due_at, expires_at, job_id, job,
                               fire_at, created_at)
  SELECT run_id, namespace, queue, region, task, args, options, 'pending', priority, expires_at IS NOT NULL, due_at, expires_at, id, name,
         fire_at, $9 FROM moved ON CONFLICT (id) DO NOTHING)
SELECT id FROM moved;

-- fired_before: do not count instants that were in the ledger already
UPDATE mainspring.jobs SET fired = fired - $2 WHERE id = $1;

-- fired_by_hand: remember when a job fired last
UPDATE mainspring.jobs SET last_fire_at = greatest(last_fire_at, $2) WHERE id = $1;

-- record: write rows of the ledger, but for instants that have one; which were written
INSERT INTO mainspring.firings (job_id, fire_at, region, idx, kind, outcome, reason, run_id, request_id, last_at, count, created_at,
                                finished_at)
SELECT * FROM unnest($1::text[], $2::bigint[], $3::text[], $4::integer[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[],
                     $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[])
ON CONFLICT DO NOTHING RETURNING job_id, fire_at, region, idx;

-- is_recorded: whether an instant of a job is in the ledger
SELECT 1 FROM mainspring.firings WHERE job_id = $1 AND fire_at = $2 LIMIT 1;

-- unfinished: runs of jobs that have not ended, oldest first
SELECT job_id, CASE WHEN strpos(options, '"home_region":') > 0 THEN options::json ->> 'home_region' ELSE region END, id
FROM mainspring.runs WHERE job_id = ANY ($1) ORDER BY seq;

-- outcomes: what the runs of one firing came to so far
SELECT outcome FROM mainspring.firings WHERE job_id = $1 AND fire_at = $2;

-- consume: remember which upstream firing was used
UPDATE mainspring.upstreams SET consumed_at = $3 WHERE job_id = $1 AND upstream_id = $2;

-- by_request: the first row of the firing that a request made
SELECT job_id, fire_at, region, idx, kind, outcome, reason, run_id, request_id, last_at, count, created_at, finished_at
FROM mainspring.firings WHERE job_id = $1 AND request_id = $2 ORDER BY region, idx LIMIT 1;

-- list: the ledger of a job, newest first, of one region or of all
SELECT job_id, fire_at, region, idx, kind, outcome, reason, run_id, request_id, last_at, count, created_at, finished_at
FROM mainspring.firings WHERE job_id = $1 AND fire_at >= $2 AND fire_at < $3 AND ($5::text IS NULL OR region = $5)
ORDER BY fire_at DESC, region, idx LIMIT $4;

-- newest: the first rows of the ledger of each of some jobs, the newest first
SELECT f.job_id, f.fire_at, f.region, f.idx, f.kind, f.outcome, f.reason, f.run_id, f.request_id, f.last_at, f.count, f.created_at, f.finished_at
FROM unnest($1::text[]) AS asked (job_id)
CROSS JOIN LATERAL (
  SELECT * FROM mainspring.firings AS n WHERE n.job_id = asked.job_id ORDER BY n.fire_at DESC, n.region, n.idx LIMIT $2) AS f
ORDER BY f.job_id, f.fire_at DESC, f.region, f.idx;

-- missed: missed instants of the jobs of a namespace, recorded since an instant, newest first, among the latest rows without a run
SELECT j.name, f.job_id, f.fire_at, f.region, f.idx, f.kind, f.outcome, f.reason, f.run_id, f.request_id, f.last_at, f.count, f.created_at, f.finished_at
FROM (SELECT * FROM mainspring.firings WHERE run_id IS NULL AND created_at >= $1 ORDER BY created_at DESC LIMIT $2) AS f
CROSS JOIN LATERAL (SELECT name, namespace FROM mainspring.jobs WHERE id = f.job_id OFFSET 0) AS j
WHERE f.outcome = 'missed' AND j.namespace = $3
ORDER BY f.created_at DESC;

-- of_run: the row of the ledger whose run has an id, with its job, among the first jobs of a namespace. Each is searched by its key, between the
-- instants that the id stands for: a firing pays for no index
SELECT j.name, f.job_id, f.fire_at, f.region, f.idx, f.kind, f.outcome, f.reason, f.run_id, f.request_id, f.last_at, f.count, f.created_at, f.finished_at
FROM (SELECT id, name FROM mainspring.jobs WHERE namespace = $1 ORDER BY name LIMIT $5) AS j
CROSS JOIN LATERAL (
  SELECT * FROM mainspring.firings AS n WHERE n.job_id = j.id AND n.fire_at >= $3 AND n.fire_at < $4 AND n.run_id = $2 OFFSET 0) AS f
LIMIT 1;

-- recede: let rows for stretches of instants begin after their first one, which is about to have a row of its own
UPDATE mainspring.firings SET fire_at = fire_at + 1, count = greatest(count - 1, 0)
WHERE job_id = $1 AND fire_at = ANY ($2) AND last_at > fire_at AND outcome IN ('missed', 'skipped') AND run_id IS NULL
  AND request_id IS NULL;

-- make_room: take instants out of the ledger that came to nothing
DELETE FROM mainspring.firings
WHERE job_id = $1 AND fire_at = ANY ($2) AND outcome IN ('missed', 'skipped') AND run_id IS NULL AND request_id IS NULL;

-- unknown_tasks: those of some tasks (namespace, name) that no worker has known lately, though some worker of the namespace lives
SELECT asked.namespace, asked.task FROM unnest($1::text[], $2::text[]) AS asked (namespace, task)
WHERE EXISTS (SELECT FROM mainspring.workers AS w WHERE w.namespace = asked.namespace AND w.state = 'active' AND w.heartbeat_at > $3)
  AND NOT EXISTS (SELECT FROM mainspring.workers AS w
                  WHERE w.namespace = asked.namespace AND w.heartbeat_at > $4 AND asked.task = ANY (w.tasks));

-- waiting_jobs: those of some jobs of which a run waits for a worker
SELECT DISTINCT job_id FROM mainspring.runs WHERE job_id = ANY ($1::text[]) AND state = 'pending';
