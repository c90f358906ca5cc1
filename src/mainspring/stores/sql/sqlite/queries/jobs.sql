-- {job}: the columns of a job, in the order of the fields of `core.model.Job`
id, name, task, "trigger", namespace, app, args, queue, priority, key, "limit", policy, options, next_fire_at, version,
paused_at, paused_why, fired, last_fire_at, created_at, updated_at, origin, source

-- find: the job of that name, or else of that id
SELECT {job} FROM jobs WHERE namespace = ?1 AND (name = ?2 OR id = ?2) ORDER BY name = ?2 DESC LIMIT 1;

-- by_id: these jobs
SELECT {job} FROM jobs WHERE id IN (SELECT value FROM json_each(?));

-- list: jobs in order of name, of one app or of all; a negative limit is none
SELECT {job} FROM jobs WHERE namespace = ?1 AND name > ?3 AND (?2 IS NULL OR app = ?2) ORDER BY name LIMIT ?4;

-- list_next: unpaused jobs that have a next fire time, soonest first, beyond a place
SELECT {job} FROM jobs WHERE namespace = ?1 AND paused_at IS NULL AND next_fire_at >= ?2 AND (next_fire_at, id) > (?2, ?3)
ORDER BY next_fire_at, id LIMIT ?4;

-- list_last: jobs that have fired, most recently fired first, beyond a place. Reads all jobs of the namespace: an index would cost every firing
SELECT {job} FROM jobs WHERE namespace = ?1 AND last_fire_at <= ?2 AND (last_fire_at, id) < (?2, ?3)
ORDER BY last_fire_at DESC, id DESC LIMIT ?4;

-- count: how many jobs a namespace has, and how many of them are paused, each up to a limit
SELECT (SELECT count(*) FROM (SELECT 1 FROM jobs WHERE namespace = ?1 LIMIT ?2)),
       (SELECT count(*) FROM (SELECT 1 FROM jobs WHERE namespace = ?1 AND paused_at IS NOT NULL LIMIT ?2));

-- list_paused: paused jobs, most recently paused first, beyond a place
SELECT {job} FROM jobs WHERE namespace = ?1 AND paused_at IS NOT NULL AND paused_at <= ?2 AND (paused_at, id) < (?2, ?3)
ORDER BY paused_at DESC, id DESC LIMIT ?4;

-- due: unpaused jobs whose next fire time has come, earliest first
SELECT {job} FROM jobs WHERE next_fire_at <= ? AND paused_at IS NULL ORDER BY next_fire_at LIMIT ?;

-- namespaces_due: those of which jobs are due, found from one to the next in the index
WITH RECURSIVE names (namespace) AS (
  SELECT min(namespace) FROM jobs WHERE next_fire_at IS NOT NULL AND paused_at IS NULL
  UNION ALL
  SELECT (SELECT min(j.namespace) FROM jobs AS j
          WHERE j.namespace > names.namespace AND j.next_fire_at IS NOT NULL AND j.paused_at IS NULL)
  FROM names WHERE names.namespace IS NOT NULL)
SELECT n.namespace FROM names AS n
WHERE EXISTS (SELECT 1 FROM jobs AS d WHERE d.namespace = n.namespace AND d.next_fire_at <= ?1 AND d.paused_at IS NULL);

-- due_in_namespace: the same as `due`, of one namespace
SELECT {job} FROM jobs WHERE namespace = ?1 AND next_fire_at <= ?2 AND paused_at IS NULL ORDER BY next_fire_at LIMIT ?3;

-- changed: jobs edited, paused, resumed or made due after a change number
SELECT {job} FROM jobs WHERE changed > ? ORDER BY changed LIMIT ?;

-- by_name: those of the names that exist
SELECT {job} FROM jobs WHERE namespace = ? AND name IN (SELECT value FROM json_each(?));

-- adopt: note where a job comes from
UPDATE jobs SET origin = ?2, source = ?3 WHERE id = ?1;

-- of_code: of the next names in a namespace, those of jobs that came from the code of an app; and the last one that was looked at
WITH page AS MATERIALIZED (
  SELECT name, app, origin, source FROM jobs WHERE namespace = ?1 AND name > ?4 ORDER BY name LIMIT ?5)
SELECT name, 1 FROM page WHERE app = ?2 AND origin = 'code' AND source = ?3
UNION ALL
SELECT max(name), 0 FROM page HAVING count(*) > 0;

-- ids_by_name: the ids of those of the names that exist
SELECT name, id FROM jobs WHERE namespace = ? AND name IN (SELECT value FROM json_each(?));

-- insert: store a new job
INSERT INTO jobs (id, namespace, name, app, task, args, queue, priority, key, "limit", "trigger", policy, options, next_fire_at, version,
                  changed, paused_at, paused_why, fired, last_fire_at, created_at, updated_at, origin, source)
VALUES (:id, :namespace, :name, :app, :task, :args, :queue, :priority, :key, :limit, :trigger, :policy, :options, :next_fire_at, :version,
        :changed, :paused_at, :paused_why, :fired, :last_fire_at, :created_at, :updated_at, :origin, :source);

