-- append: keep the events of a transaction
INSERT INTO mainspring.outbox (count, events, created_at) VALUES ($1, $2, $3);

-- number: give the next transactions their positions; how many those were
SELECT mainspring.number_events($1);

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
