-- oldest: 24
-- Lines that a failure stops while more runs wait in them than one transaction ends: those up to a number (`until_seq`) end with the run, which keeps its
-- place, so that none of them begins. Recovery ends the rest.
CREATE TABLE stopped_lines (
  run_id    TEXT NOT NULL,
  namespace TEXT NOT NULL,
  name      TEXT NOT NULL,
  until_seq INTEGER NOT NULL,
  PRIMARY KEY (run_id, name)
) WITHOUT ROWID;
