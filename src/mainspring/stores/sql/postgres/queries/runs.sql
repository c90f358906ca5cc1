-- {unfinished}: the columns of a run that has not ended, in the order of `rows.run_rows.RUN_FIELDS`
id, namespace, queue, region, task, args, state, reason, priority, due_at, created_at, options, expires_at, job_id, job, fire_at,
idx, key, token, attempt, losses, worker, claimed_until, started_at, NULL, cancel_requested_at, cancel_reason, waits_for,
blocked_on, progress, progress_note, NULL, NULL, retry_of,
CASE WHEN attempt > 0 OR losses > 0 THEN (
  SELECT max(a.finished_at) FROM mainspring.attempts AS a WHERE a.run_id = runs.id AND a.finished_at >= runs.created_at) END

-- {finished}: the same of a run that has ended
id, namespace, queue, region, task, args, state, reason, priority, due_at, created_at, options, expires_at, job_id, job, fire_at,
idx, key, token, attempt, losses, worker, NULL, started_at, finished_at, cancel_requested_at, cancel_reason, 0,
NULL, progress, progress_note, result, error, retry_of, finished_at

-- accept_run: accept one run that waits for nothing but its time, and wake a worker; it is the whole transaction, and more. See
-- ../functions/accept_run.sql
CALL mainspring.accept_run($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26);

-- insert: accept runs, given as JSON, in this order, except those that exist. JSON, because a driver takes longer to encode a few columns of a
-- few rows each than the server to read it. With events ($3) the statement is the whole transaction: it also takes back runs that had ended
-- before (not before $2), and writes the events of those that it accepted, and the rows of the audit trail. Without, the caller does
WITH given AS MATERIALIZED (
  SELECT * FROM json_to_recordset($1::json) AS run (id text, namespace text, queue text, region text, task text, args text, options text,
    state text, priority smallint, due_at bigint, expires_at bigint, job_id text, job text, fire_at bigint, idx integer, key text,
    gate_names text[], line_count integer, waits_for integer, dependants boolean, retry_of text, created_at bigint, noted_for text,
    request_id text)),
new AS (
  INSERT INTO mainspring.runs (id, namespace, queue, region, task, args, options, state, priority, special, due_at, expires_at, job_id, job,
                               fire_at, idx, key, gates, lines, waits_for, dependants, retry_of, created_at)
  SELECT id, namespace, queue, region, task, args, options, coalesce(state, 'pending'), priority,
         gate_names IS NOT NULL OR expires_at IS NOT NULL, due_at, expires_at, job_id, job, fire_at, idx, key, gate_names,
         coalesce(line_count, 0), coalesce(waits_for, 0), coalesce(dependants, false), retry_of, created_at
  FROM given
  ON CONFLICT (id) DO NOTHING
  RETURNING id, seq, CASE WHEN $3::text IS NULL THEN false ELSE mainspring.withdraw_if_ended(id, $2) END AS known),
kept AS MATERIALIZED (SELECT id, seq FROM new WHERE NOT known),
noted AS (
  INSERT INTO mainspring.audit (namespace, at, subject, action, target, after, request_id)
  SELECT namespace, $5, noted_for, 'run.submit', 'run:' || id, json_build_object('task', task, 'queue', queue, 'priority', priority)::text,
         request_id
  FROM given JOIN kept USING (id) WHERE $3 IS NOT NULL AND noted_for <> ''),
logged AS (
  INSERT INTO mainspring.outbox (count, events, created_at)
  SELECT kept.count, CASE WHEN kept.count = $4::integer THEN $3 ELSE (
           SELECT '[' || string_agg(event::text, ',') || ']' FROM json_array_elements($3::json) AS event
           WHERE event ->> 'run_id' IN (SELECT id FROM kept)) END, $5
  FROM (SELECT count(*)::integer AS count FROM kept) AS kept WHERE $3 IS NOT NULL AND kept.count > 0)
SELECT id, seq FROM kept;

-- insert_alike: accept many runs that differ only in id and arguments, and of which none exists: it fails if one does. To look each one up costs
-- as much again as to write it. Ids and arguments come as one text each: a driver takes longer to encode ten thousand texts than the server
-- to split one
INSERT INTO mainspring.runs (state, id, args, special, namespace, queue, region, task, options, priority, due_at, expires_at, job_id, job,
                             fire_at, idx, key, retry_of, created_at)
SELECT 'pending', unnest(string_to_array($1, chr(31))), unnest(string_to_array($2, chr(31))), $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13,
       $14, $15, $16, $17, $18;

-- known: those of the ids that exist, unfinished or finished
SELECT id FROM mainspring.runs WHERE id = ANY ($1::text[])
UNION ALL
SELECT id FROM mainspring.history WHERE id = ANY ($1::text[]) AND finished_at >= :since;

