-- {unfinished}: the columns of a run that has not ended, in the order of `rows.run_rows.RUN_FIELDS`
id, namespace, queue, region, task, args, state, reason, priority, due_at, created_at, options, expires_at, job_id, job, fire_at,
idx, key, token, attempt, losses, worker, claimed_until, started_at, NULL, cancel_requested_at, cancel_reason, waits_for,
blocked_on, progress, progress_note, NULL, NULL, retry_of,
CASE WHEN attempt > 0 OR losses > 0 THEN (SELECT max(finished_at) FROM attempts WHERE run_id = runs.id) END

-- {finished}: the same of a run that has ended
id, namespace, queue, region, task, args, state, reason, priority, due_at, created_at, options, expires_at, job_id, job, fire_at,
idx, key, token, attempt, losses, worker, NULL, started_at, finished_at, cancel_requested_at, cancel_reason, 0,
NULL, progress, progress_note, result, error, retry_of, finished_at

-- {fits}: whether a run has the job, task, queue and region that a filter names
(:job IS NULL OR job = :job) AND (:task IS NULL OR task = :task) AND (:queue IS NULL OR queue = :queue)
  AND (:region IS NULL OR region = :region)

-- {active_fits}: the same of a run that has not ended, and its worker and state
{fits} AND (:worker IS NULL OR worker = :worker) AND (:states = '' OR instr(:states, state) > 0)

-- {tagged}: whether it has the tag of a filter
(:tag IS NULL OR EXISTS (SELECT 1 FROM json_each(options, '$.tags') WHERE value = :tag))

-- {submitted}: whether the submitter of a filter submitted it
(:submitter IS NULL OR json_extract(options, '$.submitted_by') = :submitter)

-- known: which of the ids exist already, unfinished or finished
SELECT id FROM runs WHERE id IN (SELECT value FROM json_each(?1))
UNION ALL
SELECT id FROM history WHERE id IN (SELECT value FROM json_each(?1));

-- insert: accept one run
INSERT INTO runs (id, args, namespace, queue, region, task, options, priority, due_at, expires_at, job_id, job, fire_at, idx, key,
                  retry_of, created_at, state, gates, blocked_on, lines, waits_for, special)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO NOTHING;

-- insert_rows: accept runs that wait for nothing and are known to be new
INSERT INTO runs (state, id, args, special, namespace, queue, region, task, options, priority, due_at, expires_at, job_id, job, fire_at, idx,
                  key, retry_of, created_at)
SELECT 'pending', * FROM (VALUES :rows);

-- insert_one: accept one run that waits for nothing, unless it exists already, unfinished or finished
INSERT INTO runs (state, id, args, special, namespace, queue, region, task, options, priority, due_at, expires_at, job_id, job, fire_at, idx,
                  key, retry_of, created_at)
SELECT 'pending', ?1, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ? WHERE NOT EXISTS (SELECT 1 FROM history WHERE id = ?1)
ON CONFLICT (id) DO NOTHING;

-- insert_alike: accept runs that differ only in id and arguments
WITH new (id, args) AS (VALUES :rows)
INSERT INTO runs (state, id, args, special, namespace, queue, region, task, options, priority, due_at, expires_at, job_id, job, fire_at, idx,
                  key, retry_of, created_at)
SELECT 'pending', id, args, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ? FROM new;

-- state_of: the state of a run, unfinished or finished
SELECT state FROM runs WHERE id = ?1 AND namespace = ?2 UNION ALL SELECT state FROM history WHERE id = ?1 AND namespace = ?2;

-- add_edge: let a run wait for another
INSERT INTO edges (upstream_id, run_id, "when", on_failure) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING;

-- mark_upstream: remember that others wait for a run
UPDATE runs SET dependants = 1 WHERE id = ?;

-- save_gate: create a gate, or take over its newest capacity
INSERT INTO gates (namespace, name, capacity) VALUES (?, ?, ?)
ON CONFLICT (namespace, name) DO UPDATE SET capacity = excluded.capacity WHERE capacity <> excluded.capacity;

-- gate_room: how much of a gate is free, and whether runs wait at it
SELECT capacity - used, EXISTS (SELECT 1 FROM runs WHERE blocked_on = ?2 AND namespace = ?1) FROM gates WHERE namespace = ?1 AND name = ?2;

