-- accept: one run that waits for nothing; whether it is known already will be seen when it is taken in
INSERT INTO inbox (id, args, care, namespace, queue, region, task, options, priority, due_at, expires_at, job_id, job, fire_at, idx, key,
                   retry_of, created_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- waiting: whether there is anything to take in
SELECT 1 FROM inbox LIMIT 1;

-- take_in: in the order of acceptance, what is not known yet, unfinished or finished
INSERT INTO runs (state, id, args, care, namespace, queue, region, task, options, priority, due_at, expires_at, job_id, job, fire_at, idx,
                  key, retry_of, created_at)
SELECT 'pending', id, args, care, namespace, queue, region, task, options, priority, due_at, expires_at, job_id, job, fire_at, idx,
       key, retry_of, created_at
FROM inbox WHERE NOT EXISTS (SELECT 1 FROM history WHERE history.id = inbox.id) ORDER BY seq
ON CONFLICT (id) DO NOTHING
RETURNING created_at, namespace, id, job_id, job, task;

-- clear: all of it was taken in
DELETE FROM inbox;
