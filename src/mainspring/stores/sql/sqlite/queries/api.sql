-- find_reply: what is known of a key that has not expired
SELECT fingerprint, since, held_until, status, body FROM replies WHERE scope = ? AND key = ? AND expires_at > ?;

-- reserve: reserve a key for the server that computes its answer; the time at which it was first seen stays
INSERT INTO replies (scope, key, fingerprint, since, held_until, expires_at) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (scope, key) DO UPDATE SET fingerprint = excluded.fingerprint, since = excluded.since, held_until = excluded.held_until,
                                       status = NULL, body = NULL, expires_at = excluded.expires_at;

-- keep: keep the answer to a key
UPDATE replies SET status = ?4, body = ?5, expires_at = ?6 WHERE scope = ?1 AND key = ?2 AND fingerprint = ?3;

-- let_go: release the reservation of a key
DELETE FROM replies WHERE scope = ? AND key = ? AND fingerprint = ? AND status IS NULL;

-- paid_at: when all that was asked for will have been paid off
SELECT paid_at FROM paces WHERE name = ?;

-- pay: remember it
INSERT INTO paces (name, paid_at) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET paid_at = excluded.paid_at;

-- revoke: note that tokens of this name are no longer good
INSERT INTO revocations (name, at, expires_at) VALUES (?, ?, ?)
ON CONFLICT (name) DO UPDATE SET at = max(at, excluded.at), expires_at = max(expires_at, excluded.expires_at);

-- revocations: all that matter still
SELECT name, at FROM revocations WHERE expires_at > ?;

-- note: add a change to the audit trail
INSERT INTO audit (namespace, at, subject, action, target, before, after, request_id) VALUES (?, ?, ?, ?, ?, ?, ?, ?);

-- noted_from: the number of the earliest change from an instant on. Each kind of change has an index of its ages
SELECT min(seq) FROM (
  SELECT * FROM (SELECT seq FROM audit WHERE action = 'run.submit' AND at >= ?1 ORDER BY at LIMIT 1)
  UNION ALL
  SELECT * FROM (SELECT seq FROM audit WHERE action <> 'run.submit' AND at >= ?1 ORDER BY at LIMIT 1));

-- notes: the newest changes with numbers from one to before another, and from one instant to before another
SELECT seq, namespace, at, subject, action, target, before, after, request_id FROM audit
WHERE namespace = ?1 AND seq >= ?2 AND seq < ?3 AND at >= ?4 AND at < ?5 ORDER BY seq DESC LIMIT ?6;

-- notes_by: the same, of one subject
SELECT seq, namespace, at, subject, action, target, before, after, request_id FROM audit INDEXED BY audit_by_subject
WHERE namespace = ?1 AND subject = ?7 AND seq >= ?2 AND seq < ?3 AND at >= ?4 AND at < ?5 AND (?8 IS NULL OR action = ?8)
ORDER BY seq DESC LIMIT ?6;

-- notes_on: the same, of one target, by one subject or by all
SELECT seq, namespace, at, subject, action, target, before, after, request_id FROM audit INDEXED BY audit_by_target
WHERE namespace = ?1 AND target = ?8 AND seq >= ?2 AND seq < ?3 AND at >= ?4 AND at < ?5 AND (?7 IS NULL OR subject = ?7)
  AND (?9 IS NULL OR action = ?9)
ORDER BY seq DESC LIMIT ?6;

-- notes_of: the same, of one action, by one subject or by all
SELECT seq, namespace, at, subject, action, target, before, after, request_id FROM audit INDEXED BY audit_by_action
WHERE namespace = ?1 AND action = ?8 AND seq >= ?2 AND seq < ?3 AND at >= ?4 AND at < ?5 AND (?7 IS NULL OR subject = ?7)
ORDER BY seq DESC LIMIT ?6;

-- forget_replies: answers that have expired
DELETE FROM replies WHERE (scope, key) IN (SELECT scope, key FROM replies WHERE expires_at <= ? LIMIT ?);

-- forget_paces: budgets that are whole again
DELETE FROM paces WHERE paid_at < ?;

-- forget_revocations: those of tokens that have expired by themselves
DELETE FROM revocations WHERE expires_at <= ?;

-- forget_notes: changes of long ago
DELETE FROM audit WHERE seq IN (SELECT seq FROM audit WHERE action <> 'run.submit' AND at < ? LIMIT ?);

-- forget_submissions: single submissions of a while ago
DELETE FROM audit WHERE seq IN (SELECT seq FROM audit WHERE action = 'run.submit' AND at < ? LIMIT ?);
