-- oldest: 1
-- Which version of the program each worker runs: a fleet has two of them during an upgrade.
ALTER TABLE workers ADD COLUMN version TEXT NOT NULL DEFAULT '';
