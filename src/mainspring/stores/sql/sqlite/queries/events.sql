-- append: keep the events of a transaction; their positions go on from the newest, or from the last that was public
INSERT INTO outbox (position, count, events, created_at)
VALUES (coalesce((SELECT position + count FROM outbox ORDER BY position DESC LIMIT 1),
                 (SELECT value + 1 FROM counters WHERE name = 'event_position')), ?, ?, ?);

-- unpublished: how many of the next transactions are not public yet, and up to which position they reach
SELECT count(*), max(position + count - 1) FROM (
  SELECT position, count FROM outbox WHERE position > (SELECT value FROM counters WHERE name = 'event_position')
  ORDER BY position LIMIT ?);

-- publish: make events public up to a position
UPDATE counters SET value = max(value, ?) WHERE name = 'event_position';

-- since: public events from a position on, beginning with the transaction that holds it
SELECT position, events FROM outbox
WHERE position >= coalesce((SELECT max(position) FROM outbox WHERE position <= ?1), 0)
  AND position <= (SELECT value FROM counters WHERE name = 'event_position')
ORDER BY position LIMIT ?2;

-- next_position: the position of the next public event
SELECT value + 1 FROM counters WHERE name = 'event_position';

-- heard: up to where a listener has dealt with events
SELECT value FROM counters WHERE name = 'heard:' || ?1;

-- note_heard: note up to where, never further back than before
INSERT INTO counters AS c (name, value) VALUES ('heard:' || ?1, ?2)
ON CONFLICT (name) DO UPDATE SET value = max(c.value, excluded.value);
