-- {job}: the columns of a job, in the order of the fields of `core.model.Job`
id, name, task, "trigger", namespace, app, args, queue, priority, key, "limit", policy, options, next_fire_at, version,
paused_at, paused_why, fired, last_fire_at, created_at, updated_at, origin, source

-- find: the job of that name, or else of that id
SELECT {job} FROM mainspring.jobs WHERE namespace = $1 AND (name = $2 OR id = $2) ORDER BY name = $2 DESC LIMIT 1;

-- by_id: these jobs
SELECT {job} FROM mainspring.jobs WHERE id = ANY ($1);

-- hold: these jobs, locked, so that no other transaction fires or changes them
SELECT {job} FROM mainspring.jobs WHERE id = ANY ($1) ORDER BY id FOR UPDATE;

-- list: jobs in order of name, of one app or of all
SELECT {job} FROM mainspring.jobs WHERE namespace = $1 AND name > $3 AND ($2::text IS NULL OR app = $2) ORDER BY name LIMIT $4;

-- list_next: unpaused jobs that have a next fire time, soonest first, beyond a place
SELECT {job} FROM mainspring.jobs WHERE namespace = $1 AND paused_at IS NULL AND next_fire_at >= $2::bigint AND (next_fire_at, id) > ($2::bigint, $3)
ORDER BY next_fire_at, id LIMIT $4;

-- list_last: jobs that have fired, most recently fired first, beyond a place. Reads all jobs of the namespace: an index would cost every firing
SELECT {job} FROM mainspring.jobs WHERE namespace = $1 AND last_fire_at <= $2::bigint AND (last_fire_at, id) < ($2::bigint, $3)
ORDER BY last_fire_at DESC, id DESC LIMIT $4;

-- count: how many jobs a namespace has, and how many of them are paused, each up to a limit
SELECT (SELECT count(*) FROM (SELECT 1 FROM mainspring.jobs WHERE namespace = $1 LIMIT $2) AS found),
       (SELECT count(*) FROM (SELECT 1 FROM mainspring.jobs WHERE namespace = $1 AND paused_at IS NOT NULL LIMIT $2) AS found);

-- list_paused: paused jobs, most recently paused first, beyond a place
SELECT {job} FROM mainspring.jobs WHERE namespace = $1 AND paused_at IS NOT NULL AND paused_at <= $2::bigint AND (paused_at, id) < ($2::bigint, $3)
ORDER BY paused_at DESC, id DESC LIMIT $4;

-- due: unpaused jobs whose next fire time has come, earliest first
SELECT {job} FROM mainspring.jobs WHERE next_fire_at <= $1 AND paused_at IS NULL ORDER BY next_fire_at LIMIT $2;

-- namespaces_due: those of which jobs are due, found from one to the next in the index
WITH RECURSIVE names AS (
  (SELECT namespace FROM mainspring.jobs WHERE namespace >= '' AND next_fire_at IS NOT NULL AND paused_at IS NULL ORDER BY namespace LIMIT 1)
  UNION ALL
  SELECT n.namespace FROM names AS h CROSS JOIN LATERAL (
    SELECT namespace FROM mainspring.jobs
    WHERE namespace > h.namespace AND next_fire_at IS NOT NULL AND paused_at IS NULL ORDER BY namespace LIMIT 1) AS n
)
SELECT n.namespace FROM names AS n WHERE EXISTS (
  SELECT FROM mainspring.jobs AS d WHERE d.namespace = n.namespace AND d.next_fire_at <= $1 AND d.paused_at IS NULL);

-- due_in_shares: the same as `due`, with a limit for each namespace
SELECT {job}
FROM unnest($1::text[]) AS asked (owner) CROSS JOIN LATERAL (
  SELECT * FROM mainspring.jobs AS d WHERE d.namespace = asked.owner AND d.next_fire_at <= $2 AND d.paused_at IS NULL
  ORDER BY d.next_fire_at LIMIT $3) AS j
ORDER BY j.next_fire_at LIMIT $4;

-- changed: jobs edited, paused, resumed or made due after a change number
SELECT {job}
FROM mainspring.changes AS c CROSS JOIN LATERAL (SELECT * FROM mainspring.jobs WHERE id = c.job_id OFFSET 0) AS j
WHERE c.number > $1 ORDER BY c.number LIMIT $2;

-- by_name: those of the names that exist
SELECT {job} FROM mainspring.jobs WHERE namespace = $1 AND name = ANY ($2);

-- adopt: note where a job comes from
UPDATE mainspring.jobs SET origin = $2, source = $3 WHERE id = $1;

-- of_code: of the next names in a namespace, those of jobs that came from the code of an app; and the last one that was looked at
WITH page AS MATERIALIZED (
  SELECT name, app, origin, source FROM mainspring.jobs WHERE namespace = $1 AND name > $4 ORDER BY name LIMIT $5)
SELECT name, true FROM page WHERE app = $2 AND origin = 'code' AND source = $3
UNION ALL
SELECT max(name), false FROM page HAVING count(*) > 0;

-- ids_by_name: the ids of those of the names that exist
SELECT name, id FROM mainspring.jobs WHERE namespace = $1 AND name = ANY ($2);

-- insert: store a new job
INSERT INTO mainspring.jobs (id, name, task, "trigger", namespace, app, args, queue, priority, key, "limit", policy, options, next_fire_at,
                             version, paused_at, paused_why, fired, last_fire_at, created_at, updated_at, origin, source)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23);

