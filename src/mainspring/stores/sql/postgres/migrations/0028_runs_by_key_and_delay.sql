-- oldest: 1
-- Finished runs by key, by how late they began and by how long they took. Runs without a key, that began within a minute and took less than one are
-- in none of them, and cost nothing. ONLY: the partitions of coming days have them, as in 0025.
CREATE INDEX history_by_key ON ONLY mainspring.history (namespace, key, id) WHERE key IS NOT NULL;
CREATE INDEX history_by_delay ON ONLY mainspring.history
  (namespace, width_bucket(started_at - due_at, '{60000000,600000000,3600000000,86400000000}'::bigint[]), id) WHERE started_at - due_at >= 60000000;
CREATE INDEX history_by_duration ON ONLY mainspring.history
  (namespace, width_bucket(finished_at - started_at, '{60000000,600000000,3600000000,86400000000}'::bigint[]), id)
  WHERE finished_at - started_at >= 60000000;

-- How a worker divides its places among priorities, as JSON. What a node says of its clock and its loops when it checks in.
ALTER TABLE mainspring.workers ADD COLUMN pools text NOT NULL DEFAULT '[]';
ALTER TABLE mainspring.nodes ADD COLUMN skew bigint NOT NULL DEFAULT 0;
ALTER TABLE mainspring.nodes ADD COLUMN loops text NOT NULL DEFAULT '{}';
