-- oldest: 1
-- Where more jobs are due than a planner loads, it takes the earliest of each namespace: found without a look at those of others.
CREATE INDEX jobs_due_by_namespace ON mainspring.jobs (namespace, next_fire_at) WHERE next_fire_at IS NOT NULL AND paused_at IS NULL;
