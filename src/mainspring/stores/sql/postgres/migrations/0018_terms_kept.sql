-- oldest: 1
-- The terms of each name, with their ends. An owner that died closes no term: the next one that begins does.
CREATE TABLE mainspring.term_history (
  name     text COLLATE "C" NOT NULL,
  number   bigint NOT NULL,
  owner    text NOT NULL,
  began_at bigint NOT NULL,
  ended_at bigint,
  reason   text NOT NULL DEFAULT '',
  PRIMARY KEY (name, number)
);
CREATE INDEX term_history_by_time ON mainspring.term_history (began_at);
