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
