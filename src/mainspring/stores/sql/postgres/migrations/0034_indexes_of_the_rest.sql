-- oldest: 32, concurrently
-- The default partition gets the indexes that 0025 to 0032 gave only to partitions of coming days: it has the runs of a first day that began before
-- its own partition was made, and lists read all of them.
CREATE INDEX CONCURRENTLY IF NOT EXISTS history_rest_by_region ON mainspring.history_rest (namespace, region, id) WHERE region <> 'default';
CREATE INDEX CONCURRENTLY IF NOT EXISTS history_rest_by_region_and_class ON mainspring.history_rest (namespace, region, queue, task, state, id)
  WHERE region <> 'default';
CREATE INDEX CONCURRENTLY IF NOT EXISTS history_rest_by_key ON mainspring.history_rest (namespace, key, id) WHERE key IS NOT NULL;
CREATE INDEX CONCURRENTLY IF NOT EXISTS history_rest_by_duration ON mainspring.history_rest
  (namespace, width_bucket(finished_at - started_at, '{60000000,600000000,3600000000,86400000000}'::bigint[]), id)
  WHERE finished_at - started_at >= 60000000;
CREATE INDEX CONCURRENTLY IF NOT EXISTS history_rest_by_delay_and_duration ON mainspring.history_rest
  (namespace, width_bucket(started_at - due_at, '{60000000,600000000,3600000000,86400000000}'::bigint[]),
   width_bucket(finished_at - started_at, '{60000000,600000000,3600000000,86400000000}'::bigint[]), id) WHERE started_at - due_at >= 60000000;
CREATE INDEX CONCURRENTLY IF NOT EXISTS history_rest_by_submitter ON mainspring.history_rest
  (namespace, ((options::json ->> 'submitted_by') COLLATE "C"), state, id) WHERE strpos(options, '"submitted_by":') > 0;
