-- {waiting}: the gates at which runs wait, found by leaps from one to the next
waiting AS (
  (SELECT namespace, blocked_on FROM mainspring.runs WHERE blocked_on IS NOT NULL AND (namespace, blocked_on) >= ('', '')
   ORDER BY namespace, blocked_on LIMIT 1)
  UNION ALL
  SELECT following.namespace, following.blocked_on FROM waiting CROSS JOIN LATERAL (
    SELECT namespace, blocked_on FROM mainspring.runs
    WHERE blocked_on IS NOT NULL AND (namespace, blocked_on) > (waiting.namespace, waiting.blocked_on)
    ORDER BY namespace, blocked_on LIMIT 1) AS following)

-- anything: whether a pass of recovery would find something, and whether nothing could be found soon
WITH RECURSIVE {waiting}
SELECT EXISTS (SELECT FROM mainspring.runs WHERE state = 'running' AND claimed_until < (SELECT mainspring.store_now($1)))
  OR EXISTS (SELECT FROM mainspring.runs WHERE expires_at < $2 AND expires_at IS NOT NULL AND state <> 'running' AND attempt = 0)
  OR EXISTS (SELECT FROM mainspring.runs WHERE (options::json ->> 'give_up_at')::bigint <= $2
             AND state <> 'running' AND strpos(options, '"give_up_at":') > 0)
  OR EXISTS (SELECT FROM mainspring.workers WHERE state IN ('active', 'draining') AND heartbeat_at < (SELECT mainspring.store_now($1)) - $3)
  OR EXISTS (SELECT FROM mainspring.runs WHERE state = 'pending' AND strpos(options, '"region_failover":') > 0 AND due_at <= $2)
  OR EXISTS (SELECT FROM mainspring.ended_upstreams) OR EXISTS (SELECT FROM mainspring.stopped_lines)
  OR EXISTS (SELECT FROM waiting CROSS JOIN LATERAL (
               SELECT FROM mainspring.gates WHERE namespace = waiting.namespace AND name = waiting.blocked_on AND used < capacity OFFSET 0) AS g),
  NOT EXISTS (SELECT FROM mainspring.runs WHERE state = 'running' AND claimed_until > 0)
  AND NOT EXISTS (SELECT FROM mainspring.runs WHERE expires_at > 0 AND expires_at IS NOT NULL AND state <> 'running')
  AND NOT EXISTS (SELECT FROM mainspring.runs WHERE (options::json ->> 'give_up_at')::bigint > 0
                  AND state <> 'running' AND strpos(options, '"give_up_at":') > 0)
  AND NOT EXISTS (SELECT FROM waiting);

-- expired: running runs whose claim has run out, oldest first
SELECT id FROM mainspring.runs WHERE state = 'running' AND claimed_until < (SELECT mainspring.store_now($1)) ORDER BY claimed_until LIMIT $2;

-- lock_expired: those of them that are still expired, and that no other transaction has locked
SELECT id FROM mainspring.runs
WHERE id = ANY ($1::text[]) AND state = 'running' AND claimed_until < (SELECT mainspring.store_now($2)) ORDER BY id FOR UPDATE SKIP LOCKED;

-- too_late: runs that were not started in time
SELECT id, expires_at FROM mainspring.runs
WHERE expires_at < $1 AND expires_at IS NOT NULL AND state <> 'running' AND attempt = 0 ORDER BY expires_at LIMIT $2;

-- out_of_time: waiting runs whose total timeout has ended
SELECT id, attempt, expires_at, options FROM mainspring.runs
WHERE (options::json ->> 'give_up_at')::bigint <= $1 AND state <> 'running' AND strpos(options, '"give_up_at":') > 0
ORDER BY (options::json ->> 'give_up_at')::bigint LIMIT $2;

-- silent: workers that have not been heard of
UPDATE mainspring.workers SET state = 'dead', running = 0 WHERE id = ANY (ARRAY(
  SELECT id FROM mainspring.workers
  WHERE state IN ('active', 'draining') AND heartbeat_at < (SELECT mainspring.store_now($1)) - $2 FOR UPDATE SKIP LOCKED))
RETURNING id, namespace;

-- stranded: due runs that may leave their region, after a place in their order
SELECT id, namespace, queue, region, task, options, due_at FROM mainspring.runs
WHERE state = 'pending' AND strpos(options, '"region_failover":') > 0 AND due_at <= $1 AND (due_at, id) > ($2, $3)
ORDER BY due_at, id LIMIT $4;

