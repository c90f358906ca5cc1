-- oldest: 1
-- What the overview looks for: instants that came to nothing, and paused jobs. No index has a column that changes when a run ends or a job fires.
CREATE INDEX firings_without_run ON firings (created_at) WHERE run_id IS NULL;
CREATE INDEX jobs_paused ON jobs (namespace, paused_at) WHERE paused_at IS NOT NULL;
