-- In queries by id, `claimed_until IS NOT NULL` stands for `state = 'running'`: where a table is all but empty, the latter would make the
-- server read the whole index of running runs, and go on to when there are many.

-- {worker}: the columns of a worker
id, namespace, app, host, pid, queues, regions, tasks, concurrency, running, state, started_at, heartbeat_at, drain_requested_at,
version, pools

-- candidates: due runs of the given places (queue, region, priority, and from where on), longest due first in each, locked; and the
-- server's time. The outer limit is reached before later places are looked at. Places in paused queues are passed over, by an array that is
-- read once: a join could change their order.
SELECT r.id, r.token + 1 AS token, r.task, r.args, r.options, r.attempt, r.losses, r.priority, r.due_at, r.namespace, r.job, r.fire_at,
       r.idx, (SELECT mainspring.store_now($1)) AS store_now, r.job_id, r.seq, r.special, r.gates, place.queue, place.number
FROM unnest($2::text[], $3::text[], $4::smallint[], $5::bigint[], $6::bigint[]) WITH ORDINALITY
     AS place (queue, region, priority, due_from, seq_from, number)
CROSS JOIN LATERAL (
  SELECT id, token, task, args, options, attempt, losses, priority, due_at, namespace, job, fire_at, idx, job_id, seq, special, gates
  FROM mainspring.runs
  WHERE state = 'pending' AND namespace = $7 AND queue = place.queue AND region = place.region AND priority = place.priority
    AND due_at <= $12 AND (due_at <= $8 OR NOT special) AND (due_at, seq) > (place.due_from, place.seq_from) AND task = ANY ($9::text[])
    AND (expires_at IS NULL OR expires_at >= $8 OR attempt > 0)
  ORDER BY due_at, seq LIMIT $10 FOR UPDATE SKIP LOCKED) AS r
WHERE place.queue <> ALL (ARRAY(SELECT p.queue FROM mainspring.paused_queues AS p WHERE p.namespace = $7))
LIMIT $11;

-- claim_plain: the claim of plain runs, as one statement, which is the whole transaction: they are found as by `candidates`,
-- the best of them are taken, with their events. If a special one is among them, none is taken, and it is the answer. They are taken by
-- their places, which is cheaper than by their ids; one that came to another place after this statement began is left for the next. If it
-- comes back short, it says when the next will be due, in a row of its own if nothing was found
WITH found AS MATERIALIZED (
  SELECT r.*, place.number
  FROM unnest($2::text[], $3::text[], $4::smallint[], $5::bigint[], $6::bigint[]) WITH ORDINALITY
       AS place (queue, region, priority, due_from, seq_from, number)
  CROSS JOIN LATERAL (
    SELECT ctid AS spot, id, priority, due_at, seq, special
    FROM mainspring.runs
    WHERE state = 'pending' AND namespace = $7 AND queue = place.queue AND region = place.region AND priority = place.priority
      AND due_at <= $12 AND (due_at <= $8 OR NOT special) AND (due_at, seq) > (place.due_from, place.seq_from) AND task = ANY ($9::text[])
      AND (expires_at IS NULL OR expires_at >= $8 OR attempt > 0)
    ORDER BY due_at, seq LIMIT $10 FOR UPDATE SKIP LOCKED) AS r
  WHERE place.queue <> ALL (ARRAY(SELECT p.queue FROM mainspring.paused_queues AS p WHERE p.namespace = $7))
  LIMIT $11),
held AS MATERIALIZED (SELECT mainspring.store_now($1) + $14::bigint AS until),
taken AS (
  UPDATE mainspring.runs
  SET state = 'running', token = token + 1, worker = $13, claimed_until = (SELECT until FROM held), started_at = greatest($8, due_at),
      reason = ''
  WHERE ctid = ANY (ARRAY(
    SELECT spot FROM found WHERE NOT EXISTS (SELECT FROM found WHERE special) ORDER BY priority * $15::bigint + due_at, seq LIMIT $10))
  RETURNING id, token, task, args, options, attempt, losses, priority, due_at, namespace, job, fire_at, idx, claimed_until, job_id, started_at, queue),