-- ended: those of the ids that have ended
SELECT id FROM mainspring.history WHERE id = ANY ($1::text[]) AND finished_at >= :since;

-- ended_between: runs that have ended whose ids lie between these
SELECT id FROM mainspring.history WHERE id BETWEEN $1 AND $2 AND finished_at >= :since;

-- withdraw: take back runs that were accepted although they had ended before
DELETE FROM mainspring.runs WHERE id = ANY ($1::text[]);

-- lock_upstreams: keep runs from ending unnoticed while others begin to wait for them
SELECT id, namespace, state FROM mainspring.runs WHERE id = ANY ($1::text[]) ORDER BY id FOR UPDATE;

-- ended_upstreams: how runs ended
SELECT id, namespace, state FROM mainspring.history WHERE id = ANY ($1::text[]) AND finished_at >= $2;

-- mark_upstreams: remember that others wait for these runs
UPDATE mainspring.runs SET dependants = true WHERE id = ANY ($1::text[]) AND NOT dependants;

-- add_edges: let runs wait for others
INSERT INTO mainspring.edges (upstream_id, run_id, "when", on_failure) SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]);

-- join_lines: stand in lines
INSERT INTO mainspring.lines (namespace, name, seq, run_id, capacity, granted)
SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::integer[], $6::boolean[]);

-- line_places: how many places of each line are taken, counted up to the asked number, and whether a run waits
SELECT asked.namespace, asked.name,
       (SELECT count(*) FROM (SELECT FROM mainspring.lines AS l WHERE l.namespace = asked.namespace AND l.name = asked.name AND l.granted
                              LIMIT asked.capacity) AS taken),
       EXISTS (SELECT FROM mainspring.lines AS l WHERE l.namespace = asked.namespace AND l.name = asked.name AND NOT l.granted)
FROM unnest($1::text[], $2::text[], $3::integer[]) AS asked (namespace, name, capacity);

-- keep_gates: the gates of a namespace that exist; those of firings, which a cleaner may delete, are kept from that
WITH lasting AS (SELECT name, capacity FROM mainspring.gates WHERE namespace = $1 AND name = ANY ($2::text[])),
     passing AS (SELECT name, capacity FROM mainspring.gates WHERE namespace = $1 AND name = ANY ($3::text[]) ORDER BY name FOR KEY SHARE)
SELECT name, capacity FROM lasting UNION ALL SELECT name, capacity FROM passing;

-- save_gates: create gates, or take over their newest capacities
INSERT INTO mainspring.gates (namespace, name, capacity) SELECT $1, name, capacity FROM unnest($2::text[], $3::integer[]) AS new (name, capacity)
ON CONFLICT (namespace, name) DO UPDATE SET capacity = excluded.capacity;

-- remember: keep the answers to idempotency keys, in order of key, unless there are some that have not expired; those that are kept
INSERT INTO mainspring.submissions AS s (namespace, key, fingerprint, answer, expires_at)
SELECT namespace, key, fingerprint, answer, $6
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) AS new (namespace, key, fingerprint, answer)
ON CONFLICT (namespace, key)
  DO UPDATE SET fingerprint = excluded.fingerprint, answer = excluded.answer, expires_at = excluded.expires_at WHERE s.expires_at <= $5
RETURNING namespace, key;

-- recall: the answers to idempotency keys
SELECT asked.namespace, asked.key, s.fingerprint, s.answer
FROM unnest($1::text[], $2::text[]) AS asked (namespace, key)
CROSS JOIN LATERAL (SELECT fingerprint, answer FROM mainspring.submissions AS s WHERE s.namespace = asked.namespace AND s.key = asked.key
                    OFFSET 0) AS s;

-- lock_waiting: those of these runs that wait to start, locked, so that none is claimed before the commit
SELECT id FROM mainspring.runs WHERE id = ANY ($1) AND state IN ('blocked', 'pending') ORDER BY id FOR UPDATE;

-- replace_answers: let unique keys stand for other runs
UPDATE mainspring.submissions AS s SET fingerprint = new.fingerprint, answer = new.answer, expires_at = $5
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) AS new (namespace, key, fingerprint, answer)
WHERE s.namespace = new.namespace AND s.key = new.key;

-- get: one run, unfinished or finished
SELECT {unfinished} FROM mainspring.runs WHERE id = $1
UNION ALL
SELECT {finished} FROM mainspring.history WHERE id = $1 AND finished_at >= $2;

-- finished: those of the ids that have ended
SELECT {finished} FROM mainspring.history WHERE id = ANY ($1::text[]) AND finished_at >= $2;

