-- oldest: 1, concurrently
-- The audit trail is asked for one kind of change: it reads no other. `-seq`: no other index is in this order, so that no plan goes by another.
CREATE INDEX CONCURRENTLY IF NOT EXISTS audit_by_action ON mainspring.audit (namespace, action, (-seq));
