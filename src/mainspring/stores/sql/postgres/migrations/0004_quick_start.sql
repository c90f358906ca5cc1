-- oldest: 1
-- A lone submission, told as it is committed. It is committed without waiting for the disk, so that whoever is told can take the run at once;
-- then a commit of its own waits, and with it everything before is on the disk. Nothing is promised earlier: the submission is answered after
-- that, and a claim, whose commit comes later in the log and waits for the disk itself, takes the submission along.
CREATE PROCEDURE mainspring.accept_and_tell(
  run_id text, namespace text, queue text, region text, task text, args text, options text, priority smallint, due_at bigint, expires_at bigint,
  job_id text, job text, fire_at bigint, idx integer, key text, retry_of text, created_at bigint, since bigint, events text, now bigint,
  channel text, teller text) LANGUAGE plpgsql AS $$
BEGIN
  PERFORM set_config('synchronous_commit', 'off', true);
  WITH new AS (
    INSERT INTO mainspring.runs (id, namespace, queue, region, task, args, options, state, priority, care, due_at, expires_at, job_id, job,
                                 fire_at, idx, key, retry_of, created_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, 'pending', $8, $10 IS NOT NULL, $9, $10, $11, $12, $13, $14, $15, $16, $17)
    ON CONFLICT (id) DO NOTHING
    RETURNING mainspring.withdraw_if_ended(id, $18) AS known)
  INSERT INTO mainspring.outbox (count, events, created_at) SELECT 1, $19, $20 FROM new WHERE NOT known;
  IF FOUND THEN
    PERFORM pg_notify(channel, teller);
  END IF;
  COMMIT;
  PERFORM pg_logical_emit_message(true, 'mainspring', '');
END $$;
