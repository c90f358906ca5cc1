-- oldest: 1
-- The terms of each name, with their ends. An owner that died closes no term: the next one that begins does.
CREATE TABLE term_history (
  name     TEXT NOT NULL,
  number   INTEGER NOT NULL,
  owner    TEXT NOT NULL,
  began_at INTEGER NOT NULL,
  ended_at INTEGER,
  reason   TEXT NOT NULL DEFAULT '',
  PRIMARY KEY (name, number)
) WITHOUT ROWID;
CREATE INDEX term_history_by_time ON term_history (began_at);
