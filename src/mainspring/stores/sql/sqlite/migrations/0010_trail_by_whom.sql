-- oldest: 1
-- The audit trail is asked for what somebody did, and for what was done with something: neither reads what others did.
CREATE INDEX audit_by_subject ON audit (namespace, subject, seq);
CREATE INDEX audit_by_target ON audit (namespace, target, seq);
