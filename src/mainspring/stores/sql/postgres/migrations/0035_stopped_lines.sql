-- oldest: 32
-- Lines that a failure stops while more runs wait in them than one transaction ends: those up to a number (`until_seq`) end with the run, which keeps its
-- place, so that none of them begins. Recovery ends the rest.
CREATE TABLE mainspring.stopped_lines (
  run_id    text COLLATE "C",
  namespace text COLLATE "C" NOT NULL,
  name      text COLLATE "C",
  until_seq bigint NOT NULL,
  PRIMARY KEY (run_id, name)
);
