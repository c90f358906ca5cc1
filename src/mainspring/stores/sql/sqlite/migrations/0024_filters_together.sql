-- oldest: 23
-- Two filters of finished runs that may never meet in one run, answered by one index: how late runs began with how long they took, and a
-- region with the class. The first replaces an index of as many runs. The second has only runs of regions other than `default`, whose ends
-- add an entry to it. Claims and submissions cost what they did.
DROP INDEX history_by_delay;
CREATE INDEX history_by_delay_and_duration ON history
  (namespace, (started_at - due_at >= 600000000) + (started_at - due_at >= 3600000000) + (started_at - due_at >= 86400000000),
   (finished_at - started_at >= 60000000) + (finished_at - started_at >= 600000000) + (finished_at - started_at >= 3600000000)
   + (finished_at - started_at >= 86400000000), id)
  WHERE started_at - due_at >= 60000000;
CREATE INDEX history_by_region_and_class ON history (namespace, region, queue, task, state, id) WHERE region <> 'default';
