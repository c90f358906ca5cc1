-- oldest: 1
-- Which version of the program each worker runs: a fleet has two of them during an upgrade.
ALTER TABLE mainspring.workers ADD COLUMN version text NOT NULL DEFAULT '';
