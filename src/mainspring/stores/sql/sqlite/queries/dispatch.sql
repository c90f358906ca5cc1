-- {heads}: where pending runs wait, from one line of the index to the next: runs of the future and long lines cost nothing
heads (seq) AS (
  SELECT (SELECT seq FROM runs WHERE state = 'pending' ORDER BY namespace, queue, region, priority LIMIT 1)
  UNION ALL
  SELECT (SELECT n.seq FROM runs AS n
          WHERE n.state = 'pending' AND (n.namespace, n.queue, n.region, n.priority) > (h.namespace, h.queue, h.region, h.priority)
          ORDER BY n.namespace, n.queue, n.region, n.priority LIMIT 1)
  FROM heads JOIN runs AS h ON h.seq = heads.seq
)

-- lines: where pending runs wait, but in paused queues
WITH RECURSIVE {heads}
SELECT h.namespace, h.queue, h.region, h.priority FROM heads JOIN runs AS h ON h.seq = heads.seq
WHERE NOT EXISTS (SELECT 1 FROM paused_queues AS p WHERE p.namespace = h.namespace AND p.queue = h.queue);

-- due: the due runs of a line, longest due first
SELECT id, token, namespace, queue, region, priority, due_at, coalesce(key, job_id, '') FROM runs
WHERE state = 'pending' AND namespace = ?1 AND queue = ?2 AND region = ?3 AND priority = ?4 AND due_at <= ?5
ORDER BY due_at, seq LIMIT ?6;

-- next: when the next run of a line is due
SELECT min(due_at) FROM runs
WHERE state = 'pending' AND namespace = ?1 AND queue = ?2 AND region = ?3 AND priority = ?4 AND due_at > ?5;

-- delivered: those of some runs that a worker may have. `+` leaves the index of ids: the others lead to every run of the queue
SELECT id, token, priority, due_at, seq, special FROM runs
WHERE id IN (SELECT value FROM json_each(?1)) AND state = 'pending' AND +namespace = ?2 AND due_at <= ?3
  AND +task IN (SELECT value FROM json_each(?4)) AND queue IN (SELECT value FROM json_each(?5)) AND region IN (SELECT value FROM json_each(?6));

-- backlog: due runs that no worker has taken, by namespace, queue, region and priority: how many (counted up to a bound), and since when.
WITH RECURSIVE {heads}
SELECT h.namespace, h.queue, h.region, h.priority,
       (SELECT count(*) FROM (SELECT 1 FROM runs AS d
                              WHERE d.state = 'pending' AND d.namespace = h.namespace AND d.queue = h.queue AND d.region = h.region
                                AND d.priority = h.priority AND d.due_at <= ?1 LIMIT ?2)),
       (SELECT max(d.due_at, d.created_at) FROM runs AS d
        WHERE d.state = 'pending' AND d.namespace = h.namespace AND d.queue = h.queue AND d.region = h.region AND d.priority = h.priority
        ORDER BY d.due_at LIMIT 1)
FROM heads JOIN runs AS h ON h.seq = heads.seq;
