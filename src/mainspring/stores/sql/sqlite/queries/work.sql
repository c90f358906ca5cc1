-- candidates: due runs of one queue, region and priority, longest due first; read from the index alone
SELECT due_at, seq, task, care FROM runs
WHERE state = 'pending' AND namespace = ? AND queue = ? AND region = ? AND priority = ? AND due_at <= ? ORDER BY due_at, seq;

-- earliest: the pending runs of one queue, region and priority, by when they are due; read from the index alone
SELECT due_at, task FROM runs WHERE state = 'pending' AND namespace = ? AND queue = ? AND region = ? AND priority = ? ORDER BY due_at;

-- look_closer: what a claim must know of a run that needs care
SELECT id, namespace, gates, losses, CASE WHEN attempt = 0 THEN expires_at END FROM runs WHERE seq = ?;

-- take: claim runs
UPDATE runs SET state = 'running', token = token + 1, worker = ?1, claimed_until = ?2, started_at = ?3, reason = ''
WHERE seq IN (SELECT value FROM json_each(?4)) AND state = 'pending';

-- taken: what a worker is given of the runs that it has claimed, in the order of Claim's fields (faster than RETURNING)
SELECT seq, id, token, task, args, options, attempt, losses, priority, due_at, namespace, job, fire_at, idx, claimed_until, job_id
FROM runs WHERE seq IN (SELECT value FROM json_each(?));

-- gate_free: how many more may enter a gate
SELECT capacity - used FROM gates WHERE namespace = ? AND name = ?;

-- enter_gate: take a place at a gate
UPDATE gates SET used = used + 1 WHERE namespace = ? AND name = ?;

-- block_at_gate: wait for room
UPDATE runs SET state = 'blocked', blocked_on = ?1, reason = 'gate ' || ?1 || ' is full' WHERE seq = ?2 AND state = 'pending';

-- renew: keep claims
UPDATE runs SET claimed_until = ?1
WHERE (id, token) IN (SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(?2)) AND state = 'running' AND worker = ?3
RETURNING id, token, cancel_requested_at, cancel_reason;

-- heartbeat: a worker is alive
UPDATE workers SET heartbeat_at = ?1, running = ?2, state = CASE WHEN state = 'dead' THEN 'active' ELSE state END WHERE id = ?3;

-- cancels: those of the running runs that somebody wants to end
SELECT id, cancel_reason FROM runs
WHERE cancel_requested_at IS NOT NULL AND state = 'running' AND id IN (SELECT value FROM json_each(?));

-- running: what a report must know of the runs that it is about
SELECT seq, id, token, namespace, task, worker, cancel_requested_at, cancel_reason, job_id, job, fire_at, region, idx, dependants, lines,
       gates, attempt, losses, options, started_at
FROM runs WHERE state = 'running' AND id IN (SELECT value FROM json_each(?));

-- was_reported: whether an attempt under this token has already been recorded
SELECT 1 FROM attempts WHERE run_id = ? AND token = ? AND outcome <> 'lost';

-- add_log: keep a line of output
INSERT INTO logs (run_id, seq, attempt, at, stream, text)
VALUES (?1, (SELECT coalesce(max(seq), 0) + 1 FROM logs WHERE run_id = ?1), ?2, ?3, ?4, ?5);

-- set_progress: how far a run has come
UPDATE runs SET progress = ?1, progress_note = ?2 WHERE id = ?3 AND token = ?4 AND state = 'running';

-- register: announce a worker
INSERT INTO workers (id, namespace, app, host, pid, queues, regions, tasks, concurrency, running, state, started_at, heartbeat_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET state = excluded.state, running = excluded.running, tasks = excluded.tasks, heartbeat_at = excluded.heartbeat_at;

-- workers: all workers of a namespace
SELECT id, namespace, app, host, pid, queues, regions, tasks, concurrency, running, state, started_at, heartbeat_at
FROM workers WHERE namespace = ? ORDER BY id;
