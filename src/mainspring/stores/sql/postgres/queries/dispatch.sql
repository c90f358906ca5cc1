-- {heads}: where pending runs wait, from one line of the index to the next: runs of the future and long lines cost nothing
heads AS (
  (SELECT namespace, queue, region, priority FROM mainspring.runs WHERE state = 'pending'
   ORDER BY namespace, queue, region, priority LIMIT 1)
  UNION ALL
  SELECT n.* FROM heads AS h CROSS JOIN LATERAL (
    SELECT namespace, queue, region, priority FROM mainspring.runs AS r
    WHERE r.state = 'pending' AND (r.namespace, r.queue, r.region, r.priority) > (h.namespace, h.queue, h.region, h.priority)
    ORDER BY namespace, queue, region, priority LIMIT 1) AS n
)

-- due: the due runs of each line, longest due first, up to a limit for each, and when the next of it is due
WITH RECURSIVE {heads}
SELECT d.id, d.token, h.namespace, h.queue, h.region, h.priority, d.due_at, d.order_key,
       (SELECT n.due_at FROM mainspring.runs AS n
        WHERE n.state = 'pending' AND n.namespace = h.namespace AND n.queue = h.queue AND n.region = h.region AND n.priority = h.priority
          AND n.due_at > $1 ORDER BY n.due_at LIMIT 1) AS next_due
FROM heads AS h LEFT JOIN LATERAL (
  SELECT id, token, due_at, coalesce(key, job_id, '') AS order_key FROM mainspring.runs AS r
  WHERE r.state = 'pending' AND r.namespace = h.namespace AND r.queue = h.queue AND r.region = h.region AND r.priority = h.priority
    AND r.due_at <= $1 ORDER BY r.due_at, r.seq LIMIT $2) AS d ON true
WHERE NOT EXISTS (SELECT FROM mainspring.paused_queues AS p WHERE p.namespace = h.namespace AND p.queue = h.queue);

-- claim_delivered: the claim of those of some runs that a worker may have, as one statement, as in work.sql: claim_plain. If one that needs
-- special is among them, none is taken, and it is the answer. The state is looked at in a way that no index has: they are found by their ids.
-- An array of unknown length: for one id, the server would find a plan of its own cheaper each time, and make it, which takes longer than the claim
WITH found AS MATERIALIZED (
  SELECT ctid AS spot, id, special
  FROM mainspring.runs
  WHERE id = ANY (ARRAY(SELECT unnest($2::text[]))) AND state || '' = 'pending' AND token = ($3::jsonb -> id)::bigint AND namespace = $4
    AND due_at <= $5 AND task = ANY ($6::text[]) AND queue = ANY ($7::text[]) AND region = ANY ($8::text[])
    AND queue <> ALL (ARRAY(SELECT p.queue FROM mainspring.paused_queues AS p WHERE p.namespace = $4))
    AND (expires_at IS NULL OR expires_at >= $5 OR attempt > 0)
  FOR UPDATE SKIP LOCKED),
look AS MATERIALIZED (SELECT mainspring.store_now($1) + $10::bigint AS until),
taken AS (
  UPDATE mainspring.runs
  SET state = 'running', token = token + 1, worker = $9, claimed_until = (SELECT until FROM look), started_at = greatest($5, due_at),
      reason = ''
  WHERE ctid = ANY (ARRAY(SELECT spot FROM found WHERE NOT EXISTS (SELECT FROM found WHERE special)))
  RETURNING id, token, task, args, options, attempt, losses, priority, due_at, namespace, job, fire_at, idx, claimed_until, job_id, started_at, queue),
logged AS (
  INSERT INTO mainspring.outbox (count, events, created_at)
  SELECT count(*), '[' || string_agg(
           '{"kind":"run.running","at":' || started_at || ',"namespace":' || to_json(namespace) || ',"run_id":' || to_json(id)
           || coalesce(',"job_id":' || to_json(job_id), '') || coalesce(',"job":' || to_json(job), '') || ',"task":' || to_json(task)
           || ',"worker":' || to_json($9::text) || coalesce(',"fire_at":' || fire_at, '') || ',"attempt":' || attempt + 1 || ',"priority":' || priority
           || ',"late":' || started_at - due_at || CASE WHEN queue = 'default' THEN '}' ELSE ',"queue":' || to_json(queue) || '}' END, ',')
         || ']', $5
  FROM taken HAVING count(*) > 0)
SELECT t.id, t.token, t.task, t.args, t.options, t.attempt, t.losses, t.priority, t.due_at, t.namespace, t.job, t.fire_at, t.idx,
       t.claimed_until, f.special
FROM found AS f LEFT JOIN taken AS t ON t.id = f.id
WHERE f.special OR t.id IS NOT NULL;

-- delivered: those of some runs that a worker may have, locked; columns as in work.sql: candidates
SELECT r.id, r.token + 1 AS token, r.task, r.args, r.options, r.attempt, r.losses, r.priority, r.due_at, r.namespace, r.job, r.fire_at,
       r.idx, (SELECT mainspring.store_now($1)) AS store_now, r.job_id, r.seq, r.special, r.gates, r.queue
FROM mainspring.runs AS r
WHERE r.id = ANY ($2::text[]) AND r.state = 'pending' AND r.namespace = $3 AND r.due_at <= $4 AND r.task = ANY ($5::text[])
  AND r.queue = ANY ($6::text[]) AND r.queue <> ALL (ARRAY(SELECT p.queue FROM mainspring.paused_queues AS p WHERE p.namespace = $3))
  AND r.region = ANY ($7::text[]) AND (r.expires_at IS NULL OR r.expires_at >= $4 OR r.attempt > 0)
FOR UPDATE SKIP LOCKED;

-- backlog: due runs that no worker has taken, by namespace, queue, region and priority: how many (counted up to a bound), and since when.
WITH RECURSIVE {heads}
SELECT h.namespace, h.queue, h.region, h.priority,
       (SELECT count(*) FROM (SELECT FROM mainspring.runs AS d
                              WHERE d.state = 'pending' AND d.namespace = h.namespace AND d.queue = h.queue AND d.region = h.region
                                AND d.priority = h.priority AND d.due_at <= $1 LIMIT $2) AS due),
       (SELECT greatest(d.due_at, d.created_at) FROM mainspring.runs AS d
        WHERE d.state = 'pending' AND d.namespace = h.namespace AND d.queue = h.queue AND d.region = h.region AND d.priority = h.priority
        ORDER BY d.due_at LIMIT 1)
FROM heads AS h;