-- list_active: unfinished runs, newest first
SELECT {unfinished} FROM mainspring.runs
WHERE namespace = $1 AND id >= coalesce($2::text, '') AND id < coalesce($3::text, '~') AND ($5::text[] IS NULL OR state = ANY ($5))
  AND ($6::text IS NULL OR job = $6) AND ($7::text IS NULL OR task = $7) AND ($8::text IS NULL OR queue = $8)
  AND ($9::text IS NULL OR options::jsonb -> 'tags' ? $9) AND ($10::text IS NULL OR worker = $10) AND ($11::text IS NULL OR region = $11)
  AND ($12::text IS NULL OR options::json ->> 'submitted_by' = $12)
ORDER BY id DESC LIMIT $4;

-- active: the unfinished runs of a namespace in some states, from one queue to another, up to a bound; ordered, so that it goes by an index
(SELECT id FROM mainspring.runs WHERE state = 'pending' AND namespace = $1 AND queue >= $2 AND queue <= $3 AND 'pending' = ANY ($4::text[])
 ORDER BY queue, region, priority, due_at, seq LIMIT $5)
UNION ALL
(SELECT id FROM mainspring.runs WHERE state = 'running' AND namespace = $1 AND queue >= $2 AND queue <= $3 AND 'running' = ANY ($4)
 ORDER BY claimed_until LIMIT $5)
UNION ALL
(SELECT id FROM mainspring.runs WHERE state = 'blocked' AND namespace = $1 AND queue >= $2 AND queue <= $3 AND 'blocked' = ANY ($4)
 ORDER BY queue LIMIT $5);

-- ids_of_job: unfinished runs of a job that a filter fits, newest first. Id and state are compared in ways that no other
-- index has: also a plan that was made while the table was empty goes by this one
SELECT id FROM mainspring.runs
WHERE namespace = $1 AND job = $6::text AND id || '' >= coalesce($2::text, '') AND id || '' < coalesce($3::text, '~')
  AND job IS NOT NULL AND state || '' = ANY ($5::text[]) AND ($7::text IS NULL OR task = $7) AND ($8::text IS NULL OR queue = $8)
  AND ($9::text IS NULL OR options::jsonb -> 'tags' ? $9) AND ($10::text IS NULL OR worker = $10) AND ($11::text IS NULL OR region = $11)
  AND ($12::text IS NULL OR options::json ->> 'submitted_by' = $12)
ORDER BY id || '' DESC LIMIT $4;

-- ids_of_task: the same of a task, of runs that are not running
SELECT id FROM mainspring.runs
WHERE namespace = $1 AND task = $7::text AND id || '' >= coalesce($2::text, '') AND id || '' < coalesce($3::text, '~')
  AND state <> 'running' AND state || '' = ANY ($5::text[]) AND ($6::text IS NULL OR job = $6) AND ($8::text IS NULL OR queue = $8)
  AND ($9::text IS NULL OR options::jsonb -> 'tags' ? $9) AND ($10::text IS NULL OR worker = $10) AND ($11::text IS NULL OR region = $11)
  AND ($12::text IS NULL OR options::json ->> 'submitted_by' = $12)
ORDER BY id || '' DESC LIMIT $4;

-- ids_of_tag: the same of a tag
SELECT t.id FROM (
  SELECT id FROM mainspring.run_tags
  WHERE namespace = $1 AND tag = $9::text AND id >= coalesce($2::text, '') AND id < coalesce($3::text, '~') ORDER BY id DESC) AS t
CROSS JOIN LATERAL (
  SELECT FROM mainspring.runs AS r
  WHERE r.id = t.id AND r.state = ANY ($5::text[]) AND ($6::text IS NULL OR r.job = $6) AND ($7::text IS NULL OR r.task = $7)
    AND ($8::text IS NULL OR r.queue = $8) AND ($10::text IS NULL OR r.worker = $10)
    AND ($11::text IS NULL OR r.region = $11)
    AND ($12::text IS NULL OR r.options::json ->> 'submitted_by' = $12) OFFSET 0) AS fitting
LIMIT $4;

-- ids_of_submitter: the same of a submitter, of runs that are not running
SELECT id FROM mainspring.runs
WHERE namespace = $1 AND (options::json ->> 'submitted_by') COLLATE "C" = $12::text AND strpos(options, '"submitted_by":') > 0
  AND id || '' >= coalesce($2::text, '') AND id || '' < coalesce($3::text, '~') AND state <> 'running' AND state || '' = ANY ($5::text[])
  AND ($6::text IS NULL OR job = $6) AND ($7::text IS NULL OR task = $7) AND ($8::text IS NULL OR queue = $8)
  AND ($9::text IS NULL OR options::jsonb -> 'tags' ? $9) AND ($10::text IS NULL OR worker = $10) AND ($11::text IS NULL OR region = $11)
