-- oldest: 3
-- Runs that were accepted one at a time and wait for nothing. Whoever writes next takes them into `runs`; a program that does not know of
-- this table would not see them. As many columns as a run begins with, and no index: to be accepted costs one page.

CREATE TABLE inbox (
  seq        INTEGER PRIMARY KEY,
  id         TEXT NOT NULL,
  args       TEXT NOT NULL,
  care       INTEGER NOT NULL,
  namespace  TEXT NOT NULL,
  queue      TEXT NOT NULL,
  region     TEXT NOT NULL,
  task       TEXT NOT NULL,
  options    TEXT NOT NULL,
  priority   INTEGER NOT NULL CHECK (priority BETWEEN 1 AND 10),
  due_at     INTEGER NOT NULL,
  expires_at INTEGER,
  job_id     TEXT,
  job        TEXT,
  fire_at    INTEGER,
  idx        INTEGER NOT NULL,
  key        TEXT,
  retry_of   TEXT,
  created_at INTEGER NOT NULL
);
