-- unnumbered: the next transactions that had something to tell
SELECT seq, count FROM outbox WHERE position IS NULL ORDER BY seq LIMIT ?;

-- advance: reserve public positions
UPDATE counters SET value = value + ?1 WHERE name = 'event_position' RETURNING value - ?1 + 1;

-- number: give a transaction's events their position
UPDATE outbox SET position = ? WHERE seq = ?;

-- since: numbered events from a position on, beginning with the transaction that holds it
SELECT position, events FROM outbox
WHERE position >= coalesce((SELECT max(position) FROM outbox WHERE position <= ?1), 0) ORDER BY position LIMIT ?2;

-- next_position: the position of the next event
SELECT value + 1 FROM counters WHERE name = 'event_position';
