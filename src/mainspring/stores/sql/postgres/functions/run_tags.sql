-- Keeps the tags of unfinished runs. Row triggers with a condition: a run without tags pays for its comparison only.
CREATE OR REPLACE FUNCTION mainspring.keep_run_tags() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO mainspring.run_tags (namespace, tag, id)
  SELECT DISTINCT NEW.namespace, jsonb_array_elements_text(NEW.options::jsonb -> 'tags'), NEW.id ON CONFLICT DO NOTHING;
  RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION mainspring.forget_run_tags() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM mainspring.run_tags
  WHERE namespace = OLD.namespace AND tag IN (SELECT jsonb_array_elements_text(OLD.options::jsonb -> 'tags')) AND id = OLD.id;
  RETURN NULL;
END $$;

DO $$
BEGIN
  IF NOT EXISTS (SELECT FROM pg_trigger WHERE tgname = 'keep_run_tags' AND tgrelid = 'mainspring.runs'::regclass) THEN
    CREATE TRIGGER keep_run_tags AFTER INSERT ON mainspring.runs
      FOR EACH ROW WHEN (strpos(NEW.options, '"tags":[') > 0) EXECUTE FUNCTION mainspring.keep_run_tags();
    CREATE TRIGGER forget_run_tags AFTER DELETE ON mainspring.runs
      FOR EACH ROW WHEN (strpos(OLD.options, '"tags":[') > 0) EXECUTE FUNCTION mainspring.forget_run_tags();
  END IF;
END $$;
