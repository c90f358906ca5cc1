-- paused: the queues of a namespace that are paused
SELECT queue, paused_at, reason FROM paused_queues WHERE namespace = ? ORDER BY queue;

-- pause: pause a queue; paused again, it takes the new reason
INSERT INTO paused_queues (namespace, queue, paused_at, reason) VALUES (?, ?, ?, ?)
ON CONFLICT (namespace, queue) DO UPDATE SET reason = excluded.reason
RETURNING queue, paused_at, reason;

-- resume: let a queue go on
DELETE FROM paused_queues WHERE namespace = ? AND queue = ?;

-- gates: how full gates are, and how many wait at each
SELECT g.name, g.used, g.capacity,
       (SELECT count(*) FROM (SELECT 1 FROM runs AS r WHERE r.blocked_on = g.name AND r.namespace = g.namespace LIMIT ?2))
FROM gates AS g WHERE g.namespace = ?1 ORDER BY g.name LIMIT ?2;

-- lines: the longest lines among the first places
SELECT name, max(capacity), count(*), run_id FROM (SELECT name, capacity, run_id, seq FROM lines WHERE namespace = ?1 ORDER BY name, seq LIMIT ?2)
GROUP BY name HAVING seq = min(seq) ORDER BY count(*) DESC, name;

-- dependants: the runs that wait for a run
SELECT run_id FROM edges WHERE upstream_id = ? ORDER BY run_id LIMIT ?;

-- lines_of: the lines that a run stands in, and how many are before it
SELECT mine.name, mine.capacity,
       (SELECT count(*) FROM lines AS b WHERE b.namespace = mine.namespace AND b.name = mine.name AND b.seq < mine.seq),
       (SELECT b.run_id FROM lines AS b WHERE b.namespace = mine.namespace AND b.name = mine.name ORDER BY b.seq LIMIT 1)
FROM lines AS mine WHERE mine.run_id = ? ORDER BY mine.name;

-- dependent_jobs: the jobs that fire after a job
SELECT j.name FROM upstreams AS u CROSS JOIN jobs AS j ON j.id = u.job_id WHERE u.upstream_id = ? ORDER BY j.name LIMIT ?;

-- first_position: the oldest event that is kept, and the newest that is public
SELECT (SELECT position FROM outbox ORDER BY position LIMIT 1), (SELECT value FROM counters WHERE name = 'event_position');

-- relayed_from: where the transaction that holds a position, or the next one, begins, and when it was relayed
SELECT position, created_at FROM outbox WHERE position >= ? ORDER BY position LIMIT 1;

-- tallied: up to where events are counted
SELECT value FROM counters WHERE name = 'heard:tallies';

-- uncounted_since: when the oldest transaction was recorded whose events are not counted, be they public or not
SELECT created_at FROM outbox WHERE position >= coalesce((SELECT value FROM counters WHERE name = 'heard:tallies'), 0) ORDER BY position LIMIT 1;

-- note_tallied: up to where events are counted now
INSERT INTO counters (name, value) VALUES ('heard:tallies', ?1) ON CONFLICT (name) DO UPDATE SET value = ?1;

-- counts: what a tally has so far
SELECT counts FROM period_tallies WHERE namespace = ? AND kind = ? AND began_at = ? AND name = ?;

-- set_counts: what a tally has now
INSERT INTO period_tallies (namespace, kind, began_at, name, counts) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (namespace, kind, began_at, name) DO UPDATE SET counts = excluded.counts;

-- tallies: the tallies of some periods
SELECT namespace, kind, began_at, name, counts FROM period_tallies
WHERE namespace = ? AND kind = ? AND began_at >= ? AND began_at < ? ORDER BY began_at, name LIMIT ?;

-- tallies_of: the tallies of one name
SELECT namespace, kind, began_at, name, counts FROM period_tallies
WHERE namespace = ? AND kind = ? AND name = ? AND began_at >= ? AND began_at < ? ORDER BY began_at LIMIT ?;

-- newest_tallies: the latest tallies of each of some names
SELECT t.namespace, t.kind, t.began_at, t.name, t.counts FROM json_each(?3) AS asked CROSS JOIN period_tallies AS t
WHERE t.namespace = ?1 AND t.kind = ?2 AND t.name = asked.value AND t.began_at IN (
  SELECT n.began_at FROM period_tallies AS n
  WHERE n.namespace = ?1 AND n.kind = ?2 AND n.name = asked.value AND n.began_at >= ?4 ORDER BY n.began_at DESC LIMIT ?5)
ORDER BY t.name, t.began_at DESC;

-- see_error: count a failure in its group
INSERT INTO error_groups (namespace, id, type, message, place, first_at, last_at, count, last_run) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?6, 1, ?7)
ON CONFLICT (namespace, id) DO UPDATE SET count = count + 1, first_at = min(first_at, excluded.first_at),
  last_run = CASE WHEN excluded.last_at >= last_at THEN excluded.last_run ELSE last_run END, last_at = max(last_at, excluded.last_at);

-- keep_error_run: a failed run belongs to a group
INSERT OR IGNORE INTO error_runs (namespace, error, run_id) VALUES (?, ?, ?);

-- errors: groups that failed since an instant, and before a place in that order
SELECT id, type, message, place, first_at, last_at, count, last_run FROM error_groups
WHERE namespace = ?1 AND last_at >= ?2 AND (last_at, id) < (?3, ?4) ORDER BY last_at DESC, id DESC LIMIT ?5;

-- error: a group
SELECT id, type, message, place, first_at, last_at, count, last_run FROM error_groups WHERE namespace = ? AND id = ?;

-- runs_of_error: the newest runs of a group
SELECT run_id FROM error_runs WHERE namespace = ? AND error = ? AND run_id >= ? AND run_id < ? ORDER BY run_id DESC LIMIT ?;

-- forget_tallies: delete old tallies
DELETE FROM period_tallies WHERE (namespace, kind, began_at, name) IN (
  SELECT namespace, kind, began_at, name FROM period_tallies WHERE began_at < ?1 ORDER BY began_at LIMIT ?2);

-- forget_error_runs: forget which group a run that is no longer kept belonged to
DELETE FROM error_runs WHERE (namespace, error, run_id) IN (
  SELECT namespace, error, run_id FROM error_runs WHERE run_id < ?1 ORDER BY run_id LIMIT ?2);

-- forget_errors: delete groups that failed long ago
DELETE FROM error_groups WHERE last_at < ?1;