-- live_workers: workers that take work and were heard of lately
SELECT id, namespace, queues, regions, tasks, concurrency, running FROM mainspring.workers
WHERE state = 'active' AND drain_requested_at IS NULL AND heartbeat_at >= (SELECT mainspring.store_now($1)) - $2;

-- move: runs go to another region. With a new token: a broker that carries them has to carry them there
UPDATE mainspring.runs AS r SET region = e.region, options = e.options, reason = e.reason, token = r.token + 1
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[]) AS e (id, origin, region, options, reason)
WHERE r.id = ANY (ARRAY(SELECT id FROM mainspring.runs WHERE id = ANY ($1) AND state || '' = 'pending' ORDER BY id FOR UPDATE SKIP LOCKED))
  AND r.id = e.id AND r.region = e.origin
RETURNING r.id, r.namespace, r.job_id, r.job, r.task, r.fire_at, r.reason;

-- waiting_gates: gates with room at which runs wait
WITH RECURSIVE {waiting}
SELECT g.namespace, g.name FROM waiting CROSS JOIN LATERAL (
  SELECT namespace, name FROM mainspring.gates WHERE namespace = waiting.namespace AND name = waiting.blocked_on AND used < capacity OFFSET 0) AS g;

-- partitions: the days for which tables have partitions of their own
SELECT parent.relname, child.relname, greatest(child.reltuples, 0)::bigint FROM pg_inherits AS i
JOIN pg_class AS parent ON parent.oid = i.inhparent JOIN pg_class AS child ON child.oid = i.inhrelid
JOIN pg_namespace AS n ON n.oid = parent.relnamespace
WHERE n.nspname = 'mainspring' AND parent.relname IN ('history', 'history_tags', 'attempts', 'logs') ORDER BY child.relname;

-- old_history: finished runs of the default partition past their retention
DELETE FROM mainspring.history_rest WHERE ctid = ANY (ARRAY(
  SELECT ctid FROM mainspring.history_rest WHERE finished_at < $1 ORDER BY finished_at LIMIT $2 FOR UPDATE SKIP LOCKED))
RETURNING id;

-- old_attempts: attempts of the default partition past their retention, but none of an unfinished run
DELETE FROM mainspring.attempts_rest WHERE ctid = ANY (ARRAY(
  SELECT ctid FROM mainspring.attempts_rest AS a
  WHERE finished_at < $1 AND NOT EXISTS (SELECT FROM mainspring.runs AS r WHERE r.id = a.run_id)
  ORDER BY finished_at LIMIT $2 FOR UPDATE SKIP LOCKED));

-- old_logs: lines of the default partition past their retention, but none of an unfinished run
DELETE FROM mainspring.logs_rest WHERE ctid = ANY (ARRAY(
  SELECT ctid FROM mainspring.logs_rest AS l WHERE at < $1 AND NOT EXISTS (SELECT FROM mainspring.runs AS r WHERE r.id = l.run_id)
  ORDER BY at LIMIT $2 FOR UPDATE SKIP LOCKED));

-- limited_jobs: jobs with a limit of finished runs
SELECT namespace, name, (policy::jsonb ->> 'keep_succeeded')::integer, (policy::jsonb ->> 'keep_failed')::integer FROM mainspring.jobs
WHERE policy::jsonb ?| ARRAY['keep_succeeded', 'keep_failed'];

-- beyond_limit: delete a job's finished runs of one state beyond its limit
DELETE FROM mainspring.history WHERE (id, finished_at) IN (
  SELECT id, finished_at FROM mainspring.history WHERE namespace = $1 AND job = $2 AND state = $3 ORDER BY id DESC LIMIT $4 OFFSET $5)
RETURNING id;

-- old_tags: tags of the default partition past their retention
DELETE FROM mainspring.history_tags_rest WHERE ctid = ANY (ARRAY(
  SELECT ctid FROM mainspring.history_tags_rest WHERE finished_at < $1 ORDER BY finished_at LIMIT $2 FOR UPDATE SKIP LOCKED));

-- add_up_tallies: one row per class and past day, in place of those that sessions counted in
WITH gone AS (
  DELETE FROM mainspring.tallies WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM mainspring.tallies WHERE day < $1 AND shard <> 0 ORDER BY day LIMIT $2 FOR UPDATE SKIP LOCKED))
  RETURNING *)
