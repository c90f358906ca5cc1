-- oldest: 1
-- The audit trail tells of single submissions too. They are many, and are kept only as long as runs are: each kind has an index of its ages.
DROP INDEX mainspring.audit_by_age;
CREATE INDEX audit_submissions_by_age ON mainspring.audit (at) WHERE action = 'run.submit';
CREATE INDEX audit_others_by_age ON mainspring.audit (at) WHERE action <> 'run.submit';
