-- oldest: 32
-- Runs that have ended while more waited for them than one transaction judges. Recovery judges the rest.
CREATE TABLE mainspring.ended_upstreams (
  run_id text COLLATE "C" PRIMARY KEY,
  state  text NOT NULL
);
