-- oldest: 31
-- Two filters of finished runs that may never meet in one run, answered by one index: how late runs began with how long they took, and a region with
-- the class. The first replaces an index of as many runs. The second has only runs of regions other than `default`, whose ends add an entry to it.
-- Claims and submissions cost what they did. ONLY: the partitions of coming days have them, as in 0025.
DROP INDEX mainspring.history_by_delay;
CREATE INDEX history_by_delay_and_duration ON ONLY mainspring.history
  (namespace, width_bucket(started_at - due_at, '{60000000,600000000,3600000000,86400000000}'::bigint[]),
   width_bucket(finished_at - started_at, '{60000000,600000000,3600000000,86400000000}'::bigint[]), id) WHERE started_at - due_at >= 60000000;
CREATE INDEX history_by_region_and_class ON ONLY mainspring.history (namespace, region, queue, task, state, id) WHERE region <> 'default';
