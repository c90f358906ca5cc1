-- oldest: 1, concurrently
-- Due runs that may leave their region, of which there are few: the reaper looks for them once a second.
CREATE INDEX CONCURRENTLY IF NOT EXISTS runs_failover ON mainspring.runs (due_at, id)
  WHERE state = 'pending' AND strpos(options, '"region_failover":') > 0;