ORDER BY id || '' DESC LIMIT $4;

-- sizes: how many unfinished runs a job, a task, a tag and a submitter have, each counted up to a bound; NULL for what is not asked for
SELECT CASE WHEN $2::text IS NOT NULL THEN (SELECT count(*) FROM (
         SELECT FROM mainspring.runs WHERE namespace = $1 AND job = $2 ORDER BY id || '' LIMIT $6) AS counted) END,
       CASE WHEN $3::text IS NOT NULL THEN (SELECT count(*) FROM (
         SELECT FROM mainspring.runs WHERE namespace = $1 AND task = $3 AND state <> 'running' ORDER BY id || '' LIMIT $6) AS counted) END,
       CASE WHEN $4::text IS NOT NULL THEN (SELECT count(*) FROM (
         SELECT FROM mainspring.run_tags WHERE namespace = $1 AND tag = $4 LIMIT $6) AS counted) END,
       CASE WHEN $5::text IS NOT NULL THEN (SELECT count(*) FROM (
         SELECT FROM mainspring.runs
         WHERE namespace = $1 AND (options::json ->> 'submitted_by') COLLATE "C" = $5 AND state <> 'running'
           AND strpos(options, '"submitted_by":') > 0
         ORDER BY id || '' LIMIT $6) AS counted) END;

-- list_active_of: the same, among these
SELECT {unfinished} FROM mainspring.runs
WHERE namespace = $1 AND id >= coalesce($2::text, '') AND id < coalesce($3::text, '~') AND ($5::text[] IS NULL OR state = ANY ($5))
  AND ($6::text IS NULL OR job = $6) AND ($7::text IS NULL OR task = $7) AND ($8::text IS NULL OR queue = $8)
  AND ($9::text IS NULL OR options::jsonb -> 'tags' ? $9) AND ($10::text IS NULL OR worker = $10) AND ($11::text IS NULL OR region = $11)
  AND id = ANY ($13::text[])
  AND ($12::text IS NULL OR options::json ->> 'submitted_by' = $12)
ORDER BY id DESC LIMIT $4;

-- classes: the classes of finished runs that a filter fits, how many runs each has, and from which day on
SELECT queue, task, state, sum(count)::bigint AS runs, min(day) AS first_day FROM mainspring.tallies
WHERE namespace = $1 AND ($2::text IS NULL OR queue = $2) AND ($3::text IS NULL OR task = $3) AND state = ANY ($4::text[])
GROUP BY 1, 2, 3;

-- count_classes: how many finished runs a filter by class fits, as they were counted
SELECT coalesce(sum(count), 0)::bigint FROM mainspring.tallies
WHERE namespace = $1 AND ($2::text IS NULL OR queue = $2) AND ($3::text IS NULL OR task = $3) AND state = ANY ($4::text[]);

-- count_classes_between: how many finished runs of some classes have ids between two, up to a bound: by the index alone
SELECT count(*) FROM (
  SELECT FROM unnest($5::text[], $6::text[], $7::text[]) AS class (queue, task, state)
  CROSS JOIN LATERAL (
    SELECT FROM mainspring.history AS h
    WHERE h.namespace = $1 AND h.queue = class.queue AND h.task = class.task AND h.state = class.state
      AND h.id >= coalesce($2::text, '') AND h.id < coalesce($3::text, '~')
    ORDER BY h.id DESC LIMIT $4) AS newest
  LIMIT $4) AS counted;

-- count_region: how many finished runs of a region other than `default` have ids between two, up to a bound: by the index alone
SELECT count(*) FROM (
  SELECT FROM mainspring.history
  WHERE namespace = $1 AND region = $5 AND region <> 'default' AND id >= coalesce($2::text, '') AND id < coalesce($3::text, '~')
  LIMIT $4) AS counted;

-- list_classes: finished runs of some classes, newest first: the newest of each, merged. The days before `:since`, a literal, are not even planned
SELECT {finished} FROM (
  SELECT newest.id AS newest_id, newest.finished_at AS newest_at
  FROM unnest($5::text[], $6::text[], $7::text[]) AS class (queue, task, state)
  CROSS JOIN LATERAL (
    SELECT h.id, h.finished_at FROM mainspring.history AS h
    WHERE h.namespace = $1 AND h.queue = class.queue AND h.task = class.task AND h.state = class.state
      AND h.id >= coalesce($2::text, '') AND h.id < coalesce($3::text, '~') AND h.finished_at >= $8
      AND h.finished_at >= :since
      AND ($9::text IS NULL OR h.options::jsonb -> 'tags' ? $9) AND ($10::text IS NULL OR h.region = $10)
    ORDER BY h.id DESC LIMIT $4) AS newest
  ORDER BY newest.id DESC LIMIT $4) AS found
