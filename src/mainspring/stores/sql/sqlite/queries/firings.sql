-- term: the number of the newest term
SELECT number FROM terms WHERE name = ?;

-- move_on: move a job past the instants of a plan, if it is still as it was planned from
UPDATE jobs SET next_fire_at = ?1, fired = fired + ?2, last_fire_at = coalesce(max(?3, coalesce(last_fire_at, ?3)), last_fire_at)
WHERE id = ?4 AND version = ?5 AND next_fire_at IS ?6 AND paused_at IS NULL;

-- move_all_on: the same for many jobs, each past one instant: id, version, next fire time as planned from, the following one, the instant
UPDATE jobs SET next_fire_at = column4, fired = fired + 1, last_fire_at = max(column5, coalesce(last_fire_at, column5))
FROM (VALUES :rows) WHERE id = column1 AND version = column2 AND next_fire_at IS column3 AND paused_at IS NULL;

-- fired_before: do not count instants that were in the ledger already
UPDATE jobs SET fired = fired - ?2 WHERE id = ?1;

-- fired_by_hand: remember when a job fired last
UPDATE jobs SET last_fire_at = max(?2, coalesce(last_fire_at, 0)) WHERE id = ?1;

-- record: write a row of the ledger, unless the instant has one
INSERT INTO firings (job_id, fire_at, region, idx, kind, outcome, reason, run_id, request_id, last_at, count, created_at, finished_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (job_id, fire_at, region, idx) DO NOTHING;

-- record_all: the same of many rows
INSERT INTO firings (job_id, fire_at, region, idx, kind, outcome, reason, run_id, request_id, last_at, count, created_at, finished_at)
SELECT * FROM (VALUES :rows) WHERE true ON CONFLICT (job_id, fire_at, region, idx) DO NOTHING;

-- is_recorded: whether an instant of a job is in the ledger
SELECT 1 FROM firings WHERE job_id = ? AND fire_at = ? LIMIT 1;

-- unfinished: runs of jobs that have not ended, oldest first
SELECT job_id, CASE WHEN instr(options, '"home_region":') > 0 THEN json_extract(options, '$.home_region') ELSE region END, id
FROM runs WHERE job_id IN (SELECT value FROM json_each(?)) ORDER BY seq;

-- outcomes: what the runs of one firing came to so far
SELECT outcome FROM firings WHERE job_id = ? AND fire_at = ?;

-- consume: remember which upstream firing was used
UPDATE upstreams SET consumed_at = ?3 WHERE job_id = ?1 AND upstream_id = ?2;

-- by_request: the first row of the firing that a request made
SELECT job_id, fire_at, region, idx, kind, outcome, reason, run_id, request_id, last_at, count, created_at, finished_at
FROM firings WHERE job_id = ? AND request_id = ? ORDER BY region, idx LIMIT 1;

-- list: the ledger of a job, newest first, of one region or of all
SELECT job_id, fire_at, region, idx, kind, outcome, reason, run_id, request_id, last_at, count, created_at, finished_at
FROM firings WHERE job_id = ?1 AND fire_at >= ?2 AND fire_at < ?3 AND (?5 IS NULL OR region = ?5)
ORDER BY fire_at DESC, region, idx LIMIT ?4;

-- newest: the first rows of the ledger of each of some jobs, the newest first
SELECT f.job_id, f.fire_at, f.region, f.idx, f.kind, f.outcome, f.reason, f.run_id, f.request_id, f.last_at, f.count, f.created_at, f.finished_at
FROM json_each(?) AS asked CROSS JOIN firings AS f
WHERE f.job_id = asked.value AND (f.fire_at, f.region, f.idx) IN (
  SELECT n.fire_at, n.region, n.idx FROM firings AS n WHERE n.job_id = asked.value ORDER BY n.fire_at DESC, n.region, n.idx LIMIT ?)
ORDER BY f.job_id, f.fire_at DESC, f.region, f.idx;

-- missed: missed instants of the jobs of a namespace, recorded since an instant, newest first, among the latest rows without a run
SELECT j.name, f.job_id, f.fire_at, f.region, f.idx, f.kind, f.outcome, f.reason, f.run_id, f.request_id, f.last_at, f.count, f.created_at, f.finished_at
FROM (SELECT * FROM firings INDEXED BY firings_without_run WHERE run_id IS NULL AND created_at >= ? ORDER BY created_at DESC LIMIT ?) AS f
CROSS JOIN jobs AS j ON j.id = f.job_id
WHERE f.outcome = 'missed' AND j.namespace = ?
ORDER BY f.created_at DESC;

-- of_run: the row of the ledger whose run has an id, with its job, among the first jobs of a namespace. Each is searched by its key, between the
-- instants that the id stands for: a firing pays for no index
SELECT j.name, f.job_id, f.fire_at, f.region, f.idx, f.kind, f.outcome, f.reason, f.run_id, f.request_id, f.last_at, f.count, f.created_at, f.finished_at
FROM (SELECT id, name FROM jobs WHERE namespace = ?1 ORDER BY name LIMIT ?5) AS j
CROSS JOIN firings AS f ON f.job_id = j.id AND f.fire_at >= ?3 AND f.fire_at < ?4 AND f.run_id = ?2
LIMIT 1;

-- recede: let rows for stretches of instants begin after their first one, which is about to have a row of its own
UPDATE firings SET fire_at = fire_at + 1, count = max(count - 1, 0)
WHERE job_id = ? AND fire_at IN (SELECT value FROM json_each(?)) AND last_at > fire_at AND outcome IN ('missed', 'skipped')
  AND run_id IS NULL AND request_id IS NULL;

-- make_room: take instants out of the ledger that came to nothing
DELETE FROM firings
WHERE job_id = ? AND fire_at IN (SELECT value FROM json_each(?)) AND outcome IN ('missed', 'skipped') AND run_id IS NULL
  AND request_id IS NULL;

-- unknown_tasks: those of some tasks (namespace, name) that no worker has known lately, though some worker of the namespace lives
SELECT json_extract(asked.value, '$[0]'), json_extract(asked.value, '$[1]') FROM json_each(?1) AS asked
WHERE EXISTS (SELECT 1 FROM workers WHERE namespace = json_extract(asked.value, '$[0]') AND state = 'active' AND heartbeat_at > ?2)
  AND NOT EXISTS (SELECT 1 FROM workers AS w, json_each(w.tasks) AS known
                  WHERE w.namespace = json_extract(asked.value, '$[0]') AND w.heartbeat_at > ?3
                    AND known.value = json_extract(asked.value, '$[1]'));

-- waiting_jobs: those of some jobs of which a run waits for a worker
SELECT DISTINCT job_id FROM runs WHERE job_id IN (SELECT value FROM json_each(?)) AND state = 'pending';
