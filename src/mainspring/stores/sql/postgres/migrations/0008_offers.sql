-- oldest: 1
-- What workers with nothing to do would take at once. A lone submission is claimed for one of them in its own transaction: one sync before it
-- starts, instead of two. Nothing depends on these rows, so the log need not carry them. `ear` names the channel that the worker's process
-- listens to, and an advisory lock that its connection holds: whose lock is free is gone. `offered_at` is that process's own clock: it comes
-- back with what is handed over, and tells how old the claim may be.
CREATE UNLOGGED TABLE mainspring.offers (
  worker     text COLLATE "C" PRIMARY KEY,
  namespace  text COLLATE "C" NOT NULL,
  queues     text[] NOT NULL,
  regions    text[] NOT NULL,
  tasks      text[] NOT NULL,
  ear        text COLLATE "C" NOT NULL,
  ttl        bigint NOT NULL,
  offered_at bigint NOT NULL,
  until      bigint NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 100, autovacuum_vacuum_scale_factor = 0);