CROSS JOIN LATERAL (SELECT * FROM mainspring.history AS h WHERE h.id = newest_id AND h.finished_at = newest_at AND h.finished_at >= :since
                    OFFSET 0) AS run
ORDER BY id DESC;

-- list_of_job: finished runs of a job, newest first: the newest of each state, merged
SELECT {finished} FROM (
  SELECT newest.id AS newest_id, newest.finished_at AS newest_at
  FROM unnest($5::text[]) AS class (state)
  CROSS JOIN LATERAL (
    SELECT h.id, h.finished_at FROM mainspring.history AS h
    WHERE h.namespace = $1 AND h.job = $6 AND h.state = class.state AND h.id >= coalesce($2::text, '') AND h.id < coalesce($3::text, '~')
      AND ($7::text IS NULL OR h.task = $7) AND ($8::text IS NULL OR h.queue = $8) AND ($9::text IS NULL OR h.options::jsonb -> 'tags' ? $9)
      AND ($10::text IS NULL OR h.region = $10)
    ORDER BY h.id DESC LIMIT $4) AS newest
  ORDER BY newest.id DESC LIMIT $4) AS found
CROSS JOIN LATERAL (SELECT * FROM mainspring.history AS h WHERE h.id = newest_id AND h.finished_at = newest_at OFFSET 0) AS run
ORDER BY id DESC;

-- list_of_key: finished runs of a key, newest first
SELECT {finished} FROM mainspring.history
WHERE namespace = $1 AND key = $6 AND key IS NOT NULL AND id >= coalesce($2::text, '') AND id < coalesce($3::text, '~') AND state = ANY ($5::text[])
  AND ($7::text IS NULL OR job = $7) AND ($8::text IS NULL OR task = $8) AND ($9::text IS NULL OR queue = $9)
  AND ($10::text IS NULL OR options::jsonb -> 'tags' ? $10) AND ($11::text IS NULL OR region = $11)
  AND ($12::bigint IS NULL OR started_at - due_at >= $12) AND ($13::bigint IS NULL OR finished_at - started_at >= $13)
  AND ($14::text IS NULL OR options::json ->> 'submitted_by' = $14)
ORDER BY id DESC LIMIT $4;

-- list_late: finished runs of some steps of lateness and of duration, newest first: the newest of each pair, merged
SELECT {finished} FROM (
  SELECT newest.id AS newest_id, newest.finished_at AS newest_at
  FROM unnest($6::integer[], $12::integer[]) AS class (step, length)
  CROSS JOIN LATERAL (
    SELECT h.id, h.finished_at FROM mainspring.history AS h
    WHERE h.namespace = $1 AND width_bucket(h.started_at - h.due_at, '{60000000,600000000,3600000000,86400000000}'::bigint[]) = class.step
      AND width_bucket(h.finished_at - h.started_at, '{60000000,600000000,3600000000,86400000000}'::bigint[]) = class.length
      AND h.started_at - h.due_at >= 60000000 AND h.id >= coalesce($2::text, '') AND h.id < coalesce($3::text, '~') AND h.state = ANY ($5::text[])
      AND ($7::text IS NULL OR h.job = $7) AND ($8::text IS NULL OR h.task = $8) AND ($9::text IS NULL OR h.queue = $9)
      AND ($10::text IS NULL OR h.options::jsonb -> 'tags' ? $10) AND ($11::text IS NULL OR h.region = $11)
      AND ($13::text IS NULL OR h.options::json ->> 'submitted_by' = $13)
    ORDER BY h.id DESC LIMIT $4) AS newest
  ORDER BY newest.id DESC LIMIT $4) AS found
CROSS JOIN LATERAL (SELECT * FROM mainspring.history AS h WHERE h.id = newest_id AND h.finished_at = newest_at OFFSET 0) AS run
ORDER BY id DESC;

