-- replication: how many servers follow this one, and how many microseconds the furthest behind is. A role without pg_monitor sees none
SELECT count(*), coalesce(max(extract(epoch FROM replay_lag) * 1000000), 0)::bigint FROM pg_stat_replication WHERE state = 'streaming';

-- hasty_runs: due runs that wait for others, but not under pressure
SELECT r.id FROM (SELECT DISTINCT run_id FROM mainspring.edges) AS e JOIN mainspring.runs AS r ON r.id = e.run_id
WHERE r.state = 'blocked' AND r.due_at <= $1 AND strpos(r.options, '"under_pressure":"run"') > 0
  AND ($3::text IS NULL OR r.namespace = $3) LIMIT $2;

-- hurry_runs: why runs do not wait
UPDATE mainspring.runs SET reason = $2 WHERE id = ANY ($1::text[]);

-- hasty_jobs: `after` jobs that wait for the rest of their upstreams, but not under pressure
SELECT j.id, j.namespace, j.name, j.task
FROM (SELECT DISTINCT job_id FROM mainspring.upstreams WHERE latest_at > consumed_at) AS u JOIN mainspring.jobs AS j ON j.id = u.job_id
WHERE j.next_fire_at IS NULL AND j.paused_at IS NULL AND strpos(j.options, '"under_pressure":"run"') > 0
  AND ($2::text IS NULL OR j.namespace = $2) ORDER BY j.id LIMIT $1;

-- least: due runs of a namespace, of low priority, that were never tried, least important first
SELECT id FROM mainspring.runs WHERE state = 'pending' AND namespace = $4 AND priority >= $1 AND due_at <= $2 AND attempt = 0
ORDER BY priority DESC LIMIT $3;
