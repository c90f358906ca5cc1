-- oldest: 1
-- Where a job comes from (code, call, api, cli; empty: stored by a program that did not note it), and what tells the code of one program from
-- that of others: a sync gives up only what its own code declared before.
ALTER TABLE mainspring.jobs ADD COLUMN origin text NOT NULL DEFAULT '', ADD COLUMN source text NOT NULL DEFAULT '';
UPDATE mainspring.jobs SET origin = app WHERE app IN ('cli', 'api');