-- revise: replace a definition, if it is still the one before
UPDATE mainspring.jobs SET task = $3, "trigger" = $4, args = $5, queue = $6, priority = $7, key = $8, "limit" = $9, policy = $10,
                           options = $11, next_fire_at = $12, version = $2, updated_at = $13, origin = $14, source = $15
WHERE id = $1 AND version = $2 - 1;

-- set_paused: stop firing, or fire again
UPDATE mainspring.jobs SET paused_at = $2, paused_why = $3, next_fire_at = $4 WHERE id = $1 AND (paused_at IS NULL) <> ($2::bigint IS NULL);

-- fired_ahead: runs of jobs that were fired for instants to come, and wait for them
SELECT id FROM mainspring.runs WHERE job_id = ANY ($1) AND state = 'pending' AND fire_at > $2 AND due_at > $2;

-- remove: forget a definition
WITH unchanged AS (DELETE FROM mainspring.changes WHERE job_id = $1) DELETE FROM mainspring.jobs WHERE id = $1;

-- lock_changes: keep other transactions from changing jobs
SELECT value FROM mainspring.counters WHERE name = 'job_changes' FOR UPDATE;

-- mark_changed: number a change of these jobs
WITH change AS (UPDATE mainspring.counters SET value = value + 1 WHERE name = 'job_changes' RETURNING value)
INSERT INTO mainspring.changes (job_id, number) SELECT job_id, value FROM unnest($1::text[]) AS job_id, change
ON CONFLICT (job_id) DO UPDATE SET number = excluded.number;

-- newest_change: the number of the newest edit
SELECT value FROM mainspring.counters WHERE name = 'job_changes';

-- edges: what an `after` job knows of its upstreams
SELECT u.job_id, u.upstream_id, coalesce(j.name, u.upstream_id), u.consumed_at, u.latest_at, u.latest_outcome
FROM mainspring.upstreams AS u LEFT JOIN mainspring.jobs AS j ON j.id = u.upstream_id WHERE u.job_id = $1 ORDER BY u.upstream_id;

-- edge_names: which job fires after which in a namespace
SELECT down.name, up.name FROM mainspring.upstreams AS u
JOIN mainspring.jobs AS down ON down.id = u.job_id JOIN mainspring.jobs AS up ON up.id = u.upstream_id
WHERE down.namespace = $1;

-- add_edge: let a job fire after another; one that does already keeps what it has used
INSERT INTO mainspring.upstreams (job_id, upstream_id, consumed_at, latest_at, latest_outcome) VALUES ($1, $2, $3, $3, $4)
ON CONFLICT DO NOTHING;

-- drop_edges: forget all upstreams of a job but these
DELETE FROM mainspring.upstreams WHERE job_id = $1 AND upstream_id <> ALL ($2);

-- newest_ended: the newest firing of a job whose runs have all ended
SELECT fire_at FROM mainspring.firings AS f WHERE job_id = $1 AND run_id IS NOT NULL AND outcome <> 'fired'
  AND NOT EXISTS (SELECT FROM mainspring.firings WHERE job_id = $1 AND fire_at = f.fire_at AND outcome = 'fired')
ORDER BY fire_at DESC LIMIT 1;

-- downstream: the names of the jobs that fire after a job
SELECT j.name FROM mainspring.upstreams AS u JOIN mainspring.jobs AS j ON j.id = u.job_id WHERE u.upstream_id = $1 ORDER BY j.name;

-- calendars: all calendars of a namespace
SELECT name, definition FROM mainspring.calendars WHERE namespace = $1 ORDER BY name;

-- save_calendar: create or replace a calendar
INSERT INTO mainspring.calendars (namespace, name, definition, updated_at) VALUES ($1, $2, $3, $4)
ON CONFLICT (namespace, name) DO UPDATE SET definition = excluded.definition, updated_at = excluded.updated_at;

-- remove_calendar: forget a calendar
DELETE FROM mainspring.calendars WHERE namespace = $1 AND name = $2;

-- with_calendars: the jobs of a namespace that obey calendars, which, and their names
SELECT id, (policy::json -> 'calendars')::text, name FROM mainspring.jobs WHERE namespace = $1 AND policy::json -> 'calendars' IS NOT NULL;

-- postpone: let planners find the next fire times of jobs whose calendar has changed
UPDATE mainspring.jobs SET next_fire_at = CASE WHEN next_fire_at <= $3 THEN next_fire_at ELSE $2 END, version = version + 1
WHERE id = ANY (ARRAY(SELECT id FROM mainspring.jobs WHERE id = ANY ($1) AND "trigger"::json ->> 'kind' NOT IN ('after', 'manual')
                      ORDER BY id FOR UPDATE));

-- zones: with which zone data fire times are computed: see `core.planning.zone_data`
SELECT value FROM mainspring.facts WHERE name = 'zones';

-- save_zones: note the zone data
INSERT INTO mainspring.facts (name, value) VALUES ('zones', $1) ON CONFLICT (name) DO UPDATE SET value = excluded.value;

-- in_zones: of the next jobs by id, the cron jobs that follow a zone with changes; and the last one that was looked at, if there are more
WITH page AS MATERIALIZED (SELECT id, "trigger" FROM mainspring.jobs WHERE id > $1 ORDER BY id LIMIT $2)
SELECT id, true FROM page WHERE "trigger"::json ->> 'kind' = 'cron' AND coalesce("trigger"::json ->> 'tz', 'UTC') <> 'UTC'
UNION ALL
SELECT max(id), false FROM page HAVING count(*) = $2;