-- join_line: stand in a line
INSERT INTO lines (namespace, name, seq, run_id, capacity, granted) VALUES (?, ?, ?, ?, ?, 0);

-- recall: the answer to an idempotency key that has not expired
SELECT fingerprint, answer FROM submissions WHERE namespace = ? AND key = ? AND expires_at > ?;

-- recall_waiting: what a unique key stands for, and whether that still waits to start
SELECT s.fingerprint, s.answer, r.id IS NOT NULL
FROM submissions AS s LEFT JOIN runs AS r ON r.id = s.answer AND r.state IN ('blocked', 'pending')
WHERE s.namespace = ? AND s.key = ?;

-- remember: keep the answer to an idempotency key
INSERT INTO submissions (namespace, key, fingerprint, answer, expires_at) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (namespace, key) DO UPDATE SET fingerprint = excluded.fingerprint, answer = excluded.answer, expires_at = excluded.expires_at;

-- get: one run, unfinished or finished
SELECT {unfinished} FROM runs WHERE id = ?1
UNION ALL
SELECT {finished} FROM history WHERE id = ?1;

-- finished: those of the ids that have ended
SELECT {finished} FROM history WHERE id IN (SELECT value FROM json_each(?));

-- list_active: unfinished runs, newest first
SELECT {unfinished} FROM runs
WHERE namespace = :namespace AND id >= :since AND id < :before AND {active_fits} AND {tagged} AND {submitted}
ORDER BY id DESC LIMIT :limit;

-- active: the unfinished runs of a namespace in some states, of one queue or of all, up to a bound
SELECT * FROM (SELECT seq FROM runs INDEXED BY runs_claimable WHERE state = 'pending' AND namespace = :namespace
                 AND queue >= :first_queue AND queue <= :last_queue AND instr(:states, 'pending') > 0 LIMIT :bound)
UNION ALL
SELECT * FROM (SELECT seq FROM runs INDEXED BY runs_held WHERE state = 'running' AND namespace = :namespace
                 AND queue >= :first_queue AND queue <= :last_queue AND instr(:states, 'running') > 0 LIMIT :bound)
UNION ALL
SELECT * FROM (SELECT seq FROM runs INDEXED BY runs_blocked WHERE state = 'blocked' AND namespace = :namespace
                 AND queue >= :first_queue AND queue <= :last_queue AND instr(:states, 'blocked') > 0 LIMIT :bound);

-- found_by_job: unfinished runs of a job that a filter fits, newest first
SELECT seq FROM runs INDEXED BY runs_by_job
WHERE namespace = :namespace AND job = :job AND id >= :since AND id < :before
  AND {active_fits} AND {tagged} AND {submitted}
ORDER BY id DESC LIMIT :limit;

-- found_by_tag: the same of a tag
SELECT seq FROM run_tags CROSS JOIN runs ON runs.id = run_tags.id
WHERE run_tags.namespace = :namespace AND run_tags.tag = :tag AND run_tags.id >= :since AND run_tags.id < :before
  AND {active_fits} AND {submitted}
ORDER BY run_tags.id DESC LIMIT :limit;

-- found_by_task: the same of a task
SELECT seq FROM runs INDEXED BY runs_by_task
WHERE namespace = :namespace AND task = :task AND id >= :since AND id < :before
  AND {active_fits} AND {tagged} AND {submitted}
ORDER BY id DESC LIMIT :limit;

-- found_by_region: the same of a region other than `default`. The last condition is that of the index
SELECT seq FROM runs INDEXED BY runs_by_region
WHERE namespace = :namespace AND region = :region AND id >= :since AND id < :before
  AND {active_fits} AND {tagged} AND {submitted} AND region <> 'default'
ORDER BY id DESC LIMIT :limit;

-- found_by_submitter: the same of a submitter. The last condition is that of the index
SELECT seq FROM runs INDEXED BY runs_by_submitter
WHERE namespace = :namespace AND json_extract(options, '$.submitted_by') = :submitter AND id >= :since AND id < :before
  AND {active_fits} AND {tagged} AND instr(options, '"submitted_by":') > 0
ORDER BY id DESC LIMIT :limit;

