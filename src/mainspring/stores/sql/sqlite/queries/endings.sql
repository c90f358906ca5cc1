-- unstarted: what must be known of a run to end it before it starts
SELECT seq, id, namespace, task, state, job_id, job, fire_at, region, idx, dependants, lines, gates, options, queue
FROM runs WHERE id = ? AND state IN ('blocked', 'pending');

-- to_history: move runs to history, first half
WITH ended (seq, state, outcome, reason, started_at, finished_at, result, error, attempts, losses) AS (VALUES :rows)
INSERT INTO history (id, namespace, queue, region, task, args, options, state, reason, priority, due_at, expires_at, job_id, job, fire_at,
                     idx, key, token, attempt, losses, worker, started_at, finished_at, cancel_requested_at, cancel_reason, progress,
                     progress_note, result, error, retry_of, created_at)
SELECT id, namespace, queue, region, task, args, options, e.state, e.reason, priority, due_at, expires_at, job_id, job, fire_at,
       idx, key, token, r.attempt + e.attempts, r.losses + e.losses, worker, e.started_at, e.finished_at, cancel_requested_at,
       cancel_reason, progress, progress_note, e.result, e.error, retry_of, created_at
FROM ended AS e CROSS JOIN runs AS r ON r.seq = e.seq;

-- succeed: the same of runs of which no more is to be said than what they came to
WITH ended (seq, started_at, finished_at, result) AS (VALUES :rows)
INSERT INTO history (id, namespace, queue, region, task, args, options, state, reason, priority, due_at, expires_at, job_id, job, fire_at,
                     idx, key, token, attempt, losses, worker, started_at, finished_at, cancel_requested_at, cancel_reason, progress,
                     progress_note, result, retry_of, created_at)
SELECT id, namespace, queue, region, task, args, options, 'succeeded', '', priority, due_at, expires_at, job_id, job, fire_at,
       idx, key, token, r.attempt + 1, losses, worker, e.started_at, e.finished_at, cancel_requested_at,
       cancel_reason, progress, progress_note, e.result, retry_of, created_at
FROM ended AS e CROSS JOIN runs AS r ON r.seq = e.seq;

-- add_attempts: remember attempts that ended, before their runs leave
WITH ended (seq, state, outcome, reason, started_at, finished_at, result, error, attempts, losses) AS (VALUES :rows)
INSERT INTO attempts (run_id, attempt, token, worker, outcome, started_at, finished_at, reason, error)
SELECT r.id, r.attempt + 1, r.token, r.worker, e.outcome, e.started_at, e.finished_at, e.reason, e.error
FROM ended AS e CROSS JOIN runs AS r ON r.seq = e.seq;

-- forget_tags: the tags of runs that leave; where no unfinished run has tags, none is looked at
DELETE FROM run_tags WHERE (namespace, tag, id) IN (
  SELECT r.namespace, tag.value, r.id
  FROM (SELECT 1 FROM run_tags LIMIT 1) CROSS JOIN json_each(?) AS ended CROSS JOIN runs AS r ON r.seq = ended.value
       CROSS JOIN json_each(r.options, '$.tags') AS tag
  WHERE instr(r.options, '"tags":[') > 0);

-- forget_runs: move runs to history, second half
DELETE FROM runs WHERE seq IN (SELECT value FROM json_each(?));

-- back_to_pending: give a running run back to the queue
UPDATE runs SET state = 'pending', reason = ?1, due_at = max(due_at, ?2), attempt = attempt + ?3, losses = losses + ?4, special = max(special, ?4),
                worker = NULL, claimed_until = NULL, started_at = NULL
WHERE seq = ?5 AND state = 'running';

-- request_cancel: ask for the end of a running run
UPDATE runs SET cancel_requested_at = coalesce(cancel_requested_at, ?1), cancel_reason = CASE WHEN cancel_requested_at IS NULL THEN ?2 ELSE cancel_reason END
WHERE id = ?3 AND state = 'running' RETURNING namespace, job_id, job, task, worker;

-- take_edges: runs that waited for a run, up to a number
DELETE FROM edges WHERE upstream_id = ?1 AND run_id IN (SELECT run_id FROM edges WHERE upstream_id = ?1 LIMIT ?2) RETURNING run_id, "when", on_failure;

-- postpone_dependants: a run has ended, and some that waited for it are not judged yet
INSERT INTO ended_upstreams (run_id, state) VALUES (?, ?) ON CONFLICT DO NOTHING;

-- take_ended_upstreams: what was postponed, up to a number
DELETE FROM ended_upstreams WHERE run_id IN (SELECT run_id FROM ended_upstreams LIMIT ?) RETURNING run_id, state;

