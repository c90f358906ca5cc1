-- oldest: 1
-- The nodes of a cluster without a leader, with the time at which each checked in most recently.
CREATE TABLE mainspring.nodes (
  name          text COLLATE "C" PRIMARY KEY,
  coordination  text NOT NULL,
  every         bigint NOT NULL,
  started_at    bigint NOT NULL,
  checked_in_at bigint NOT NULL
) WITH (fillfactor = 20);
