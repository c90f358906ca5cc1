-- oldest: 1, concurrently
-- Lists of unfinished runs by task and by job read no others, also where nothing matches. A claim adds nothing to the first: running runs are
-- not in it, and are few. `id || ''`: no other index is in this order, so that no plan, not even one that was made while the table was empty,
-- goes by another.
CREATE INDEX CONCURRENTLY runs_waiting_by_task ON mainspring.runs (namespace, task, (id || '')) WHERE state <> 'running';
CREATE INDEX CONCURRENTLY runs_by_job ON mainspring.runs (namespace, job, (id || '')) WHERE job IS NOT NULL;
