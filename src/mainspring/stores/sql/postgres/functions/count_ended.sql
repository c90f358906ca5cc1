-- Counts finished runs by class and day as they enter history, and indexes their tags. A trigger does it, so that the counts are right whichever
-- version of the program ends a run. Each session counts in rows of its own (`shard`), so that transactions do not wait for each other.
CREATE OR REPLACE FUNCTION mainspring.count_ended() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO mainspring.tallies AS t (namespace, queue, task, state, day, shard, count)
  SELECT namespace, queue, task, state, finished_at / 86400000000 * 86400000000, pg_backend_pid(), count(*) FROM ended GROUP BY 1, 2, 3, 4, 5
  ON CONFLICT (namespace, queue, task, state, day, shard) DO UPDATE SET count = t.count + excluded.count;
  -- Three times: alone, with the state behind it, and with the whole class: so a list by tag and state, queue or task reads no others.
  INSERT INTO mainspring.history_tags (namespace, tag, id, finished_at)
  SELECT DISTINCT t.namespace, t.tag || form.suffix, t.id, t.finished_at
  FROM (SELECT namespace, state, queue, task, id, finished_at, jsonb_array_elements_text(options::jsonb -> 'tags') AS tag
        FROM ended WHERE strpos(options, '"tags":[') > 0) AS t
  CROSS JOIN LATERAL (VALUES (''), (chr(31) || t.state), (concat_ws(chr(31), '', t.state, t.queue, t.task))) AS form (suffix);
  RETURN NULL;
END $$;

DO $$
BEGIN
  -- Only if it is missing: creating a trigger locks the table. A statement that names a partition does not fire the triggers of the parent.
  IF NOT EXISTS (SELECT FROM pg_trigger WHERE tgname = 'count_ended' AND tgrelid = 'mainspring.history_rest'::regclass) THEN
    CREATE TRIGGER count_ended AFTER INSERT ON mainspring.history REFERENCING NEW TABLE AS ended
      FOR EACH STATEMENT EXECUTE FUNCTION mainspring.count_ended();
    CREATE TRIGGER count_ended AFTER INSERT ON mainspring.history_rest REFERENCING NEW TABLE AS ended
      FOR EACH STATEMENT EXECUTE FUNCTION mainspring.count_ended();
  END IF;
END $$;
