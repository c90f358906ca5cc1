-- oldest: 1, concurrently
-- What the overview looks for: instants that came to nothing, and paused jobs. No index has a column that changes when a run ends or a job fires.
CREATE INDEX CONCURRENTLY IF NOT EXISTS firings_without_run ON mainspring.firings (created_at) WHERE run_id IS NULL;
CREATE INDEX CONCURRENTLY IF NOT EXISTS jobs_paused ON mainspring.jobs (namespace, paused_at) WHERE paused_at IS NOT NULL;