-- sizes: how many unfinished runs a job, a tag, a task, a region and a submitter have, each counted up to a bound
SELECT (SELECT count(*) FROM (SELECT 1 FROM runs INDEXED BY runs_by_job WHERE namespace = :namespace AND job = :job LIMIT :bound)),
       (SELECT count(*) FROM (SELECT 1 FROM run_tags WHERE namespace = :namespace AND tag = :tag LIMIT :bound)),
       (SELECT count(*) FROM (SELECT 1 FROM runs INDEXED BY runs_by_task WHERE namespace = :namespace AND task = :task LIMIT :bound)),
       (SELECT count(*) FROM (
          SELECT 1 FROM runs INDEXED BY runs_by_region WHERE namespace = :namespace AND region = :region AND region <> 'default' LIMIT :bound)),
       (SELECT count(*) FROM (
          SELECT 1 FROM runs INDEXED BY runs_by_submitter
          WHERE namespace = :namespace AND json_extract(options, '$.submitted_by') = :submitter AND instr(options, '"submitted_by":') > 0
          LIMIT :bound));

-- list_active_of: the same, among these
SELECT {unfinished} FROM runs
WHERE seq IN (SELECT value FROM json_each(:among)) AND namespace = :namespace AND +id >= :since AND +id < :before
  AND {active_fits} AND {tagged} AND {submitted}
ORDER BY id DESC LIMIT :limit;

-- classes: the classes of finished runs of a namespace, by leaps from one to the next
WITH RECURSIVE leaps (seq) AS (
  SELECT (SELECT seq FROM history INDEXED BY history_by_class WHERE namespace = :namespace ORDER BY queue, task, state LIMIT 1)
  UNION ALL
  SELECT coalesce(
    (SELECT n.seq FROM history AS n INDEXED BY history_by_class
     WHERE n.namespace = :namespace AND n.queue = c.queue AND n.task = c.task AND n.state > c.state ORDER BY n.state LIMIT 1),
    (SELECT n.seq FROM history AS n INDEXED BY history_by_class
     WHERE n.namespace = :namespace AND n.queue = c.queue AND n.task > c.task ORDER BY n.task, n.state LIMIT 1),
    (SELECT n.seq FROM history AS n INDEXED BY history_by_class
     WHERE n.namespace = :namespace AND n.queue > c.queue ORDER BY n.queue, n.task, n.state LIMIT 1))
  FROM leaps CROSS JOIN history AS c ON c.seq = leaps.seq
)
SELECT queue, task, state FROM leaps CROSS JOIN history USING (seq)
WHERE (:queue IS NULL OR queue = :queue) AND (:task IS NULL OR task = :task) AND instr(:states, state) > 0 LIMIT :classes;

-- class_size: how many runs a class has, counted up to a bound
SELECT count(*) FROM (
  SELECT 1 FROM history WHERE namespace = :namespace AND queue = :queue AND task = :task AND state = :state LIMIT :bound);

-- newest_of_class: the newest finished runs of one class
SELECT id FROM history
WHERE namespace = :namespace AND queue = :queue AND task = :task AND state = :state AND id >= :since AND id < :before
  AND {tagged} AND (:region IS NULL OR region = :region)
ORDER BY id DESC LIMIT :limit;

-- newest_of_job: the newest finished runs of a job in one state
SELECT id FROM history
WHERE namespace = :namespace AND job = :job AND state = :state AND id >= :since AND id < :before
  AND {fits} AND {tagged}
ORDER BY id DESC LIMIT :limit;

-- newest_of_key: the newest finished runs of a key
SELECT id FROM history INDEXED BY history_by_key
WHERE namespace = :namespace AND key = :key AND key IS NOT NULL AND id >= :since AND id < :before AND instr(:states, state) > 0
  AND {fits} AND {tagged}
  AND (:late IS NULL OR started_at - due_at >= :late) AND (:took IS NULL OR finished_at - started_at >= :took)
  AND {submitted}
ORDER BY id DESC LIMIT :limit;

-- newest_late: the newest finished runs of one step of lateness and one of duration
SELECT id FROM history INDEXED BY history_by_delay_and_duration
WHERE namespace = :namespace AND started_at - due_at >= 60000000
  AND (started_at - due_at >= 600000000) + (started_at - due_at >= 3600000000) + (started_at - due_at >= 86400000000) = :step
  AND (finished_at - started_at >= 60000000) + (finished_at - started_at >= 600000000) + (finished_at - started_at >= 3600000000)
    + (finished_at - started_at >= 86400000000) = :length
  AND id >= :since AND id < :before AND instr(:states, state) > 0
  AND {fits} AND {tagged} AND {submitted}
