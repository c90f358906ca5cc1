-- oldest: 1
-- Finished runs by region, for lists and counts. Runs of the region `default` are not in it: where there are no other regions, the index is empty
-- and costs nothing.
CREATE INDEX history_by_region ON history (namespace, region, id) WHERE region <> 'default';
