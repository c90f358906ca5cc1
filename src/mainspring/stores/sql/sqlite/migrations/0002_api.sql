-- oldest: 1
-- What the API keeps: answers to repeated requests, limits, tokens that are no longer good, and who changed what.

CREATE TABLE replies (
  scope       TEXT NOT NULL,
  key         TEXT NOT NULL,
  fingerprint TEXT NOT NULL,
  since       INTEGER NOT NULL,              -- when the key was first seen: ids that follow from it keep this time
  held_until  INTEGER NOT NULL,              -- until then somebody works on the answer
  status      INTEGER,
  body        TEXT,
  expires_at  INTEGER NOT NULL,
  PRIMARY KEY (scope, key)
) WITHOUT ROWID;
CREATE INDEX replies_by_expiry ON replies (expires_at);

CREATE TABLE paces (
  name    TEXT PRIMARY KEY,
  paid_at INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE revocations (
  name       TEXT PRIMARY KEY,
  at         INTEGER NOT NULL,
  expires_at INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE audit (
  seq        INTEGER PRIMARY KEY,
  namespace  TEXT NOT NULL DEFAULT 'default',
  at         INTEGER NOT NULL,
  subject    TEXT NOT NULL,
  action     TEXT NOT NULL,
  target     TEXT NOT NULL,
  before     TEXT,
  after      TEXT,
  request_id TEXT NOT NULL DEFAULT ''
);
CREATE INDEX audit_by_namespace ON audit (namespace, seq);
CREATE INDEX audit_by_age ON audit (at);