ORDER BY id DESC LIMIT :limit;

-- newest_long: the newest finished runs of one step of duration
SELECT id FROM history INDEXED BY history_by_duration
WHERE namespace = :namespace AND finished_at - started_at >= 60000000
  AND (finished_at - started_at >= 600000000) + (finished_at - started_at >= 3600000000) + (finished_at - started_at >= 86400000000) = :step
  AND id >= :since AND id < :before AND instr(:states, state) > 0
  AND {fits} AND {tagged} AND {submitted}
ORDER BY id DESC LIMIT :limit;

-- newest_of_submitter: the newest finished runs of a submitter in one state. The last condition is that of the index
SELECT id FROM history INDEXED BY history_by_submitter
WHERE namespace = :namespace AND json_extract(options, '$.submitted_by') = :submitter AND state = :state AND id >= :since AND id < :before
  AND {fits} AND {tagged} AND instr(options, '"submitted_by":') > 0
ORDER BY id DESC LIMIT :limit;

-- keyed: the unfinished runs of a key, which stand in its line
SELECT r.seq FROM lines AS l CROSS JOIN runs AS r ON r.id = l.run_id WHERE l.namespace = :namespace AND l.name = 'key:' || :key;

-- running_late: the running runs that began late
SELECT seq FROM runs INDEXED BY runs_held
WHERE state = 'running' AND namespace = :namespace AND started_at - due_at >= :late LIMIT :bound;

-- newest_of_region: the newest finished runs of a region other than `default`. The last condition is that of the index
SELECT id FROM history INDEXED BY history_by_region
WHERE namespace = :namespace AND region = :region AND id >= :since AND id < :before AND instr(:states, state) > 0
  AND (:task IS NULL OR task = :task) AND (:queue IS NULL OR queue = :queue)
  AND {tagged} AND region <> 'default'
ORDER BY id DESC LIMIT :limit;

-- newest_of_region_class: the newest finished runs of one class in a region other than `default`. The last condition is that of the index
SELECT id FROM history INDEXED BY history_by_region_and_class
WHERE namespace = :namespace AND region = :region AND queue = :queue AND task = :task AND state = :state AND id >= :since AND id < :before
  AND {tagged} AND region <> 'default'
ORDER BY id DESC LIMIT :limit;

-- newest_tagged: the newest finished runs with a tag
SELECT id FROM (
  SELECT t.id FROM history_tags AS t CROSS JOIN history AS h ON h.id = t.id
  WHERE t.namespace = :namespace AND t.tag = :tag AND t.id >= :since AND t.id < :before
    AND instr(:states, h.state) > 0 AND (:task IS NULL OR h.task = :task) AND (:queue IS NULL OR h.queue = :queue)
    AND (:region IS NULL OR h.region = :region)
  ORDER BY t.id DESC LIMIT :limit)
UNION ALL
SELECT id FROM history NOT INDEXED
WHERE seq > (SELECT seq FROM summed_up) AND namespace = :namespace AND id >= :since AND id < :before AND instr(options, :tag) > 0
  AND EXISTS (SELECT 1 FROM json_each(options, '$.tags') WHERE value = :tag)
  AND instr(:states, state) > 0 AND (:task IS NULL OR task = :task) AND (:queue IS NULL OR queue = :queue)
  AND (:region IS NULL OR region = :region);

-- newest: the newest finished runs, of too many classes to search one by one
SELECT id FROM history
WHERE +namespace = :namespace AND id >= :since AND id < :before AND instr(:states, state) > 0 AND (:queue IS NULL OR queue = :queue)
  AND {tagged} AND (:region IS NULL OR region = :region)
ORDER BY id DESC LIMIT :limit;

-- find_prefix: ids that begin with a text
SELECT id FROM runs WHERE namespace = :namespace AND id >= :prefix AND id < :prefix || '{'
UNION ALL
SELECT id FROM history WHERE +namespace = :namespace AND id >= :prefix AND id < :prefix || '{'
LIMIT :limit;