-- drop_edges: what a run waited for, when it no longer does
DELETE FROM edges WHERE run_id = ?;

-- wait_less: count down what a run waits for; at nothing it is pending
UPDATE runs SET waits_for = waits_for - ?1, state = CASE WHEN waits_for <= ?1 THEN 'pending' ELSE 'blocked' END
WHERE id = ?2 AND state = 'blocked' AND waits_for > 0;

-- depend_less: the same of a run whose upstream ended; and whether it depends on no other
UPDATE runs SET waits_for = waits_for - ?1, state = CASE WHEN waits_for <= ?1 THEN 'pending' ELSE 'blocked' END
WHERE id = ?2 AND state = 'blocked' AND waits_for > 0
RETURNING namespace, job_id, job, task, fire_at, NOT EXISTS (SELECT 1 FROM edges WHERE run_id = ?2);

-- leave_lines: a run gives up its places in all lines
DELETE FROM lines WHERE run_id = ? RETURNING namespace, name, seq;

-- leave_line: a run gives up its place in one
DELETE FROM lines WHERE run_id = ? AND name = ?;

-- next_in_line: the run that has waited longest in a line
SELECT seq, run_id, capacity FROM lines WHERE namespace = ? AND name = ? AND granted = 0 ORDER BY seq LIMIT 1;

-- granted_in_line: how many of a line's places are taken, counting no further than its capacity
SELECT count(*) FROM (SELECT 1 FROM lines WHERE namespace = ? AND name = ? AND granted = 1 LIMIT ?);

-- grant_line: let one enter
UPDATE lines SET granted = 1 WHERE namespace = ? AND name = ? AND seq = ?;

-- waiting_in_line: those that still wait in a line, until a place, up to a number
SELECT run_id FROM lines WHERE namespace = ? AND name = ? AND granted = 0 AND seq <= ? ORDER BY seq LIMIT ?;

-- last_in_line: the place of the run that came last
SELECT max(seq) FROM lines WHERE namespace = ? AND name = ?;

-- keep_place: a run that has ended stays in a line that it stops
INSERT INTO lines (namespace, name, seq, run_id, capacity, granted) VALUES (?, ?, ?, ?, 1, 1);

-- stop_line: not all that wait in a line have ended with a run
INSERT INTO stopped_lines (run_id, namespace, name, until_seq) VALUES (?, ?, ?, ?);

-- stopped_line: a line that a run stops
SELECT run_id, namespace, name, until_seq FROM stopped_lines LIMIT 1;

-- forget_stop: all that waited in a line have ended with a run
DELETE FROM stopped_lines WHERE run_id = ? AND name = ?;

-- leave_gate: a run gives up its place at a gate
UPDATE gates SET used = used - 1 WHERE namespace = ? AND name = ? AND used > 0;

-- promote_at_gate: as many waiting runs as a gate has room for become pending, best first
UPDATE runs SET state = 'pending', blocked_on = NULL, reason = ''
WHERE seq IN (SELECT seq FROM runs WHERE blocked_on = ?2 AND namespace = ?1 ORDER BY priority, due_at, seq
              LIMIT (SELECT max(capacity - used, 0) FROM gates WHERE namespace = ?1 AND name = ?2));

-- end_firing: what a run of a firing came to
UPDATE firings SET outcome = ?5, reason = ?6, finished_at = ?7 WHERE job_id = ?1 AND fire_at = ?2 AND region = ?3 AND idx = ?4;

-- downstream_jobs: the jobs that fire after some jobs
SELECT upstream_id, job_id FROM upstreams WHERE upstream_id IN (SELECT value FROM json_each(?));

-- note_upstream: an upstream firing has ended; one that failed before and now succeeded counts as new
UPDATE upstreams SET consumed_at = CASE WHEN consumed_at = ?1 AND latest_outcome <> 'succeeded' AND ?2 = 'succeeded' THEN ?1 - 1 ELSE consumed_at END,
                     latest_at = ?1, latest_outcome = ?2
WHERE upstream_id = ?3 AND latest_at <= ?1 AND NOT (latest_at = ?1 AND latest_outcome = ?2);

-- trigger_of: the trigger of a job, and what events say of the job
SELECT "trigger", namespace, name, task FROM jobs WHERE id = ?;

-- make_due: an `after` job is due now
UPDATE jobs SET next_fire_at = max(?1, coalesce(last_fire_at + 1, 0)), changed = ?2 WHERE id = ?3 AND next_fire_at IS NULL;