logged AS (
  INSERT INTO mainspring.outbox (count, events, created_at)
  SELECT count(*), '[' || string_agg(
           $16::text || started_at || ',"attempt":' || attempt + 1 || ',"priority":' || priority || ',"late":' || started_at - due_at || ',"run_id":' || to_json(id) || ',"task":' || to_json(task)
           || CASE WHEN job_id IS NULL THEN '}' ELSE
                ',"job_id":' || to_json(job_id) || coalesce(',"job":' || to_json(job), '') || coalesce(',"fire_at":' || fire_at, '')
                || CASE WHEN queue = 'default' THEN '}' ELSE ',"queue":' || to_json(queue) || '}' END END,
           ',') || ']', $8
  FROM taken HAVING count(*) > 0)
SELECT t.id, t.token, t.task, t.args, t.options, t.attempt, t.losses, t.priority, t.due_at, t.namespace, t.job, t.fire_at, t.idx,
       t.claimed_until, t.job_id, f.seq, f.special, f.number,
       CASE WHEN (SELECT count(*) FROM found) < $11 THEN (
         SELECT min(r.due_at)
         FROM unnest($2::text[], $3::text[], $4::smallint[]) AS place (queue, region, priority)
         CROSS JOIN LATERAL (
           SELECT due_at FROM mainspring.runs
           WHERE state = 'pending' AND namespace = $7 AND queue = place.queue AND region = place.region AND priority = place.priority
             AND due_at > $12 AND task = ANY ($9::text[]) AND (expires_at IS NULL OR expires_at >= $8 OR attempt > 0)
           ORDER BY due_at, seq LIMIT 1) AS r
         WHERE place.queue <> ALL (ARRAY(SELECT p.queue FROM mainspring.paused_queues AS p WHERE p.namespace = $7))) END AS next_due
FROM (SELECT) AS always LEFT JOIN (found AS f LEFT JOIN taken AS t ON t.id = f.id) ON f.special OR t.id IS NOT NULL
ORDER BY f.priority * $15::bigint + f.due_at, f.seq;

-- take: claim runs that are locked
UPDATE mainspring.runs
SET state = 'running', token = token + 1, worker = $2, claimed_until = $3, started_at = greatest($4, due_at), reason = ''
WHERE id = ANY (ARRAY(SELECT unnest($1::text[])));

-- earliest: when the first pending run of each place that a worker knows is due
SELECT min(r.due_at)
FROM unnest($1::text[], $2::text[], $3::smallint[], $4::bigint[], $5::bigint[]) AS place (queue, region, priority, due_from, seq_from)
CROSS JOIN LATERAL (
  SELECT due_at FROM mainspring.runs
  WHERE state = 'pending' AND namespace = $6 AND queue = place.queue AND region = place.region AND priority = place.priority
    AND (due_at, seq) > (place.due_from, place.seq_from) AND task = ANY ($8::text[])
    AND (expires_at IS NULL OR expires_at >= $7 OR attempt > 0)
  ORDER BY due_at, seq LIMIT 1) AS r
WHERE place.queue <> ALL (ARRAY(SELECT p.queue FROM mainspring.paused_queues AS p WHERE p.namespace = $6));

-- lock_gates: how many more may enter each gate, until this transaction ends
SELECT name, capacity - used FROM mainspring.gates WHERE namespace = $1 AND name = ANY ($2::text[]) ORDER BY name FOR UPDATE;

-- enter_gates: take places at locked gates
UPDATE mainspring.gates SET used = used + ($3::jsonb -> name)::integer WHERE namespace = $1 AND name = ANY ($2::text[]);

-- block_at_gates: wait for room
UPDATE mainspring.runs AS r SET state = 'blocked', blocked_on = e.gate, reason = 'gate ' || e.gate || ' is full'
FROM unnest($1::text[], $2::text[]) AS e (id, gate) WHERE r.id = ANY ($1) AND r.id = e.id;

-- renew: a worker is alive and keeps its claims; a row without an id says that it is asked to drain
WITH beat AS (
  UPDATE mainspring.workers
  SET heartbeat_at = mainspring.store_now($1), running = $3, state = CASE WHEN state = 'dead' THEN 'active' ELSE state END
  WHERE id = $2
  RETURNING drain_requested_at),
