-- append: keep the events of a transaction
INSERT INTO mainspring.outbox (count, events, created_at) VALUES ($1, $2, $3);

-- any_unpublished: whether a transaction waits for its position
SELECT EXISTS (SELECT FROM mainspring.outbox WHERE position IS NULL);

-- lock_positions: let nobody else give positions meanwhile; what is numbered next is looked up afterwards, when all before is visible
SELECT value FROM mainspring.counters WHERE name = 'event_position' FOR UPDATE;

-- publish: give the next transactions their positions. What caused something was visible before it, so its seq is smaller
WITH next AS MATERIALIZED (
  SELECT seq, count, sum(count) OVER (ORDER BY seq) - count AS before
  FROM (SELECT seq, count FROM mainspring.outbox WHERE position IS NULL ORDER BY seq LIMIT $1) AS first),
moved AS (
  UPDATE mainspring.counters SET value = value + (SELECT coalesce(sum(count), 0) FROM next) WHERE name = 'event_position')
UPDATE mainspring.outbox AS o SET position = $2::bigint + 1 + next.before FROM next
WHERE o.seq = next.seq AND o.seq = ANY (ARRAY(SELECT seq FROM next));

-- since: public events from a position on, beginning with the transaction that holds it
SELECT position, events FROM mainspring.outbox
WHERE position >= coalesce((SELECT max(position) FROM mainspring.outbox WHERE position <= $1), 0)
ORDER BY position LIMIT $2;

-- next_position: the position of the next public event
SELECT value + 1 FROM mainspring.counters WHERE name = 'event_position';

-- heard: up to where a listener has dealt with events
SELECT value FROM mainspring.counters WHERE name = 'heard:' || $1::text;

-- note_heard: note up to where, never further back than before
INSERT INTO mainspring.counters AS c (name, value) VALUES ('heard:' || $1::text, $2::bigint)
ON CONFLICT (name) DO UPDATE SET value = greatest(c.value, excluded.value);
