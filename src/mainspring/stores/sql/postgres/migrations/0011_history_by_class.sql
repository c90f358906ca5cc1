-- oldest: 1
-- Every list and count of finished runs is answered by an index, also where nothing matches.
--
-- `tallies` counts them by class (namespace, queue, task, state) and day. It says which classes exist at all, so that a list is the merge of
-- the newest of each of its classes, and it is the answer to counts. Triggers keep it, so that it is right whichever program ends a run. Each
-- session counts in rows of its own (`shard`): no two transactions wait for each other. The cleaner adds up the shards of past days.
CREATE TABLE mainspring.tallies (
  namespace text COLLATE "C" NOT NULL,
  queue     text COLLATE "C" NOT NULL,
  task      text COLLATE "C" NOT NULL,
  state     text COLLATE "C" NOT NULL,
  day       bigint NOT NULL,
  shard     integer NOT NULL,
  count     bigint NOT NULL,
  PRIMARY KEY (namespace, queue, task, state, day, shard)
) WITH (fillfactor = 30, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX tallies_by_day ON mainspring.tallies (day, shard);

-- The tags of finished runs that have any; by day like history.
CREATE TABLE mainspring.history_tags (
  namespace   text COLLATE "C" NOT NULL,
  tag         text COLLATE "C" NOT NULL,
  id          text COLLATE "C" NOT NULL,
  finished_at bigint NOT NULL
) PARTITION BY RANGE (finished_at);
CREATE TABLE mainspring.history_tags_rest PARTITION OF mainspring.history_tags DEFAULT;
CREATE INDEX history_tags_rest_by_age ON mainspring.history_tags_rest (finished_at);
CREATE INDEX history_tags_by_tag ON mainspring.history_tags (namespace, tag, id, finished_at);
CREATE INDEX history_tags_of_run ON mainspring.history_tags (id);

CREATE INDEX history_by_class ON mainspring.history (namespace, queue, task, state, id);
CREATE INDEX history_by_job ON mainspring.history (namespace, job, state, id) WHERE job IS NOT NULL;
DROP INDEX mainspring.history_not_succeeded;
DROP INDEX mainspring.history_of_job;

-- What ends meanwhile waits: it is counted by the triggers, which ../functions/count_*.sql make before this transaction ends.
LOCK TABLE mainspring.history IN SHARE ROW EXCLUSIVE MODE;
INSERT INTO mainspring.tallies
SELECT namespace, queue, task, state, finished_at / 86400000000 * 86400000000, 0, count(*) FROM mainspring.history GROUP BY 1, 2, 3, 4, 5;
INSERT INTO mainspring.history_tags
SELECT DISTINCT namespace, jsonb_array_elements_text(options::jsonb -> 'tags'), id, finished_at
FROM mainspring.history WHERE strpos(options, '"tags":[') > 0;
