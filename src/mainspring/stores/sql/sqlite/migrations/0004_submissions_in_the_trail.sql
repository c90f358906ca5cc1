-- oldest: 3
-- The audit trail tells of single submissions too. They are many, and are kept only as long as runs are: each kind has an index of its ages.
-- One that stands in the inbox is told of when it is taken in.
DROP INDEX audit_by_age;
CREATE INDEX audit_submissions_by_age ON audit (at) WHERE action = 'run.submit';
CREATE INDEX audit_others_by_age ON audit (at) WHERE action <> 'run.submit';
ALTER TABLE inbox ADD COLUMN noted_for TEXT NOT NULL DEFAULT '';
ALTER TABLE inbox ADD COLUMN request_id TEXT NOT NULL DEFAULT '';