-- list_long: finished runs of some steps of duration, newest first: the newest of each, merged
SELECT {finished} FROM (
  SELECT newest.id AS newest_id, newest.finished_at AS newest_at
  FROM unnest($6::integer[]) AS class (step)
  CROSS JOIN LATERAL (
    SELECT h.id, h.finished_at FROM mainspring.history AS h
    WHERE h.namespace = $1 AND width_bucket(h.finished_at - h.started_at, '{60000000,600000000,3600000000,86400000000}'::bigint[]) = class.step
      AND h.finished_at - h.started_at >= 60000000 AND h.id >= coalesce($2::text, '') AND h.id < coalesce($3::text, '~') AND h.state = ANY ($5::text[])
      AND ($7::text IS NULL OR h.job = $7) AND ($8::text IS NULL OR h.task = $8) AND ($9::text IS NULL OR h.queue = $9)
      AND ($10::text IS NULL OR h.options::jsonb -> 'tags' ? $10) AND ($11::text IS NULL OR h.region = $11)
      AND ($12::text IS NULL OR h.options::json ->> 'submitted_by' = $12)
    ORDER BY h.id DESC LIMIT $4) AS newest
  ORDER BY newest.id DESC LIMIT $4) AS found
CROSS JOIN LATERAL (SELECT * FROM mainspring.history AS h WHERE h.id = newest_id AND h.finished_at = newest_at OFFSET 0) AS run
ORDER BY id DESC;

-- list_of_submitter: finished runs of a submitter, newest first: the newest of each state, merged
SELECT {finished} FROM (
  SELECT newest.id AS newest_id, newest.finished_at AS newest_at
  FROM unnest($5::text[]) AS class (state)
  CROSS JOIN LATERAL (
    SELECT h.id, h.finished_at FROM mainspring.history AS h
    WHERE h.namespace = $1 AND (h.options::json ->> 'submitted_by') COLLATE "C" = $6 AND h.state = class.state
      AND strpos(h.options, '"submitted_by":') > 0 AND h.id >= coalesce($2::text, '') AND h.id < coalesce($3::text, '~')
      AND ($7::text IS NULL OR h.job = $7) AND ($8::text IS NULL OR h.task = $8) AND ($9::text IS NULL OR h.queue = $9)
      AND ($10::text IS NULL OR h.options::jsonb -> 'tags' ? $10) AND ($11::text IS NULL OR h.region = $11)
    ORDER BY h.id DESC LIMIT $4) AS newest
  ORDER BY newest.id DESC LIMIT $4) AS found
CROSS JOIN LATERAL (SELECT * FROM mainspring.history AS h WHERE h.id = newest_id AND h.finished_at = newest_at OFFSET 0) AS run
ORDER BY id DESC;

-- keyed: the unfinished runs of a key, which stand in its line
SELECT run_id FROM mainspring.lines WHERE namespace = $1 AND name = 'key:' || $2::text;

-- running_late: the running runs that began late; ordered, so that it goes by an index
SELECT id FROM mainspring.runs WHERE state = 'running' AND namespace = $1 AND started_at - due_at >= $2 ORDER BY claimed_until LIMIT $3;

-- list_of_region: finished runs of a region other than `default`, newest first. The last condition is that of the index
SELECT {finished} FROM mainspring.history
WHERE namespace = $1 AND region = $6 AND id >= coalesce($2::text, '') AND id < coalesce($3::text, '~') AND state = ANY ($5::text[])
  AND ($7::text IS NULL OR task = $7) AND ($8::text IS NULL OR queue = $8) AND ($9::text IS NULL OR options::jsonb -> 'tags' ? $9)
  AND region <> 'default'
ORDER BY id DESC LIMIT $4;

-- list_region_classes: finished runs of some classes in a region other than `default`. The last condition is that of the index
SELECT {finished} FROM (
  SELECT newest.id AS newest_id, newest.finished_at AS newest_at
  FROM unnest($5::text[], $6::text[], $7::text[]) AS class (queue, task, state)
  CROSS JOIN LATERAL (
    SELECT h.id, h.finished_at FROM mainspring.history AS h
    WHERE h.namespace = $1 AND h.queue = class.queue AND h.task = class.task AND h.state = class.state
      AND h.id >= coalesce($2::text, '') AND h.id < coalesce($3::text, '~') AND h.finished_at >= $8
      AND ($9::text IS NULL OR h.options::jsonb -> 'tags' ? $9) AND h.region = $10 AND h.region <> 'default'
    ORDER BY h.id DESC LIMIT $4) AS newest
  ORDER BY newest.id DESC LIMIT $4) AS found
CROSS JOIN LATERAL (SELECT * FROM mainspring.history AS h WHERE h.id = newest_id AND h.finished_at = newest_at OFFSET 0) AS run
ORDER BY id DESC;

