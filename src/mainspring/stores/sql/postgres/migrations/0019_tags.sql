-- oldest: 1
-- The tags of unfinished runs that have any, so that a list by tag reads no others. Triggers keep it: ../functions/run_tags.sql.
CREATE TABLE mainspring.run_tags (
  namespace text COLLATE "C" NOT NULL,
  tag       text COLLATE "C" NOT NULL,
  id        text COLLATE "C" NOT NULL,
  PRIMARY KEY (namespace, tag, id)
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);

-- Runs are accepted and claimed again when the triggers exist: the lock is held for about half a second for each million runs.
LOCK TABLE mainspring.runs IN SHARE ROW EXCLUSIVE MODE;
INSERT INTO mainspring.run_tags
SELECT DISTINCT namespace, jsonb_array_elements_text(options::jsonb -> 'tags'), id FROM mainspring.runs WHERE strpos(options, '"tags":[') > 0;

-- From this instant on `history_tags` also has a row with the state of the run behind the tag (../functions/count_ended.sql). Runs that finished
-- before have one without it only. The minute lets statements end that began with the old trigger.
INSERT INTO mainspring.facts
SELECT 'states_of_tags_since', CASE WHEN EXISTS (SELECT FROM mainspring.history_tags)
  THEN (extract(epoch FROM clock_timestamp()) * 1000000)::bigint + 60000000 ELSE 0 END;
