-- Subtracts finished runs that are deleted one by one from the counts, and deletes their tags; see count_ended.sql.
CREATE OR REPLACE FUNCTION mainspring.count_forgotten() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO mainspring.tallies AS t (namespace, queue, task, state, day, shard, count)
  SELECT namespace, queue, task, state, finished_at / 86400000000 * 86400000000, pg_backend_pid(), -count(*) FROM gone GROUP BY 1, 2, 3, 4, 5
  ON CONFLICT (namespace, queue, task, state, day, shard) DO UPDATE SET count = t.count + excluded.count;
  DELETE FROM mainspring.history_tags
  WHERE id = ANY (ARRAY(SELECT id FROM gone WHERE strpos(options, '"tags":[') > 0));
  RETURN NULL;
END $$;

DO $$
BEGIN
  IF NOT EXISTS (SELECT FROM pg_trigger WHERE tgname = 'count_forgotten' AND tgrelid = 'mainspring.history_rest'::regclass) THEN
    CREATE TRIGGER count_forgotten AFTER DELETE ON mainspring.history REFERENCING OLD TABLE AS gone
      FOR EACH STATEMENT EXECUTE FUNCTION mainspring.count_forgotten();
    CREATE TRIGGER count_forgotten AFTER DELETE ON mainspring.history_rest REFERENCING OLD TABLE AS gone
      FOR EACH STATEMENT EXECUTE FUNCTION mainspring.count_forgotten();
  END IF;
END $$;