renewed AS (
  UPDATE mainspring.runs SET claimed_until = (SELECT mainspring.store_now($1)) + $6
  WHERE id = ANY (ARRAY(
    SELECT id FROM mainspring.runs
    WHERE id = ANY (ARRAY(SELECT unnest($4::text[]))) AND claimed_until IS NOT NULL AND worker = $2 AND token = ($5::jsonb -> id)::bigint
    ORDER BY id FOR UPDATE))
  RETURNING id, token, cancel_requested_at, cancel_reason)
SELECT id, token, cancel_requested_at, cancel_reason FROM renewed
UNION ALL
SELECT NULL, NULL, drain_requested_at, NULL FROM beat WHERE drain_requested_at IS NOT NULL;

-- cancels: running runs with a request to cancel. Asked for all that a worker holds, again and again, while few or none are
-- to end: so they are looked for among these, and the ids in a way that no index has
SELECT id, cancel_reason FROM mainspring.runs
WHERE cancel_requested_at >= 0 AND claimed_until IS NOT NULL AND id || '' = ANY ($1::text[]);

-- add_logs: keep lines of output
INSERT INTO mainspring.logs (run_id, attempt, at, stream, text)
SELECT * FROM unnest($1::text[], $2::integer[], $3::bigint[], $4::text[], $5::text[]);

-- set_progress: how far runs have come
UPDATE mainspring.runs AS r SET progress = e.fraction, progress_note = e.note
FROM unnest($1::text[], $2::bigint[], $3::double precision[], $4::text[]) AS e (id, token, fraction, note)
WHERE r.id = e.id AND r.token = e.token AND r.claimed_until IS NOT NULL
  AND r.id = ANY (ARRAY(SELECT id FROM mainspring.runs WHERE id = ANY ($1) ORDER BY id FOR UPDATE));

-- register: announce a worker
INSERT INTO mainspring.workers (id, namespace, app, host, pid, queues, regions, tasks, concurrency, running, state, started_at, heartbeat_at,
                                notices, version, pools)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, mainspring.store_now($13), $14, $15, $16)
ON CONFLICT (id) DO UPDATE SET state = excluded.state, running = excluded.running, tasks = excluded.tasks, heartbeat_at = excluded.heartbeat_at,
                               notices = excluded.notices;

-- announced: workers that know something of a task, heard of last first, and what they know
SELECT {worker}, notice::text
FROM mainspring.workers CROSS JOIN LATERAL json_array_elements(notices::json) AS notice
WHERE namespace = $1 AND notice ->> 'name' = $2 ORDER BY heartbeat_at DESC, id LIMIT 200;

-- amend: what is different about runs that were given back
UPDATE mainspring.runs AS r
SET reason = e.reason, options = e.options, priority = coalesce(e.priority, r.priority), special = r.special OR e.gate IS NOT NULL,
    gates = CASE WHEN e.gate IS NULL OR e.gate = ANY (r.gates) THEN r.gates ELSE coalesce(r.gates, '{}') || e.gate END,
    due_at = greatest(r.due_at, (SELECT mainspring.store_now($7)) + e.delay)
FROM unnest($1::text[], $2::text[], $3::text[], $4::smallint[], $5::text[], $6::bigint[]) AS e (id, reason, options, priority, gate, delay)
WHERE r.id = ANY ($1) AND r.id = e.id AND r.state || '' = 'pending';

-- request_drain: ask a live worker to finish what it holds and to end; asked again, it says since when
UPDATE mainspring.workers SET drain_requested_at = coalesce(drain_requested_at, mainspring.store_now($3))
WHERE namespace = $1 AND id = $2 AND state IN ('active', 'draining')
RETURNING {worker};

-- workers: all workers of a namespace
SELECT {worker} FROM mainspring.workers WHERE namespace = $1 ORDER BY id;

-- worker: one of them
SELECT {worker} FROM mainspring.workers WHERE namespace = $1 AND id = $2;
