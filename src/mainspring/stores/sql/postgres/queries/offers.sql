-- offer: what a worker would take at once, for a moment; and away with what others left behind
WITH time AS MATERIALIZED (SELECT mainspring.store_now($9) AS now),
left_behind AS (DELETE FROM mainspring.offers WHERE until < (SELECT now FROM time) - 60000000 AND worker <> $1)
INSERT INTO mainspring.offers (worker, namespace, queues, regions, tasks, ear, ttl, offered_at, until)
SELECT $1, $2, $3, $4, $5, $6, $7, $8, now + $10::bigint FROM time
ON CONFLICT (worker) DO UPDATE SET queues = excluded.queues, regions = excluded.regions, tasks = excluded.tasks, ear = excluded.ear,
  ttl = excluded.ttl, offered_at = excluded.offered_at, until = excluded.until;

-- withdraw: it has something to do, or is about to end
DELETE FROM mainspring.offers WHERE worker = $1;

-- unheard: what the server believes that a worker holds
SELECT id, token FROM mainspring.runs WHERE state = 'running' AND worker = $1;
