-- offer: what a worker would take at once, for a moment, if it is among the first $11 that could take all that it could; if not, its offer goes.
-- How many others stand by, and how many of them come before it. What others left behind is deleted
WITH time AS MATERIALIZED (SELECT mainspring.store_now($9) AS now),
others AS MATERIALIZED (
  SELECT count(*) AS standing, count(*) FILTER (WHERE o.worker < $1) AS before
  FROM mainspring.offers AS o, time
  WHERE o.worker <> $1 AND o.until > time.now AND o.namespace = $2
    AND o.queues @> $3::text[] AND o.regions @> $4::text[] AND o.tasks @> $5::text[]),
left_behind AS (DELETE FROM mainspring.offers WHERE until < (SELECT now FROM time) - 60000000 AND worker <> $1),
offered AS (
  INSERT INTO mainspring.offers (worker, namespace, queues, regions, tasks, ear, ttl, offered_at, until)
  SELECT $1, $2, $3, $4, $5, $6, $7, $8, time.now + $10::bigint FROM time, others WHERE others.before < $11::bigint
  ON CONFLICT (worker) DO UPDATE SET queues = excluded.queues, regions = excluded.regions, tasks = excluded.tasks, ear = excluded.ear,
    ttl = excluded.ttl, offered_at = excluded.offered_at, until = excluded.until),
gone AS (DELETE FROM mainspring.offers WHERE worker = $1 AND (SELECT before FROM others) >= $11::bigint)
SELECT standing, before FROM others;

-- look: all that a worker with nothing to do needs, in one question: the server's time, when the first run that it may take is due, who
-- holds a lease of the scheduler ($17), and how many others stand by that could take all that it could (and how many of them come before it). It is a sign of life, if the last is older
-- than $8, and then says whether the worker is asked to drain. If it keeps an ear ($9) and is among the first $13, it offers to take what comes; if not, its offer goes
WITH time AS MATERIALIZED (SELECT mainspring.store_now($1) AS now),
others AS MATERIALIZED (
  SELECT count(*) AS standing, count(*) FILTER (WHERE o.worker < $2) AS before
  FROM mainspring.offers AS o, time
  WHERE o.worker <> $2 AND o.until > time.now AND o.namespace = $3
    AND o.queues @> $4::text[] AND o.regions @> $5::text[] AND o.tasks @> $6::text[]),
beat AS (
  UPDATE mainspring.workers
  SET heartbeat_at = (SELECT now FROM time), running = 0, state = CASE WHEN state = 'dead' THEN 'active' ELSE state END
  WHERE $7 AND id = $2 AND heartbeat_at <= (SELECT now FROM time) - $8::bigint
  RETURNING drain_requested_at),
offered AS (
  INSERT INTO mainspring.offers (worker, namespace, queues, regions, tasks, ear, ttl, offered_at, until)
  SELECT $2, $3, $4, $5, $6, $9::text, $10, $11, time.now + $12::bigint FROM time, others
  WHERE $9::text IS NOT NULL AND others.before < $13::bigint
  ON CONFLICT (worker) DO UPDATE SET queues = excluded.queues, regions = excluded.regions, tasks = excluded.tasks, ear = excluded.ear,
    ttl = excluded.ttl, offered_at = excluded.offered_at, until = excluded.until),
gone AS (DELETE FROM mainspring.offers WHERE worker = $2 AND (SELECT before FROM others) >= $13::bigint)
SELECT time.now, others.standing, others.before, (
  SELECT min(r.due_at)
  FROM unnest($14::text[], $15::text[], $16::smallint[]) AS place (queue, region, priority)
  CROSS JOIN LATERAL (
    SELECT due_at FROM mainspring.runs
    WHERE state = 'pending' AND namespace = $3 AND queue = place.queue AND region = place.region AND priority = place.priority
      AND task = ANY ($6::text[]) AND (expires_at IS NULL OR expires_at >= time.now OR attempt > 0)
    ORDER BY due_at, seq LIMIT 1) AS r
  WHERE place.queue <> ALL (ARRAY(SELECT p.queue FROM mainspring.paused_queues AS p WHERE p.namespace = $3))),
  ARRAY(SELECT DISTINCT owner FROM mainspring.leases WHERE starts_with(name, $17) AND expires_at > time.now),
  (SELECT drain_requested_at IS NOT NULL FROM beat)
FROM time, others;

-- withdraw: it has something to do, or is about to end
DELETE FROM mainspring.offers WHERE worker = $1;

-- unheard: what the server believes that a worker holds
SELECT id, token FROM mainspring.runs WHERE state = 'running' AND worker = $1;
