-- oldest: 1
-- Where a job comes from (code, call, api, cli; empty: stored by a program that did not note it), and what tells the code of one program from
-- that of others: a sync gives up only what its own code declared before.
ALTER TABLE jobs ADD COLUMN origin TEXT NOT NULL DEFAULT '';
ALTER TABLE jobs ADD COLUMN source TEXT NOT NULL DEFAULT '';
UPDATE jobs SET origin = app WHERE app IN ('cli', 'api');
