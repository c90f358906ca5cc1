-- oldest: 1
-- Lists of unfinished runs by job and by tag read no others, also where nothing matches. Lists by task read an index that has the task, and no
-- rows: an index of its own would cost each submission more than it saves.
CREATE INDEX runs_by_job ON runs (namespace, job, id) WHERE job IS NOT NULL;
DROP INDEX runs_blocked;
CREATE INDEX runs_blocked ON runs (namespace, queue, task) WHERE state = 'blocked';

-- The tags of unfinished runs that have any.
CREATE TABLE run_tags (
  namespace TEXT NOT NULL,
  tag       TEXT NOT NULL,
  id        TEXT NOT NULL,
  PRIMARY KEY (namespace, tag, id)
) WITHOUT ROWID;

CREATE TRIGGER keep_run_tags AFTER INSERT ON runs WHEN instr(NEW.options, '"tags":[') > 0 BEGIN
  INSERT OR IGNORE INTO run_tags SELECT NEW.namespace, value, NEW.id FROM json_each(NEW.options, '$.tags');
END;
CREATE TRIGGER forget_run_tags AFTER DELETE ON runs WHEN instr(OLD.options, '"tags":[') > 0 BEGIN
  DELETE FROM run_tags
  WHERE namespace = OLD.namespace AND id = OLD.id AND tag IN (SELECT value FROM json_each(OLD.options, '$.tags'));
END;

INSERT OR IGNORE INTO run_tags
SELECT namespace, value, runs.id FROM runs CROSS JOIN json_each(runs.options, '$.tags') WHERE instr(options, '"tags":[') > 0;
