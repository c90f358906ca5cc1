-- oldest: 1
-- Finished runs by region, for lists and counts. Runs of the region `default` are not in it: where there are no other regions, the index is empty
-- and costs nothing. ONLY: the partitions of coming days have it, those that exist are read by id until they are dropped, and nothing waits for
-- an index to be built.
CREATE INDEX history_by_region ON ONLY mainspring.history (namespace, region, id) WHERE region <> 'default';
