-- oldest: 1
-- Due runs that may leave their region, of which there are few: the reaper looks for them once a second.
CREATE INDEX runs_failover ON runs (due_at, id) WHERE state = 'pending' AND instr(options, '"region_failover":') > 0;
