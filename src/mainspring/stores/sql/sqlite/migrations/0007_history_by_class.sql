-- oldest: 3
-- Every list and count of finished runs is answered by an index, also where nothing matches. A list is the merge of the newest of each class
-- (namespace, queue, task, state) that it fits. Counts, tags and what people type of ids are kept in arrears by the cleaner, up to the row
-- that `summed_up` names, so that no run pays for them when it ends; the rows after that are looked through.

CREATE INDEX history_by_class ON history (namespace, queue, task, state, id);
CREATE INDEX history_by_job ON history (namespace, job, state, id) WHERE job IS NOT NULL;
DROP INDEX history_of_job;
DROP INDEX history_not_succeeded;

CREATE TABLE tallies (
  namespace TEXT NOT NULL,
  state     TEXT NOT NULL,
  count     INTEGER NOT NULL,
  PRIMARY KEY (namespace, state)
) WITHOUT ROWID;

-- The last eight characters of ids. In batches of 4,096 runs, each of which is a few pages: a search looks into each batch.
CREATE TABLE tails (
  batch INTEGER NOT NULL,
  tail  TEXT NOT NULL,
  seq   INTEGER NOT NULL,
  PRIMARY KEY (batch, tail, seq)
) WITHOUT ROWID;

CREATE TABLE summed_up (seq INTEGER NOT NULL);
INSERT INTO summed_up VALUES (0);

CREATE TRIGGER count_forgotten AFTER DELETE ON history BEGIN
  UPDATE tallies SET count = count - 1 WHERE namespace = OLD.namespace AND state = OLD.state AND OLD.seq <= (SELECT seq FROM summed_up);
  DELETE FROM tails WHERE batch = OLD.seq >> 12 AND tail = substr(OLD.id, -8) AND seq = OLD.seq;
  -- The number of a last row that is deleted is given to the next.
  UPDATE summed_up SET seq = ifnull((SELECT max(seq) FROM history), 0) WHERE seq > ifnull((SELECT max(seq) FROM history), 0);
END;

-- The tags of finished runs that have any.
CREATE TABLE history_tags (
  namespace TEXT NOT NULL,
  tag       TEXT NOT NULL,
  id        TEXT NOT NULL,
  PRIMARY KEY (namespace, tag, id)
) WITHOUT ROWID;

CREATE TRIGGER forget_tags AFTER DELETE ON history WHEN instr(OLD.options, '"tags":[') > 0 BEGIN
  DELETE FROM history_tags
  WHERE namespace = OLD.namespace AND id = OLD.id AND tag IN (SELECT value FROM json_each(OLD.options, '$.tags'));
END;
