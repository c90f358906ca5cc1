-- oldest: 1, concurrently
-- Runs that wait and have a total timeout, of which there are few: the reaper looks once a second for those whose time is over.
CREATE INDEX CONCURRENTLY IF NOT EXISTS runs_giving_up ON mainspring.runs (((options::json ->> 'give_up_at')::bigint))
  WHERE state <> 'running' AND strpos(options, '"give_up_at":') > 0;
