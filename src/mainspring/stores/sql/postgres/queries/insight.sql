-- paused: the queues of a namespace that are paused
SELECT queue, paused_at, reason FROM mainspring.paused_queues WHERE namespace = $1 ORDER BY queue;

-- pause: pause a queue; paused again, it takes the new reason
INSERT INTO mainspring.paused_queues (namespace, queue, paused_at, reason) VALUES ($1, $2, $3, $4)
ON CONFLICT (namespace, queue) DO UPDATE SET reason = excluded.reason
RETURNING queue, paused_at, reason;

-- resume: let a queue go on
DELETE FROM mainspring.paused_queues WHERE namespace = $1 AND queue = $2;

-- gates: how full gates are, and how many wait at each
SELECT g.name, g.used, g.capacity,
       (SELECT count(*) FROM (SELECT FROM mainspring.runs AS r WHERE r.blocked_on = g.name AND r.namespace = g.namespace LIMIT $2) AS waiting)
FROM mainspring.gates AS g WHERE g.namespace = $1 ORDER BY g.name LIMIT $2;

-- lines: the longest lines among the first places
SELECT name, max(capacity), count(*), (array_agg(run_id ORDER BY seq))[1]
FROM (SELECT name, capacity, run_id, seq FROM mainspring.lines WHERE namespace = $1 ORDER BY name, seq LIMIT $2) AS places
GROUP BY name ORDER BY count(*) DESC, name;

-- dependants: the runs that wait for a run
SELECT run_id FROM mainspring.edges WHERE upstream_id = $1 ORDER BY run_id LIMIT $2;

-- lines_of: the lines that a run stands in, and how many are before it
SELECT mine.name, mine.capacity,
       (SELECT count(*) FROM mainspring.lines AS b WHERE b.namespace = mine.namespace AND b.name = mine.name AND b.seq < mine.seq),
       (SELECT b.run_id FROM mainspring.lines AS b WHERE b.namespace = mine.namespace AND b.name = mine.name ORDER BY b.seq LIMIT 1)
FROM mainspring.lines AS mine WHERE mine.run_id = $1 ORDER BY mine.name;

-- dependent_jobs: the jobs that fire after a job
SELECT j.name FROM mainspring.upstreams AS u JOIN mainspring.jobs AS j ON j.id = u.job_id WHERE u.upstream_id = $1 ORDER BY j.name LIMIT $2;

-- first_position: the oldest event that is kept, and the newest that is public
SELECT (SELECT min(position) FROM mainspring.outbox WHERE position IS NOT NULL),
       (SELECT value FROM mainspring.counters WHERE name = 'event_position');

-- relayed_from: where the transaction that holds a position, or the next one, begins, and when it was relayed
SELECT position, created_at FROM mainspring.outbox WHERE position >= $1 ORDER BY position LIMIT 1;

-- tallied: up to where events are counted
SELECT value FROM mainspring.counters WHERE name = 'heard:tallies';

-- uncounted_since: when the oldest transaction was recorded whose events are not counted, be they public or not
SELECT created_at FROM (
  (SELECT created_at FROM mainspring.outbox
   WHERE position >= coalesce((SELECT value FROM mainspring.counters WHERE name = 'heard:tallies'), 0) ORDER BY position LIMIT 1)
  UNION ALL (SELECT created_at FROM mainspring.outbox WHERE position IS NULL ORDER BY seq LIMIT 1)) AS first
ORDER BY created_at LIMIT 1;

-- begin_tallied: note a first position; nothing if there is one
INSERT INTO mainspring.counters (name, value) VALUES ('heard:tallies', $1) ON CONFLICT (name) DO NOTHING;

-- note_tallied: up to where events are counted now, if they were counted up to where the caller believes
UPDATE mainspring.counters SET value = $1 WHERE name = 'heard:tallies' AND value = $2;