INSERT INTO mainspring.tallies AS t
SELECT namespace, queue, task, state, day, 0, sum(count) FROM gone GROUP BY 1, 2, 3, 4, 5
ON CONFLICT (namespace, queue, task, state, day, shard) DO UPDATE SET count = t.count + excluded.count;

-- forget_tallies: delete the counts of days of which nothing is left
DELETE FROM mainspring.tallies WHERE ctid = ANY (ARRAY(
  SELECT ctid FROM mainspring.tallies WHERE day < $1 AND NOT day = ANY ($2::bigint[]) LIMIT $3 FOR UPDATE SKIP LOCKED));

-- forget_attempts: delete the attempts of finished runs
DELETE FROM mainspring.attempts WHERE run_id = ANY ($1::text[]);

-- forget_logs: delete the output of finished runs
DELETE FROM mainspring.logs WHERE run_id = ANY ($1::text[]);

-- forget_firings: delete old rows of the ledger, but none whose run has not ended
DELETE FROM mainspring.firings WHERE ctid = ANY (ARRAY(
  SELECT ctid FROM mainspring.firings WHERE created_at < $1 AND outcome <> 'fired' ORDER BY created_at LIMIT $2 FOR UPDATE SKIP LOCKED));

-- forget_events: delete public events past their retention, looking only at the first; later ($3) also those that some listener has not heard
DELETE FROM mainspring.outbox WHERE seq = ANY (ARRAY(
  SELECT seq FROM (SELECT seq, position, count, created_at FROM mainspring.outbox ORDER BY seq LIMIT $2) AS first
  WHERE created_at < $1 AND position IS NOT NULL
    AND (created_at < $3 OR NOT EXISTS (SELECT FROM mainspring.counters WHERE name LIKE 'heard:%' AND value < position + count))));

-- forget_submissions: delete answers that have expired, unless their runs still wait to start
DELETE FROM mainspring.submissions WHERE ctid = ANY (ARRAY(
  SELECT ctid FROM mainspring.submissions AS s
  WHERE expires_at < $1 AND NOT EXISTS (SELECT FROM mainspring.runs AS r WHERE r.id = s.answer AND r.state IN ('blocked', 'pending'))
  ORDER BY expires_at LIMIT $2 FOR UPDATE SKIP LOCKED));

-- forget_workers: delete workers that ended long ago, and of the others of a namespace all but the newest
DELETE FROM mainspring.workers WHERE id = ANY (ARRAY(
  SELECT id FROM (SELECT id, heartbeat_at, row_number() OVER (PARTITION BY namespace ORDER BY heartbeat_at DESC) AS place
                  FROM mainspring.workers WHERE state IN ('stopped', 'dead')) AS ended
  WHERE heartbeat_at < $1 OR place > $2));

-- idle_gates: gates of firings, and of single values of an argument, that no run uses or is about to need, locked
SELECT namespace, name FROM mainspring.gates WHERE used = 0 AND (name LIKE 'firing:%' OR name LIKE 'task:%=%') ORDER BY namespace, name LIMIT $1 FOR UPDATE SKIP LOCKED;

-- forget_gates: delete those of the locked gates that no unfinished run needs
DELETE FROM mainspring.gates AS g USING unnest($1::text[], $2::text[]) AS e (namespace, name)
WHERE g.namespace = e.namespace AND g.name = e.name
  AND CASE WHEN g.name LIKE 'firing:%'
           THEN NOT EXISTS (SELECT FROM mainspring.runs AS r WHERE r.job_id = substr(g.name, 8, 26) AND g.name = ANY (r.gates))
           ELSE (g.namespace, g.name) NOT IN (SELECT r.namespace, unnest(r.gates) FROM mainspring.runs AS r WHERE r.gates IS NOT NULL)
      END;

-- end_suspended: end sessions of this program that keep locks on its tables, and whose process has not sent the rest of a statement for $1 seconds. It is suspended or cut off, and the server applies neither of the session's timeouts between parsing a statement and executing it
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND usename = current_user AND application_name = 'mainspring'
  AND state = 'active' AND wait_event = 'ClientRead' AND query NOT LIKE 'COPY %'
  AND state_change < clock_timestamp() - make_interval(secs => $1)
  AND pid IN (
    SELECT l.pid FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
    WHERE l.granted AND l.mode IN ('RowShareLock', 'RowExclusiveLock') AND c.relnamespace = 'mainspring'::regnamespace);
