-- oldest: 1
-- Lists of unfinished runs by task and by region read no others, also where nothing matches. Runs of the region `default` are not in the second
-- index: where there are no other regions, it is empty and costs nothing.
-- The task is first, so that no query by namespace alone goes by it.
CREATE INDEX runs_by_task ON runs (task, namespace, id);
CREATE INDEX runs_by_region ON runs (namespace, region, id) WHERE region <> 'default';