-- counts: what tallies have so far
SELECT t.namespace, t.kind, t.began_at, t.name, t.counts
FROM unnest($1::text[], $2::text[], $3::bigint[], $4::text[]) AS asked (namespace, kind, began_at, name)
CROSS JOIN LATERAL (
  SELECT * FROM mainspring.period_tallies AS p
  WHERE p.namespace = asked.namespace AND p.kind = asked.kind AND p.began_at = asked.began_at AND p.name = asked.name) AS t;

-- set_counts: what tallies have now
INSERT INTO mainspring.period_tallies (namespace, kind, began_at, name, counts)
SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::text[])
ON CONFLICT (namespace, kind, began_at, name) DO UPDATE SET counts = excluded.counts;

-- tallies: the tallies of some periods
SELECT namespace, kind, began_at, name, counts FROM mainspring.period_tallies
WHERE namespace = $1 AND kind = $2 AND began_at >= $3 AND began_at < $4 ORDER BY began_at, name LIMIT $5;

-- tallies_of: the tallies of one name
SELECT namespace, kind, began_at, name, counts FROM mainspring.period_tallies
WHERE namespace = $1 AND kind = $2 AND name = $3 AND began_at >= $4 AND began_at < $5 ORDER BY began_at LIMIT $6;

-- newest_tallies: the latest tallies of each of some names
SELECT t.namespace, t.kind, t.began_at, t.name, t.counts FROM unnest($3::text[]) AS asked (name)
CROSS JOIN LATERAL (
  SELECT * FROM mainspring.period_tallies AS n
  WHERE n.namespace = $1 AND n.kind = $2 AND n.name = asked.name AND n.began_at >= $4 ORDER BY n.began_at DESC LIMIT $5) AS t
ORDER BY t.name, t.began_at DESC;

-- see_errors: count failures in their groups; each group once
INSERT INTO mainspring.error_groups AS g (namespace, id, type, message, place, first_at, last_at, count, last_run)
SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::bigint[], $8::bigint[], $9::text[])
ON CONFLICT (namespace, id) DO UPDATE SET count = g.count + excluded.count, first_at = least(g.first_at, excluded.first_at),
  last_run = CASE WHEN excluded.last_at >= g.last_at THEN excluded.last_run ELSE g.last_run END, last_at = greatest(g.last_at, excluded.last_at);

-- keep_error_runs: failed runs belong to groups
INSERT INTO mainspring.error_runs (namespace, error, run_id)
SELECT * FROM unnest($1::text[], $2::text[], $3::text[]) ON CONFLICT DO NOTHING;

-- errors: groups that failed since an instant, and before a place in that order
SELECT id, type, message, place, first_at, last_at, count, last_run FROM mainspring.error_groups
WHERE namespace = $1 AND last_at >= $2 AND last_at <= $3 AND (last_at, id) < ($3, $4::text) ORDER BY last_at DESC, id DESC LIMIT $5;

-- error: a group
SELECT id, type, message, place, first_at, last_at, count, last_run FROM mainspring.error_groups WHERE namespace = $1 AND id = $2;

-- runs_of_error: the newest runs of a group
SELECT run_id FROM mainspring.error_runs
WHERE namespace = $1 AND error = $2 AND run_id >= $3 AND run_id < $4 ORDER BY run_id DESC LIMIT $5;

-- forget_tallies: delete old tallies
DELETE FROM mainspring.period_tallies WHERE (namespace, kind, began_at, name) IN (
  SELECT namespace, kind, began_at, name FROM mainspring.period_tallies WHERE began_at < $1 ORDER BY began_at LIMIT $2);

-- forget_error_runs: forget which group a run that is no longer kept belonged to
DELETE FROM mainspring.error_runs WHERE (namespace, error, run_id) IN (
  SELECT namespace, error, run_id FROM mainspring.error_runs WHERE run_id < $1 ORDER BY run_id LIMIT $2);

-- forget_errors: delete groups that failed long ago
DELETE FROM mainspring.error_groups WHERE last_at < $1;
