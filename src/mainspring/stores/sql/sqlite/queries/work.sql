-- {worker}: the columns of a worker
id, namespace, app, host, pid, queues, regions, tasks, concurrency, running, state, started_at, heartbeat_at, drain_requested_at,
version, pools

-- candidates: due runs of some tasks in one queue and region, priority by priority, longest due first; read from the index alone, in its
-- order, since the cross join fixes that of the priorities. As one text: a row at a time, each would hand the interpreter's lock around
SELECT json_group_array(json_array(due_at, seq, special)) FROM (
  SELECT due_at, seq, special FROM json_each(?1) CROSS JOIN runs INDEXED BY runs_claimable
  WHERE state = 'pending' AND namespace = ?2 AND queue = ?3 AND region = ?4 AND priority = json_each.value AND due_at <= ?5
    AND task IN (SELECT value FROM json_each(?6))
  LIMIT ?7);

-- earliest: for each of some priorities, when the earliest pending run of some tasks in one queue and region is due; read from the index alone
SELECT json_group_array((SELECT due_at FROM runs INDEXED BY runs_claimable
                         WHERE state = 'pending' AND namespace = ?2 AND queue = ?3 AND region = ?4 AND priority = json_each.value
                           AND task IN (SELECT value FROM json_each(?5))
                         ORDER BY due_at LIMIT 1))
FROM json_each(?1);

-- look_closer: what a claim must know of a special run
SELECT id, namespace, gates, losses, options, CASE WHEN attempt = 0 THEN expires_at END FROM runs WHERE seq = ?;

-- take: claim runs
UPDATE runs SET state = 'running', token = token + 1, worker = ?1, claimed_until = ?2, started_at = max(?3, due_at), reason = ''
WHERE seq IN (SELECT value FROM json_each(?4)) AND state = 'pending';

-- taken: what a worker is given of the runs that it has claimed, and their jobs and queues, in the order asked (faster than RETURNING, and as three texts
-- faster than row by row)
SELECT json_group_array(json_array(
         runs.id, token, task, args, options, attempt, losses, priority, due_at, namespace, job, fire_at, idx, claimed_until)),
       json_group_array(job_id), json_group_array(nullif(queue, 'default'))
FROM json_each(?) CROSS JOIN runs ON runs.seq = json_each.value;

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

-- heartbeat: a worker is alive; since when it is asked to drain
UPDATE workers SET heartbeat_at = ?1, running = ?2, state = CASE WHEN state = 'dead' THEN 'active' ELSE state END WHERE id = ?3
RETURNING drain_requested_at;

-- cancels: running runs with a request to cancel
SELECT id, cancel_reason FROM runs
WHERE cancel_requested_at IS NOT NULL AND state = 'running' AND id IN (SELECT value FROM json_each(?));

-- running: what the end of runs must know of them, as one text; unless all of it is asked for, less of those on whose end nothing depends
SELECT json_group_array(
         CASE WHEN NOT ?2 AND cancel_requested_at IS NULL AND coalesce(job_id, job, fire_at, gates) IS NULL AND dependants = 0 AND lines = 0
         THEN json_array(seq, runs.id, token, namespace, task, worker, attempt, started_at, queue)
         ELSE json_array(seq, runs.id, token, namespace, task, worker, attempt, started_at, queue, options, losses,
                         cancel_requested_at, cancel_reason, job_id, job, fire_at, region, idx, dependants, lines, json(gates)) END)
FROM json_each(?1) CROSS JOIN runs ON runs.id = json_each.value WHERE state = 'running';

-- was_reported: whether an attempt under this token has already been recorded
SELECT 1 FROM attempts WHERE run_id = ?1 AND token = ?2 AND outcome <> 'lost'
UNION ALL
SELECT 1 FROM history WHERE id = ?1 AND token = ?2 AND state = 'succeeded';

-- add_log: keep a line of output
INSERT INTO logs (run_id, seq, attempt, at, stream, text)
VALUES (?1, (SELECT coalesce(max(seq), 0) + 1 FROM logs WHERE run_id = ?1), ?2, ?3, ?4, ?5);

-- set_progress: how far a run has come
UPDATE runs SET progress = ?1, progress_note = ?2 WHERE id = ?3 AND token = ?4 AND state = 'running';

-- register: announce a worker
INSERT INTO workers (id, namespace, app, host, pid, queues, regions, tasks, concurrency, running, state, started_at, heartbeat_at, notices,
                     version, pools)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET state = excluded.state, running = excluded.running, tasks = excluded.tasks, heartbeat_at = excluded.heartbeat_at,
                               notices = excluded.notices;

-- announced: workers that know something of a task, heard of last first, and what they know
SELECT w.id, namespace, app, host, pid, queues, regions, tasks, concurrency, running, state, started_at, heartbeat_at, drain_requested_at,
       version, pools, notice.value
FROM workers AS w, json_each(w.notices) AS notice
WHERE namespace = ? AND json_extract(notice.value, '$.name') = ? ORDER BY heartbeat_at DESC, w.id LIMIT 200;

-- amend: what is different about a run that was given back
UPDATE runs SET reason = ?1, options = ?2, priority = coalesce(?3, priority), gates = coalesce(?4, gates), special = max(special, ?4 IS NOT NULL),
                due_at = max(due_at, ?5)
WHERE seq = ?6 AND state = 'pending';

-- request_drain: ask a live worker to finish what it holds and to end; asked again, it says since when
UPDATE workers SET drain_requested_at = coalesce(drain_requested_at, ?3)
WHERE namespace = ?1 AND id = ?2 AND state IN ('active', 'draining')
RETURNING {worker};

-- workers: all workers of a namespace
SELECT {worker} FROM workers WHERE namespace = ? ORDER BY id;

-- worker: one of them
SELECT {worker} FROM workers WHERE namespace = ? AND id = ?;