-- find_tail: ids whose tails begin with a text: of all that have ended, and of the newest others
WITH RECURSIVE batches (number) AS (
  SELECT (SELECT seq >> 12 FROM summed_up)
  UNION ALL
  SELECT number - 1 FROM batches WHERE number > (SELECT min(seq) >> 12 FROM history)
)
SELECT id FROM (SELECT id FROM runs WHERE namespace = :namespace ORDER BY seq DESC LIMIT 10000)
WHERE substr(id, -8) >= :prefix AND substr(id, -8) < :prefix || '{'
UNION ALL
SELECT id FROM history NOT INDEXED WHERE seq > (SELECT seq FROM summed_up) AND substr(id, -8) >= :prefix AND substr(id, -8) < :prefix || '{'
  AND namespace = :namespace
UNION ALL
SELECT h.id FROM batches CROSS JOIN tails AS t CROSS JOIN history AS h ON h.seq = t.seq
WHERE t.batch = batches.number AND t.tail >= :prefix AND t.tail < :prefix || '{' AND h.namespace = :namespace
LIMIT :limit;

-- find_suffix: recent ids that end with a text. Of the indexes that could serve, `+` leaves that by which it is in order
SELECT id FROM (SELECT id FROM runs WHERE namespace = :namespace ORDER BY seq DESC LIMIT 10000) WHERE substr(id, -length(:prefix)) = :prefix
UNION ALL
SELECT id FROM (SELECT id FROM history WHERE +namespace = :namespace ORDER BY seq DESC LIMIT 10000) WHERE substr(id, -length(:prefix)) = :prefix
LIMIT :limit;

-- count_states: how many runs are in each state: of unfinished ones up to a bound; of finished ones, as they were summed up, and those after
SELECT * FROM (
  SELECT 'pending' AS state, count(*) AS count FROM (
    SELECT 1 FROM runs INDEXED BY runs_claimable WHERE state = 'pending' AND namespace = ?1 LIMIT ?2)
  UNION ALL
  SELECT 'running', count(*) FROM (SELECT 1 FROM runs INDEXED BY runs_held WHERE state = 'running' AND namespace = ?1 LIMIT ?2)
  UNION ALL
  SELECT 'blocked', count(*) FROM (SELECT 1 FROM runs INDEXED BY runs_blocked WHERE state = 'blocked' AND namespace = ?1 LIMIT ?2)
) WHERE count > 0
UNION ALL
SELECT state, sum(count) FROM (
  SELECT state, count FROM tallies WHERE namespace = ?1
  UNION ALL
  SELECT state, count(*) FROM history NOT INDEXED WHERE seq > (SELECT seq FROM summed_up) AND namespace = ?1 GROUP BY state)
GROUP BY state HAVING sum(count) > 0;

-- attempts: the ended attempts of a run in order; the one that succeeded is what its history says
SELECT run_id, attempt, token, worker, outcome, started_at, finished_at, reason, error FROM attempts WHERE run_id = ?1
UNION ALL
SELECT id, attempt, token, worker, state, started_at, finished_at, reason, error FROM history WHERE id = ?1 AND state = 'succeeded'
ORDER BY attempt;

-- have_written: which of some runs have written beyond the lines that are known of each
SELECT json_extract(e.value, '$[0]') FROM json_each(?) AS e
WHERE EXISTS (SELECT 1 FROM logs WHERE run_id = json_extract(e.value, '$[0]') AND seq > json_extract(e.value, '$[1]'));

-- count_logs: how many lines a run wrote, up to a number
SELECT count(*) FROM (SELECT 1 FROM logs WHERE run_id = ? LIMIT ?);

-- logs: what a run wrote, from a line number on
SELECT seq, run_id, attempt, at, stream, text FROM logs WHERE run_id = ? AND seq > ? ORDER BY seq LIMIT ?;

-- logs_before: the last of what a run wrote between two line numbers, in order
SELECT * FROM (SELECT seq, run_id, attempt, at, stream, text FROM logs WHERE run_id = ? AND seq > ? AND seq < ? ORDER BY seq DESC LIMIT ?)
ORDER BY seq;

-- upstreams_of: the runs that a run waits for, and those before it in its lines
SELECT upstream_id FROM edges WHERE run_id = ?1
UNION
SELECT before.run_id FROM lines AS mine
JOIN lines AS before ON before.namespace = mine.namespace AND before.name = mine.name AND before.seq < mine.seq AND before.granted = 1
WHERE mine.run_id = ?1 AND mine.granted = 0;

-- gate: used and capacity of a gate
SELECT used, capacity FROM gates WHERE namespace = ? AND name = ?;
