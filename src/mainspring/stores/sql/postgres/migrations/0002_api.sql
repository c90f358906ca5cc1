-- oldest: 1
-- What the API keeps: answers to repeated requests, limits, tokens that are no longer good, and who changed what.

CREATE TABLE mainspring.replies (
  scope       text COLLATE "C" NOT NULL,
  key         text COLLATE "C" NOT NULL,
  fingerprint text NOT NULL,
  since       bigint NOT NULL,               -- when the key was first seen: ids that follow from it keep this time
  held_until  bigint NOT NULL,               -- until then somebody works on the answer
  status      integer,
  body        text,
  expires_at  bigint NOT NULL,
  PRIMARY KEY (scope, key)
);
CREATE INDEX replies_by_expiry ON mainspring.replies (expires_at);

CREATE TABLE mainspring.paces (
  name    text COLLATE "C" PRIMARY KEY,
  paid_at bigint NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE mainspring.revocations (
  name       text COLLATE "C" PRIMARY KEY,
  at         bigint NOT NULL,
  expires_at bigint NOT NULL
);

CREATE TABLE mainspring.audit (
  seq        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  namespace  text COLLATE "C" NOT NULL DEFAULT 'default',
  at         bigint NOT NULL,
  subject    text NOT NULL,
  action     text NOT NULL,
  target     text NOT NULL,
  before     text,
  after      text,
  request_id text NOT NULL DEFAULT ''
);
CREATE INDEX audit_by_namespace ON mainspring.audit (namespace, seq);
CREATE INDEX audit_by_age ON mainspring.audit (at);
