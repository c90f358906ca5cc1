-- oldest: 1
-- Gives the events of the next transactions their positions, at most `most` of them, in one journey: a relay does that some forty times a
-- second while anything happens. Nobody else may do so meanwhile, and what is numbered next is looked up when all before is visible. It need
-- not be durable: what was not numbered will be. What caused something was visible before it, so its seq is smaller.
CREATE FUNCTION mainspring.number_events(most bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  last bigint;
  numbered bigint;
BEGIN
  -- A look first: a write to find nothing would cost an idle node a commit each time.
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
