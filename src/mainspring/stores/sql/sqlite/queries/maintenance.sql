-- expired: running runs whose claim has run out, oldest first
SELECT id FROM runs WHERE state = 'running' AND claimed_until < ? ORDER BY claimed_until LIMIT ?;

-- too_late: runs that were not started in time
SELECT id, expires_at FROM runs WHERE expires_at < ? AND expires_at IS NOT NULL AND state <> 'running' AND attempt = 0 ORDER BY expires_at LIMIT ?;

-- out_of_time: waiting runs whose total timeout has ended
SELECT id, attempt, expires_at, options FROM runs
WHERE json_extract(options, '$.give_up_at') <= ? AND state <> 'running' AND instr(options, '"give_up_at":') > 0
ORDER BY json_extract(options, '$.give_up_at') LIMIT ?;

-- silent: workers that have not been heard of
UPDATE workers SET state = 'dead', running = 0 WHERE state IN ('active', 'draining') AND heartbeat_at < ?1 - ?2 RETURNING id, namespace;

-- stranded: due runs that may leave their region, after a place in their order
SELECT id, namespace, queue, region, task, options, due_at FROM runs
WHERE state = 'pending' AND instr(options, '"region_failover":') > 0 AND due_at <= ?1 AND (due_at, id) > (?2, ?3)
ORDER BY due_at, id LIMIT ?4;

-- live_workers: workers that take work and were heard of lately
SELECT id, namespace, queues, regions, tasks, concurrency, running FROM workers
WHERE state = 'active' AND drain_requested_at IS NULL AND heartbeat_at >= ?1 - ?2;

-- move: a run goes to another region. With a new token: a broker that carries it has to carry it there
UPDATE runs SET region = ?3, options = ?4, reason = ?5, token = token + 1 WHERE id = ?1 AND region = ?2 AND state = 'pending'
RETURNING id, namespace, job_id, job, task, fire_at, reason;

-- waiting_gates: gates with room at which runs wait
SELECT g.namespace, g.name FROM gates AS g
WHERE g.used < g.capacity AND EXISTS (SELECT 1 FROM runs AS r WHERE r.blocked_on = g.name AND r.namespace = g.namespace);

-- old_history: finished runs past their retention, oldest first
SELECT seq, id FROM (SELECT seq, id, finished_at FROM history ORDER BY seq LIMIT ?2) WHERE finished_at < ?1;

-- limited_jobs: jobs with a limit of finished runs
SELECT namespace, name, json_extract(policy, '$.keep_succeeded'), json_extract(policy, '$.keep_failed') FROM jobs INDEXED BY jobs_limited
WHERE json_extract(policy, '$.keep_succeeded') IS NOT NULL OR json_extract(policy, '$.keep_failed') IS NOT NULL;

-- beyond_limit: a job's finished runs of one state beyond its limit
SELECT seq, id FROM history WHERE namespace = ? AND job = ? AND state = ? ORDER BY id DESC LIMIT ? OFFSET ?;

-- forget_history: delete a finished run
DELETE FROM history WHERE seq = ?;

-- forget_attempts: delete a finished run's attempts
DELETE FROM attempts WHERE run_id = ?;

-- forget_logs: delete a finished run's output
DELETE FROM logs WHERE run_id = ?;

-- sum_up_to: how many rows to sum up next, the last of them, and the last that was
SELECT count(*), max(seq), (SELECT seq FROM summed_up) FROM (SELECT seq FROM history WHERE seq > (SELECT seq FROM summed_up) ORDER BY seq LIMIT ?);

-- tally: count what has ended since
INSERT INTO tallies SELECT namespace, state, count(*) FROM history NOT INDEXED WHERE seq > ? AND seq <= ? GROUP BY 1, 2
ON CONFLICT (namespace, state) DO UPDATE SET count = count + excluded.count;

-- keep_tails: keep what people type of the ids of what has ended since
INSERT INTO tails SELECT seq >> 12, substr(id, -8), seq FROM history NOT INDEXED WHERE seq > ? AND seq <= ? ORDER BY 1, 2;

-- keep_tags: keep the tags of what has ended since
INSERT INTO history_tags SELECT DISTINCT h.namespace, tag.value, h.id FROM history AS h NOT INDEXED, json_each(h.options, '$.tags') AS tag
WHERE h.seq > ? AND h.seq <= ? AND instr(h.options, '"tags":[') > 0;

-- summed_up: up to here
UPDATE summed_up SET seq = ?;

-- forget_firings: delete old rows of the ledger, but none whose run has not ended
DELETE FROM firings WHERE (job_id, fire_at, region, idx) IN (
  SELECT job_id, fire_at, region, idx FROM firings WHERE created_at < ?1 AND outcome <> 'fired' ORDER BY created_at LIMIT ?2);

-- forget_events: delete public events past their retention, looking only at the first; later (?3) also those that some listener has not heard
DELETE FROM outbox WHERE position IN (
  SELECT position FROM (SELECT position, count, created_at FROM outbox ORDER BY position LIMIT ?2)
  WHERE created_at < ?1 AND position <= (SELECT value FROM counters WHERE name = 'event_position')
    AND (created_at < ?3 OR NOT EXISTS (SELECT 1 FROM counters WHERE name LIKE 'heard:%' AND value < position + count)));

-- forget_submissions: delete answers that have expired, unless their runs still wait to start
DELETE FROM submissions WHERE (namespace, key) IN (
  SELECT namespace, key FROM submissions AS s
  WHERE expires_at < ?1 AND NOT EXISTS (SELECT 1 FROM runs AS r WHERE r.id = s.answer AND r.state IN ('blocked', 'pending'))
  ORDER BY expires_at LIMIT ?2);

-- forget_workers: delete workers that ended long ago, and of the others of a namespace all but the newest
DELETE FROM workers WHERE id IN (
  SELECT id FROM (SELECT id, heartbeat_at, row_number() OVER (PARTITION BY namespace ORDER BY heartbeat_at DESC) AS place
                  FROM workers WHERE state IN ('stopped', 'dead'))
  WHERE heartbeat_at < ? OR place > ?);

-- forget_gates: delete the gates of firings that have ended
DELETE FROM gates WHERE used = 0 AND name LIKE 'firing:%'
  AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.job_id = substr(gates.name, 8, 26) AND runs.gates LIKE '%"' || gates.name || '"%');

-- forget_shares: delete the gates of single values of an argument that no unfinished run needs
DELETE FROM gates WHERE (namespace, name) IN (SELECT namespace, name FROM gates WHERE used = 0 AND name LIKE 'task:%=%' LIMIT ?)
  AND (namespace, name) NOT IN (SELECT r.namespace, g.value FROM runs AS r, json_each(r.gates) AS g WHERE r.gates IS NOT NULL);
