-- What was refreshed, and where: one row per firing and region, whichever region did the work.
CREATE SCHEMA regions;
CREATE TABLE regions.refreshed (
  fire_at timestamptz NOT NULL,
  run_id  text NOT NULL,
  here    text NOT NULL,
  at      timestamptz NOT NULL DEFAULT clock_timestamp()
);
