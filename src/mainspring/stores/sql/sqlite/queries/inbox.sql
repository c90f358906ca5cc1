-- accept: one run that waits for nothing; whether it is known already will be seen when it is taken in
INSERT INTO inbox (id, args, special, namespace, queue, region, task, options, priority, due_at, expires_at, job_id, job, fire_at, idx, key,
                   retry_of, created_at, noted_for, request_id)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- waiting: whether there is anything to take in
SELECT 1 FROM inbox LIMIT 1;

-- take_in: in the order of acceptance, what is not known yet, unfinished or finished
INSERT INTO runs (state, id, args, special, namespace, queue, region, task, options, priority, due_at, expires_at, job_id, job, fire_at, idx,
                  key, retry_of, created_at)
SELECT 'pending', id, args, special, namespace, queue, region, task, options, priority, due_at, expires_at, job_id, job, fire_at, idx,
       key, retry_of, created_at
FROM inbox WHERE NOT EXISTS (SELECT 1 FROM history WHERE history.id = inbox.id) ORDER BY seq
ON CONFLICT (id) DO NOTHING
RETURNING queue, created_at, namespace, id, job_id, job, task, options;

-- fitting: how many there are, how many of them a worker could start at once, and whether anything stands in the queue
SELECT count(*), count(*) FILTER (WHERE NOT special AND due_at <= ?1 AND namespace = ?2 AND queue IN (SELECT value FROM json_each(?3))
                                  AND region IN (SELECT value FROM json_each(?4)) AND task IN (SELECT value FROM json_each(?5))),
       EXISTS (SELECT 1 FROM runs INDEXED BY runs_claimable WHERE state = 'pending')
FROM inbox;

-- start: as take_in, but each is claimed already
INSERT INTO runs (state, token, worker, claimed_until, started_at, id, args, special, namespace, queue, region, task, options, priority, due_at,
                  expires_at, job_id, job, fire_at, idx, key, retry_of, created_at)
SELECT 'running', 1, ?1, ?2, ?3, id, args, special, namespace, queue, region, task, options, priority, due_at,
       expires_at, job_id, job, fire_at, idx, key, retry_of, created_at
FROM inbox WHERE NOT EXISTS (SELECT 1 FROM history WHERE history.id = inbox.id) ORDER BY seq
ON CONFLICT (id) DO NOTHING
RETURNING queue, created_at, job_id, id, token, task, args, options, attempt, losses, priority, due_at, namespace, job, fire_at, idx, claimed_until;

-- keep_tags: the tags of runs that have been accepted, for lists by tag
INSERT OR IGNORE INTO run_tags
SELECT r.namespace, tag.value, r.id
FROM json_each(?) AS tagged CROSS JOIN runs AS r ON r.id = tagged.value CROSS JOIN json_each(r.options, '$.tags') AS tag;

-- note: the audit trail of it, before it is taken in: of what is not known yet
INSERT INTO audit (namespace, at, subject, action, target, after, request_id)
SELECT namespace, created_at, noted_for, 'run.submit', 'run:' || id, json_object('task', task, 'queue', queue, 'priority', priority), request_id
FROM inbox WHERE noted_for <> '' AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.id = inbox.id)
  AND NOT EXISTS (SELECT 1 FROM history WHERE history.id = inbox.id)
GROUP BY id ORDER BY min(seq);

-- clear: all of it was taken in
DELETE FROM inbox;
