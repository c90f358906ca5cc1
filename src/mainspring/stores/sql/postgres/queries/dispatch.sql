-- due: the due runs of each line, longest due first, at most so many of each, and when the next of it is due. From one line of the index to
-- the next, as in pressure.sql
WITH RECURSIVE heads AS (
  (SELECT namespace, queue, region, priority FROM mainspring.runs WHERE state = 'pending'
   ORDER BY namespace, queue, region, priority LIMIT 1)
  UNION ALL
  SELECT n.* FROM heads AS h CROSS JOIN LATERAL (
    SELECT namespace, queue, region, priority FROM mainspring.runs AS r
    WHERE r.state = 'pending' AND (r.namespace, r.queue, r.region, r.priority) > (h.namespace, h.queue, h.region, h.priority)
    ORDER BY namespace, queue, region, priority LIMIT 1) AS n
)
SELECT d.id, d.token, h.namespace, h.queue, h.region, h.priority, d.due_at,
       (SELECT n.due_at FROM mainspring.runs AS n
        WHERE n.state = 'pending' AND n.namespace = h.namespace AND n.queue = h.queue AND n.region = h.region AND n.priority = h.priority
          AND n.due_at > $1 ORDER BY n.due_at LIMIT 1)
FROM heads AS h LEFT JOIN LATERAL (
  SELECT id, token, due_at FROM mainspring.runs AS r
  WHERE r.state = 'pending' AND r.namespace = h.namespace AND r.queue = h.queue AND r.region = h.region AND r.priority = h.priority
    AND r.due_at <= $1 ORDER BY r.due_at, r.seq LIMIT $2) AS d ON true;

-- delivered: those of some runs that a worker may have, locked; columns as in work.sql: candidates
SELECT r.id, r.token + 1, r.task, r.args, r.options, r.attempt, r.losses, r.priority, r.due_at, r.namespace, r.job, r.fire_at, r.idx,
       (SELECT mainspring.store_now($1)), r.job_id, r.seq, r.care, r.gates
FROM mainspring.runs AS r
WHERE r.id = ANY ($2::text[]) AND r.state = 'pending' AND r.namespace = $3 AND r.due_at <= $4 AND r.task = ANY ($5::text[])
  AND r.queue = ANY ($6::text[]) AND r.region = ANY ($7::text[]) AND (r.expires_at IS NULL OR r.expires_at >= $4 OR r.attempt > 0)
FOR UPDATE SKIP LOCKED;
