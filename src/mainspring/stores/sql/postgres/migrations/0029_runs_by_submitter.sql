-- oldest: 1, concurrently
-- Runs by the subject that submitted them. It is part of their options: a run that was not submitted over HTTP has none, is in neither index, and
-- costs a search of its options. A claim adds nothing to the first: running runs are not in it, and are few. `id || ''`: no other index is in this
-- order, so that no plan goes by another. ONLY: the partitions of coming days have it, as in 0025.
CREATE INDEX CONCURRENTLY IF NOT EXISTS runs_waiting_by_submitter ON mainspring.runs
  (namespace, ((options::json ->> 'submitted_by') COLLATE "C"), (id || '')) WHERE state <> 'running' AND strpos(options, '"submitted_by":') > 0;
CREATE INDEX IF NOT EXISTS history_by_submitter ON ONLY mainspring.history
  (namespace, ((options::json ->> 'submitted_by') COLLATE "C"), state, id) WHERE strpos(options, '"submitted_by":') > 0;