-- list_tagged: finished runs with a tag in some states, newest first: the newest of each state, merged. Runs that finished before $9 have no row
-- with their state: among them, those with the tag
SELECT {finished} FROM (
  SELECT newest.* FROM unnest($6::text[]) AS class (state)
  CROSS JOIN LATERAL (
    SELECT run.* FROM (
      SELECT t.id AS tagged_id, t.finished_at AS tagged_at FROM mainspring.history_tags AS t
      WHERE t.namespace = $1 AND t.tag = $5::text || chr(31) || class.state AND t.id >= coalesce($2::text, '')
        AND t.id < coalesce($3::text, '~') AND t.finished_at >= $9
      ORDER BY t.id DESC) AS tagged
    CROSS JOIN LATERAL (
      SELECT * FROM mainspring.history AS h
      WHERE h.id = tagged_id AND h.finished_at = tagged_at AND ($7::text IS NULL OR h.task = $7) AND ($8::text IS NULL OR h.queue = $8)
        AND ($10::text IS NULL OR h.region = $10) OFFSET 0) AS run
    LIMIT $4) AS newest
  UNION ALL
  (SELECT run.* FROM (
     SELECT t.id AS tagged_id, t.finished_at AS tagged_at FROM mainspring.history_tags AS t
     WHERE t.namespace = $1 AND t.tag = $5 AND t.id >= coalesce($2::text, '') AND t.id < coalesce($3::text, '~') AND t.finished_at < $9
     ORDER BY t.id DESC) AS tagged
   CROSS JOIN LATERAL (
     SELECT * FROM mainspring.history AS h
     WHERE h.id = tagged_id AND h.finished_at = tagged_at
       AND h.state = ANY ($6) AND ($7::text IS NULL OR h.task = $7) AND ($8::text IS NULL OR h.queue = $8)
       AND ($10::text IS NULL OR h.region = $10) OFFSET 0) AS run
   LIMIT $4)) AS found
ORDER BY id DESC LIMIT $4;

-- list_tagged_classes: finished runs with a tag, of some classes, newest first: the newest of each class, merged
SELECT {finished} FROM (
  SELECT newest.id AS newest_id, newest.finished_at AS newest_at
  FROM unnest($6::text[], $7::text[], $8::text[]) AS class (queue, task, state)
  CROSS JOIN LATERAL (
    SELECT t.id, t.finished_at FROM mainspring.history_tags AS t
    WHERE t.namespace = $1 AND t.tag = concat_ws(chr(31), $5::text, class.state, class.queue, class.task)
      AND t.id >= coalesce($2::text, '') AND t.id < coalesce($3::text, '~')
    ORDER BY t.id DESC LIMIT $4) AS newest
  ORDER BY newest.id DESC LIMIT $4) AS found
CROSS JOIN LATERAL (SELECT * FROM mainspring.history AS h WHERE h.id = newest_id AND h.finished_at = newest_at OFFSET 0) AS run
ORDER BY id DESC;

-- count_tagged: how many finished runs with a tag are in some states, up to a bound: by the tags alone, except for those without a state
SELECT count(*) FROM (
  SELECT 1 FROM unnest($6::text[]) AS class (state)
  CROSS JOIN LATERAL (
    SELECT t.id FROM mainspring.history_tags AS t
    WHERE t.namespace = $1 AND t.tag = $5::text || chr(31) || class.state AND t.id >= coalesce($2::text, '')
      AND t.id < coalesce($3::text, '~') AND t.finished_at >= $7
    LIMIT $4) AS newest
  UNION ALL
  (SELECT 1 FROM mainspring.history_tags AS t
   JOIN mainspring.history AS h ON h.id = t.id AND h.finished_at = t.finished_at
   WHERE t.namespace = $1 AND t.tag = $5 AND t.id >= coalesce($2::text, '') AND t.id < coalesce($3::text, '~') AND t.finished_at < $7
     AND h.state = ANY ($6)
   LIMIT $4)
  LIMIT $4) AS counted;

-- states_of_tags_since: from which instant on tags are kept with the states of their runs
SELECT value::bigint FROM mainspring.facts WHERE name = 'states_of_tags_since';

-- classes_of_tags_since: from which instant on tags are kept with the classes of their runs
SELECT value::bigint FROM mainspring.facts WHERE name = 'classes_of_tags_since';

-- list_finished: finished runs of too many classes to search one by one, newest first, among a number of the newest. The days before
-- `:since`, a literal, are not even planned
SELECT {finished} FROM (SELECT * FROM mainspring.history
      WHERE id >= coalesce($2::text, '') AND id < coalesce($3::text, '~') AND finished_at >= :since ORDER BY id DESC LIMIT $8) AS newest
WHERE namespace = $1 AND state = ANY ($5::text[]) AND ($6::text IS NULL OR queue = $6) AND ($7::text IS NULL OR options::jsonb -> 'tags' ? $7)
  AND ($9::text IS NULL OR region = $9)
LIMIT $4;

