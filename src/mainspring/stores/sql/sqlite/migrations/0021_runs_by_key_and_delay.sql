-- oldest: 1
-- The audit trail by kind of change. Finished runs by key, by how late they began and by how long they took. Runs without a key, that
-- began within a minute and took less than one are in none of them, and cost nothing.
CREATE INDEX audit_by_action ON audit (namespace, action, seq);
CREATE INDEX history_by_key ON history (namespace, key, id) WHERE key IS NOT NULL;
CREATE INDEX history_by_delay ON history
  (namespace, (started_at - due_at >= 600000000) + (started_at - due_at >= 3600000000) + (started_at - due_at >= 86400000000), id)
  WHERE started_at - due_at >= 60000000;
CREATE INDEX history_by_duration ON history
  (namespace, (finished_at - started_at >= 600000000) + (finished_at - started_at >= 3600000000) + (finished_at - started_at >= 86400000000), id)
  WHERE finished_at - started_at >= 60000000;

-- How a worker divides its places among priorities, as JSON. What a node says of its clock and its loops when it checks in.
ALTER TABLE workers ADD COLUMN pools TEXT NOT NULL DEFAULT '[]';
ALTER TABLE nodes ADD COLUMN skew INTEGER NOT NULL DEFAULT 0;
ALTER TABLE nodes ADD COLUMN loops TEXT NOT NULL DEFAULT '{}';
