-- oldest: 1
-- A lone submission, told as it is committed: to all who listen, or, where no channel is named, to its submitter, who then tells others
-- while the commit is on its way to the disk. INFO is sent to the client at once, whatever its settings, and to no log.
CREATE OR REPLACE PROCEDURE mainspring.accept_and_tell(
  run_id text, namespace text, queue text, region text, task text, args text, options text, priority smallint, due_at bigint, expires_at bigint,
  job_id text, job text, fire_at bigint, idx integer, key text, retry_of text, created_at bigint, since bigint, events text, now bigint,
  noted_for text, request_id text, channel text, teller text) LANGUAGE plpgsql AS $$
DECLARE
  accepted boolean;
BEGIN
  PERFORM set_config('synchronous_commit', 'off', true);
  WITH new AS (
    INSERT INTO mainspring.runs (id, namespace, queue, region, task, args, options, state, priority, care, due_at, expires_at, job_id, job,
                                 fire_at, idx, key, retry_of, created_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, 'pending', $8, $10 IS NOT NULL, $9, $10, $11, $12, $13, $14, $15, $16, $17)
    ON CONFLICT (id) DO NOTHING
    RETURNING mainspring.withdraw_if_ended(id, $18) AS known),
  noted AS (
    INSERT INTO mainspring.audit (namespace, at, subject, action, target, after, request_id)
    SELECT $2, $20, $21, 'run.submit', 'run:' || $1, json_build_object('task', $5, 'queue', $3, 'priority', $8)::text, $22
    FROM new WHERE NOT known AND $21 <> '')
  INSERT INTO mainspring.outbox (count, events, created_at) SELECT 1, $19, $20 FROM new WHERE NOT known;
  accepted := FOUND;
  IF accepted AND channel IS NOT NULL THEN
    PERFORM pg_notify(channel, teller);
  END IF;
  COMMIT;
  IF accepted AND channel IS NULL THEN
    RAISE INFO 'accepted';
  END IF;
  PERFORM pg_logical_emit_message(true, 'mainspring', '');
END $$;
