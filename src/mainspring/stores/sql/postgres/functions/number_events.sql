-- Gives the events of the next transactions, at most `most` of them, their public positions. Returns how many transactions it numbered. The relay
-- calls it some forty times a second under load, so it is one round trip. The lock on the counter makes relays take turns, and the rows are
-- read after the lock is held, when all earlier positions are visible. The commit need not be durable: what is lost is numbered again. A cause
-- is visible before its effect, so it has the smaller seq.
CREATE OR REPLACE FUNCTION mainspring.number_events(most bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  last bigint;
  numbered bigint;
BEGIN
  -- Read first: a write that finds nothing would cost an idle node a commit each time.
  IF NOT EXISTS (SELECT FROM mainspring.outbox WHERE position IS NULL) THEN
    RETURN 0;
  END IF;
  PERFORM set_config('synchronous_commit', 'off', true);
  SELECT value INTO last FROM mainspring.counters WHERE name = 'event_position' FOR UPDATE;
  WITH next AS MATERIALIZED (
    SELECT seq, count, sum(count) OVER (ORDER BY seq) - count AS before
    FROM (SELECT seq, count FROM mainspring.outbox WHERE position IS NULL ORDER BY seq LIMIT most) AS first),
  moved AS (
    UPDATE mainspring.counters SET value = value + (SELECT coalesce(sum(count), 0) FROM next) WHERE name = 'event_position')
  UPDATE mainspring.outbox AS o SET position = last + 1 + next.before FROM next
  WHERE o.seq = next.seq AND o.seq = ANY (ARRAY(SELECT seq FROM next));
  GET DIAGNOSTICS numbered = ROW_COUNT;
  RETURN numbered;
END $$;
