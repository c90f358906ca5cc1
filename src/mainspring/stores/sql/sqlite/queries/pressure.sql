-- backlog: due runs that no worker has taken, by namespace, queue, region and priority: how many (counted up to a bound), and since when.
-- From one line of the index to the next, so that runs of the future and long lines cost nothing
WITH RECURSIVE heads (seq) AS (
  SELECT (SELECT seq FROM runs WHERE state = 'pending' ORDER BY namespace, queue, region, priority LIMIT 1)
  UNION ALL
  SELECT (SELECT n.seq FROM runs AS n
          WHERE n.state = 'pending' AND (n.namespace, n.queue, n.region, n.priority) > (h.namespace, h.queue, h.region, h.priority)
          ORDER BY n.namespace, n.queue, n.region, n.priority LIMIT 1)
  FROM heads JOIN runs AS h ON h.seq = heads.seq
)
SELECT h.namespace, h.queue, h.region, h.priority,
       (SELECT count(*) FROM (SELECT 1 FROM runs AS d
                              WHERE d.state = 'pending' AND d.namespace = h.namespace AND d.queue = h.queue AND d.region = h.region
                                AND d.priority = h.priority AND d.due_at <= ?1 LIMIT ?2)),
       (SELECT max(d.due_at, d.created_at) FROM runs AS d
        WHERE d.state = 'pending' AND d.namespace = h.namespace AND d.queue = h.queue AND d.region = h.region AND d.priority = h.priority
        ORDER BY d.due_at LIMIT 1)
FROM heads JOIN runs AS h ON h.seq = heads.seq;

-- hasty_runs: due runs that wait for others, but not under pressure
SELECT r.id, r.namespace, r.task, r.job_id, r.job, r.fire_at
FROM (SELECT DISTINCT run_id FROM edges) AS e CROSS JOIN runs AS r ON r.id = e.run_id
WHERE r.state = 'blocked' AND r.due_at <= ?1 AND instr(r.options, '"under_pressure":"run"') > 0
  AND (?3 IS NULL OR r.namespace = ?3) LIMIT ?2;

-- hurry_run: why a run does not wait
UPDATE runs SET reason = ?1 WHERE id = ?2;

-- hasty_jobs: `after` jobs that wait for the rest of their upstreams, but not under pressure
SELECT j.id, j.namespace, j.name, j.task
FROM (SELECT DISTINCT job_id FROM upstreams WHERE latest_at > consumed_at) AS u CROSS JOIN jobs AS j ON j.id = u.job_id
WHERE j.next_fire_at IS NULL AND j.paused_at IS NULL AND instr(j.options, '"under_pressure":"run"') > 0
  AND (?2 IS NULL OR j.namespace = ?2) LIMIT ?1;

-- least: due runs of a namespace, of low priority, that were never tried, least important first
SELECT id FROM runs WHERE state = 'pending' AND namespace = ?4 AND priority >= ?1 AND due_at <= ?2 AND attempt = 0
ORDER BY priority DESC LIMIT ?3;