-- find_prefix: ids that begin with a text
SELECT id FROM mainspring.runs WHERE namespace = $1 AND id >= $2 AND id < $2 || '{'
UNION ALL
SELECT id FROM mainspring.history WHERE namespace = $1 AND id >= $2 AND id < $2 || '{'
LIMIT $3;

-- find_tail: ids whose tails begin with a text: of the newest, and of all that ended before a day; partitions of past days have an index of
-- them, which the cleaner makes
SELECT id FROM (SELECT id FROM mainspring.runs WHERE namespace = $1 ORDER BY id DESC LIMIT 10000) AS recent
WHERE right(id, 8) >= $2 AND right(id, 8) < $2 || '{'
UNION ALL
SELECT id FROM (SELECT id, namespace FROM mainspring.history WHERE finished_at >= $4 ORDER BY id DESC LIMIT 10000) AS recent
WHERE namespace = $1 AND right(id, 8) >= $2 AND right(id, 8) < $2 || '{'
UNION ALL
SELECT id FROM mainspring.history WHERE finished_at < $4 AND namespace = $1 AND right(id, 8) >= $2 AND right(id, 8) < $2 || '{'
LIMIT $3;

-- find_suffix: recent ids that end with a text
SELECT id FROM (SELECT id FROM mainspring.runs WHERE namespace = $1 ORDER BY id DESC LIMIT 10000) AS recent
WHERE right(id, length($2)) = $2
UNION ALL
SELECT id FROM (SELECT id FROM mainspring.history WHERE namespace = $1 ORDER BY id DESC LIMIT 10000) AS recent
WHERE right(id, length($2)) = $2
LIMIT $3;

-- count_states: how many runs are in each state: of unfinished ones up to a bound; of finished ones, as they were counted. Ordered, so that it
-- goes by an index
SELECT state, count FROM (
  SELECT 'pending' AS state, count(*) FROM (SELECT FROM mainspring.runs WHERE state = 'pending' AND namespace = $1
    ORDER BY namespace, queue, region, priority, due_at, seq LIMIT $2) AS counted
  UNION ALL
  SELECT 'running', count(*) FROM (SELECT FROM mainspring.runs WHERE state = 'running' AND namespace = $1 ORDER BY claimed_until LIMIT $2) AS counted
  UNION ALL
  SELECT 'blocked', count(*) FROM (SELECT FROM mainspring.runs WHERE state = 'blocked' AND namespace = $1 ORDER BY namespace, queue LIMIT $2) AS counted
) AS unfinished WHERE count > 0
UNION ALL
SELECT state, sum(count)::bigint FROM mainspring.tallies WHERE namespace = $1 GROUP BY state HAVING sum(count) > 0;

-- attempts: the ended attempts of a run in order; the last one of a finished run is in its history
SELECT run_id, attempt, token, worker, outcome, started_at, finished_at, reason, error
FROM mainspring.attempts WHERE run_id = $1 AND finished_at >= $2
UNION ALL
SELECT id, attempt, token, worker, outcome, started_at, finished_at, reason, error
FROM mainspring.history WHERE id = $1 AND finished_at >= $2 AND outcome IS NOT NULL
ORDER BY 2;

-- have_written: which of some runs have written beyond the lines that are known of each
SELECT e.run_id FROM unnest($1::text[], $2::bigint[]) AS e (run_id, after)
CROSS JOIN LATERAL (SELECT FROM mainspring.logs AS l WHERE l.run_id = e.run_id AND l.seq > e.after LIMIT 1) AS written;

-- count_logs: how many lines a run wrote, up to a number
SELECT count(*) FROM (SELECT FROM mainspring.logs WHERE run_id = $1 LIMIT $2) AS counted;

-- logs: what a run wrote, from a line number on
SELECT seq, run_id, attempt, at, stream, text FROM mainspring.logs WHERE run_id = $1 AND seq > $2 ORDER BY seq LIMIT $3;

-- logs_before: the last of what a run wrote between two line numbers, in order
SELECT * FROM (SELECT seq, run_id, attempt, at, stream, text FROM mainspring.logs WHERE run_id = $1 AND seq > $2 AND seq < $3
               ORDER BY seq DESC LIMIT $4) AS last ORDER BY seq;

-- upstreams_of: the runs that a run waits for, and those before it in its lines
SELECT upstream_id FROM mainspring.edges WHERE run_id = $1
UNION
SELECT before.run_id FROM mainspring.lines AS mine
JOIN mainspring.lines AS before ON before.namespace = mine.namespace AND before.name = mine.name AND before.seq < mine.seq AND before.granted
WHERE mine.run_id = $1 AND NOT mine.granted;

-- gate: used and capacity of a gate
SELECT used, capacity FROM mainspring.gates WHERE namespace = $1 AND name = $2;
