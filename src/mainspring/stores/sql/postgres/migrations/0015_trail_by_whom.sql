-- oldest: 1
-- The audit trail is asked for what somebody did, and for what was done with something: neither reads what others did. A target may be longer
-- than a row of an index can be, subjects have 200 characters at most. `-seq`: no other index is in this order, so that no plan, not even
-- one that was made while the table was empty, goes by another.
CREATE INDEX audit_by_subject ON mainspring.audit (namespace, subject, (-seq));
CREATE INDEX audit_by_target ON mainspring.audit (namespace, left(target, 200), (-seq));
