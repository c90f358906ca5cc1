-- oldest: 1
-- With the indexes of pending and of running runs: the unfinished runs of a namespace are found without a look at those of others.
CREATE INDEX runs_blocked ON runs (namespace, queue) WHERE state = 'blocked';
