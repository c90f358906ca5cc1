-- oldest: 1
-- Runs that wait and have a total timeout, of which there are few: the reaper looks once a second for those whose time is over.
CREATE INDEX runs_giving_up ON runs (json_extract(options, '$.give_up_at')) WHERE state <> 'running' AND instr(options, '"give_up_at":') > 0;
