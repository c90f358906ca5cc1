-- Accepts one run that waits for nothing but its time, and wakes a worker as early as the promises allow.
--
-- With `hand`, it claims the run for an idle worker that has offered to take it: one sync to disk before the start, instead of two. The
-- worker hears of the claim when it is durable, so that nothing starts that a crash could undo. The notification has a transaction of its own:
-- a transaction that notifies keeps all others from notifying until it has committed. The offer stays locked until then, so that one worker
-- does not get several runs at once.
--
-- Otherwise the run is pending. It is committed without waiting for the disk, so that a woken worker can claim it at once: through `channel`, or,
-- where that is NULL, the caller wakes workers when it receives 'accepted' (INFO reaches the client at once, whatever its settings, and
-- no log). Then an empty commit waits for the disk, and with it everything before is durable. The caller's promise comes after that; a claim
-- commits later in the log and waits for the disk itself, so it makes the submission durable too. With the channel '' it wakes no worker, and one
-- commit waits for the disk: for submissions in quick succession, of which workers hear together.
CREATE OR REPLACE PROCEDURE mainspring.accept_run(
  run_id text, namespace text, queue text, region text, task text, args text, options text, priority smallint, due_at bigint, expires_at bigint,
  job_id text, job text, fire_at bigint, idx integer, key text, retry_of text, created_at bigint, since bigint, events text, now bigint,
  noted_for text, request_id text, channel text, teller text, given bigint, hand boolean) LANGUAGE plpgsql AS $$
DECLARE
  store_now bigint := mainspring.store_now(given);
  offer mainspring.offers;
  claim text;
BEGIN
  IF hand THEN
    SELECT o.* INTO offer FROM mainspring.offers AS o
    WHERE o.namespace = $2 AND $3 = ANY (o.queues) AND $4 = ANY (o.regions) AND $5 = ANY (o.tasks) AND o.until > store_now
      AND NOT EXISTS (SELECT FROM mainspring.paused_queues AS p WHERE p.namespace = $2 AND p.queue = $3)
    ORDER BY random() LIMIT 1 FOR UPDATE SKIP LOCKED;
    IF FOUND THEN
      claim := json_build_array($1, 1, $5, $6, $7, 0, 0, $8, $9, $2, $12, $13, $14, store_now + offer.ttl)::text;
      IF pg_try_advisory_xact_lock_shared(mainspring.ear_lock(offer.ear)) THEN  -- Its process is gone.
        DELETE FROM mainspring.offers AS o WHERE o.worker = offer.worker;
        offer := NULL;
      ELSIF octet_length(claim) > 7900 THEN  -- A notification has less than 8,000 bytes.
        offer := NULL;
      END IF;
    END IF;
  END IF;
  IF offer.worker IS NULL THEN
    claim := NULL;
    IF channel IS DISTINCT FROM '' THEN
      PERFORM set_config('synchronous_commit', 'off', true);
    END IF;
  ELSE
    $19 := left($19, -1) || ',{"kind":"run.running","namespace":' || to_json($2) || ',"worker":' || to_json(offer.worker) || ',"at":'
           || greatest($20, $9) || ',"attempt":1,"priority":' || $8 || ',"late":' || greatest($20 - $9, 0) || ',"run_id":' || to_json($1) || ',"task":' || to_json($5) || '}]';
  END IF;
  INSERT INTO mainspring.runs (id, namespace, queue, region, task, args, options, state, priority, special, due_at, expires_at, job_id, job,
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
  IF channel = '' THEN
    RETURN;
  ELSIF channel IS NOT NULL THEN
    PERFORM pg_notify(channel, teller);
  END IF;
  COMMIT;
  IF channel IS NULL THEN
    RAISE INFO 'accepted';
  END IF;
  PERFORM pg_logical_emit_message(true, 'mainspring', '');
END $$;
