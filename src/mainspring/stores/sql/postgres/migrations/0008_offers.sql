-- oldest: 1
-- What workers with nothing to do would take at once. A lone submission is claimed for one of them in its own transaction: one sync before it
-- starts, instead of two. Nothing depends on these rows, so the log need not carry them. `ear` names the channel that the worker's process
-- listens to, and an advisory lock that its connection holds: whose lock is free is gone. `offered_at` is that process's own clock: it comes
-- back with what is handed over, and tells how old the claim may be.
CREATE UNLOGGED TABLE mainspring.offers (
  worker     text COLLATE "C" PRIMARY KEY,
  namespace  text COLLATE "C" NOT NULL,
  queues     text[] NOT NULL,
  regions    text[] NOT NULL,
  tasks      text[] NOT NULL,
  ear        text COLLATE "C" NOT NULL,
  ttl        bigint NOT NULL,
  offered_at bigint NOT NULL,
  until      bigint NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 100, autovacuum_vacuum_scale_factor = 0);

-- The key of the advisory lock that belongs to an ear.
CREATE FUNCTION mainspring.ear_lock(ear text) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN hashtextextended('mainspring ear ' || ear, 0);

-- A lone submission that is due, as `accept_and_tell`, but if a worker has offered to take it, it is claimed for that one. It is told when it
-- is on the disk, so that nothing starts that a crash could undo, and in a transaction of its own: whoever tells keeps all others from telling
-- until it has committed. The offer stays locked until then: one worker is not given several at the same time.
CREATE PROCEDURE mainspring.accept_and_hand(
  run_id text, namespace text, queue text, region text, task text, args text, options text, priority smallint, due_at bigint, expires_at bigint,
  job_id text, job text, fire_at bigint, idx integer, key text, retry_of text, created_at bigint, since bigint, events text, now bigint,
  noted_for text, request_id text, channel text, teller text, given bigint) LANGUAGE plpgsql AS $$
DECLARE
  store_now bigint := mainspring.store_now(given);
  offer mainspring.offers;
  claim text;
BEGIN
  SELECT o.* INTO offer FROM mainspring.offers AS o
  WHERE o.namespace = $2 AND $3 = ANY (o.queues) AND $4 = ANY (o.regions) AND $5 = ANY (o.tasks) AND o.until > store_now
  ORDER BY random() LIMIT 1 FOR UPDATE SKIP LOCKED;
  IF FOUND THEN
    claim := json_build_array($1, 1, $5, $6, $7, 0, 0, $8, $9, $2, $12, $13, $14, store_now + offer.ttl)::text;
    IF pg_try_advisory_xact_lock_shared(mainspring.ear_lock(offer.ear)) THEN
      DELETE FROM mainspring.offers AS o WHERE o.worker = offer.worker;
      offer := NULL;
    ELSIF octet_length(claim) > 7900 THEN  -- A message has less than 8,000 bytes.
      offer := NULL;
    END IF;
  END IF;
  IF offer.worker IS NULL THEN
    claim := NULL;
    PERFORM set_config('synchronous_commit', 'off', true);
  ELSE
    $19 := left($19, -1) || ',{"kind":"run.running","namespace":' || to_json($2) || ',"worker":' || to_json(offer.worker) || ',"at":'
           || greatest($20, $9) || ',"attempt":1,"run_id":' || to_json($1) || ',"task":' || to_json($5) || '}]';
  END IF;
  INSERT INTO mainspring.runs (id, namespace, queue, region, task, args, options, state, priority, care, due_at, expires_at, job_id, job,
                               fire_at, idx, key, retry_of, created_at, token, worker, claimed_until, started_at)
  VALUES ($1, $2, $3, $4, $5, $6, $7, CASE WHEN claim IS NULL THEN 'pending' ELSE 'running' END, $8, $10 IS NOT NULL, $9, $10, $11, $12,
          $13, $14, $15, $16, $17, CASE WHEN claim IS NULL THEN 0 ELSE 1 END, offer.worker, store_now + offer.ttl,
          CASE WHEN claim IS NOT NULL THEN greatest($20, $9) END)
  ON CONFLICT (id) DO NOTHING;
  IF NOT FOUND OR mainspring.withdraw_if_ended($1, $18) THEN
    COMMIT;
    PERFORM pg_logical_emit_message(true, 'mainspring', '');
    RETURN;
  END IF;
  INSERT INTO mainspring.outbox (count, events, created_at) VALUES (CASE WHEN claim IS NULL THEN 1 ELSE 2 END, $19, $20);
  IF $21 <> '' THEN
    INSERT INTO mainspring.audit (namespace, at, subject, action, target, after, request_id)
    VALUES ($2, $20, $21, 'run.submit', 'run:' || $1, json_build_object('task', $5, 'queue', $3, 'priority', $8)::text, $22);
  END IF;
  IF claim IS NOT NULL THEN
    COMMIT;
    PERFORM pg_notify('mainspring_' || offer.ear, '[' || offer.offered_at || ',' || claim || ']');
    RETURN;
  END IF;
  IF channel IS NOT NULL THEN
    PERFORM pg_notify(channel, teller);
  END IF;
  COMMIT;
  IF channel IS NULL THEN
    RAISE INFO 'accepted';
  END IF;
  PERFORM pg_logical_emit_message(true, 'mainspring', '');
END $$;
