-- oldest: 1
-- Runs by the subject that submitted them. It is part of their options: a run that was not submitted over HTTP has none, is in neither index, and
-- costs a search of its options. A claim changes nothing in the first.
CREATE INDEX runs_by_submitter ON runs (namespace, json_extract(options, '$.submitted_by'), id) WHERE instr(options, '"submitted_by":') > 0;
CREATE INDEX history_by_submitter ON history (namespace, json_extract(options, '$.submitted_by'), state, id)
WHERE instr(options, '"submitted_by":') > 0;