-- revise: replace a definition, if it is still the one before
UPDATE jobs SET task = :task, args = :args, queue = :queue, priority = :priority, key = :key, "limit" = :limit, "trigger" = :trigger,
                policy = :policy, options = :options, next_fire_at = :next_fire_at, version = :version, changed = :changed,
                updated_at = :updated_at, origin = :origin, source = :source
WHERE id = :id AND version = :version - 1;

-- set_paused: stop firing, or fire again
UPDATE jobs SET paused_at = ?2, paused_why = ?3, next_fire_at = ?4 WHERE id = ?1 AND (paused_at IS NULL) <> (?2 IS NULL);

-- fired_ahead: runs of jobs that were fired for instants to come, and wait for them
SELECT id FROM runs INDEXED BY runs_of_job
WHERE job_id IN (SELECT value FROM json_each(?1)) AND state = 'pending' AND fire_at > ?2 AND due_at > ?2;

-- remove: forget a definition
DELETE FROM jobs WHERE id = ?;

-- next_change: number an edit
UPDATE counters SET value = value + 1 WHERE name = 'job_changes' RETURNING value;

-- mark_changed: number a change of these jobs
UPDATE jobs SET changed = ?2 WHERE id IN (SELECT value FROM json_each(?1));

-- newest_change: the number of the newest edit
SELECT value FROM counters WHERE name = 'job_changes';

-- edges: what an `after` job knows of its upstreams
SELECT u.job_id, u.upstream_id, coalesce(j.name, u.upstream_id), u.consumed_at, u.latest_at, u.latest_outcome
FROM upstreams AS u LEFT JOIN jobs AS j ON j.id = u.upstream_id WHERE u.job_id = ? ORDER BY u.upstream_id;

-- edge_names: which job fires after which in a namespace
SELECT down.name, up.name FROM upstreams AS u JOIN jobs AS down ON down.id = u.job_id JOIN jobs AS up ON up.id = u.upstream_id
WHERE down.namespace = ?;

-- add_edge: let a job fire after another; one that does already keeps what it has used
INSERT INTO upstreams (job_id, upstream_id, consumed_at, latest_at, latest_outcome) VALUES (?1, ?2, ?3, ?3, ?4) ON CONFLICT DO NOTHING;

-- drop_edges: forget all upstreams of a job but these
DELETE FROM upstreams WHERE job_id = ? AND upstream_id NOT IN (SELECT value FROM json_each(?));

-- newest_ended: the newest firing of a job whose runs have all ended
SELECT fire_at FROM firings AS f WHERE job_id = ?1 AND run_id IS NOT NULL AND outcome <> 'fired'
  AND NOT EXISTS (SELECT 1 FROM firings WHERE job_id = ?1 AND fire_at = f.fire_at AND outcome = 'fired')
ORDER BY fire_at DESC LIMIT 1;

-- downstream: the names of the jobs that fire after a job
SELECT j.name FROM upstreams AS u JOIN jobs AS j ON j.id = u.job_id WHERE u.upstream_id = ? ORDER BY j.name;

-- calendars: all calendars of a namespace
SELECT name, definition FROM calendars WHERE namespace = ? ORDER BY name;

-- save_calendar: create or replace a calendar
INSERT INTO calendars (namespace, name, definition, updated_at) VALUES (?, ?, ?, ?)
ON CONFLICT (namespace, name) DO UPDATE SET definition = excluded.definition, updated_at = excluded.updated_at;

-- remove_calendar: forget a calendar
DELETE FROM calendars WHERE namespace = ? AND name = ?;

-- with_calendars: the jobs of a namespace that obey calendars, which, and their names
SELECT id, json_extract(policy, '$.calendars'), name FROM jobs WHERE namespace = ? AND json_extract(policy, '$.calendars') IS NOT NULL;

-- postpone: let planners find the next fire times of jobs whose calendar has changed
UPDATE jobs SET next_fire_at = CASE WHEN next_fire_at <= ?3 THEN next_fire_at ELSE ?2 END, version = version + 1
WHERE id IN (SELECT value FROM json_each(?1)) AND json_extract("trigger", '$.kind') NOT IN ('after', 'manual');

-- zones: with which zone data fire times are computed: see `core.planning.zone_data`
SELECT value FROM facts WHERE name = 'zones';

-- save_zones: note the zone data
INSERT INTO facts (name, value) VALUES ('zones', ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value;

-- in_zones: of the next jobs by id, the cron jobs that follow a zone with changes; and the last one that was looked at, if there are more
WITH page AS MATERIALIZED (SELECT id, "trigger" FROM jobs WHERE id > ?1 ORDER BY id LIMIT ?2)
SELECT id, 1 FROM page WHERE json_extract("trigger", '$.kind') = 'cron' AND coalesce(json_extract("trigger", '$.tz'), 'UTC') <> 'UTC'
UNION ALL
SELECT max(id), 0 FROM page HAVING count(*) = ?2;
