-- oldest: 1
-- Since when a worker is asked to finish what it holds and to end. It learns of it with its next heartbeat.
ALTER TABLE mainspring.workers ADD COLUMN drain_requested_at bigint;
