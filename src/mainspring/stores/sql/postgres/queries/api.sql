-- take_turns: requests with one key take turns, even before there is a row
SELECT pg_advisory_xact_lock(hashtextextended($1, 0));

-- find_reply: what is known of a key that has not expired
SELECT fingerprint, since, held_until, status, body FROM mainspring.replies WHERE scope = $1 AND key = $2 AND expires_at > $3;

-- reserve: reserve a key for the server that computes its answer; the time at which it was first seen stays
INSERT INTO mainspring.replies (scope, key, fingerprint, since, held_until, expires_at) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (scope, key) DO UPDATE SET fingerprint = excluded.fingerprint, since = excluded.since, held_until = excluded.held_until,
                                       status = NULL, body = NULL, expires_at = excluded.expires_at;

-- keep: keep the answer to a key
UPDATE mainspring.replies SET status = $4, body = $5, expires_at = $6 WHERE scope = $1 AND key = $2 AND fingerprint = $3;

-- let_go: release the reservation of a key
DELETE FROM mainspring.replies WHERE scope = $1 AND key = $2 AND fingerprint = $3 AND status IS NULL;

-- paid_at: when the budget that was spent will be restored; locked, so that requests take turns
INSERT INTO mainspring.paces AS p (name, paid_at) VALUES ($1, 0) ON CONFLICT (name) DO UPDATE SET paid_at = p.paid_at RETURNING paid_at;

-- pay: remember it
UPDATE mainspring.paces SET paid_at = $2 WHERE name = $1;

-- revoke: note that tokens of this name are no longer good
INSERT INTO mainspring.revocations AS r (name, at, expires_at) VALUES ($1, $2, $3)
ON CONFLICT (name) DO UPDATE SET at = greatest(r.at, excluded.at), expires_at = greatest(r.expires_at, excluded.expires_at);

-- revocations: all that matter still
SELECT name, at FROM mainspring.revocations WHERE expires_at > $1;

-- note: add a change to the audit trail
INSERT INTO mainspring.audit (namespace, at, subject, action, target, before, after, request_id) VALUES ($1, $2, $3, $4, $5, $6, $7, $8);

-- noted_from: the number of the earliest change from an instant on. Each kind of change has an index of its ages
SELECT min(seq) FROM (
  (SELECT seq FROM mainspring.audit WHERE action = 'run.submit' AND at >= $1 ORDER BY at LIMIT 1)
  UNION ALL
  (SELECT seq FROM mainspring.audit WHERE action <> 'run.submit' AND at >= $1 ORDER BY at LIMIT 1)) AS earliest;

-- notes: the newest changes with numbers from one to before another, and from one instant to before another
SELECT seq, namespace, at, subject, action, target, before, after, request_id FROM mainspring.audit
WHERE namespace = $1 AND seq >= $2 AND seq < $3 AND at >= $4 AND at < $5 ORDER BY seq DESC LIMIT $6;

-- notes_by: the same, of one subject
SELECT seq, namespace, at, subject, action, target, before, after, request_id FROM mainspring.audit
WHERE namespace = $1 AND subject = $7 AND -seq > -($3::bigint) AND -seq <= -($2::bigint) AND at >= $4 AND at < $5
  AND ($8::text IS NULL OR action = $8)
ORDER BY -seq LIMIT $6;

-- notes_on: the same, of one target, by one subject or by all
SELECT seq, namespace, at, subject, action, target, before, after, request_id FROM mainspring.audit
WHERE namespace = $1 AND left(target, 200) = left($8, 200) AND -seq > -($3::bigint) AND -seq <= -($2::bigint) AND target = $8
  AND at >= $4 AND at < $5 AND ($7::text IS NULL OR subject = $7) AND ($9::text IS NULL OR action = $9)
ORDER BY -seq LIMIT $6;

-- notes_of: the same, of one action, by one subject or by all
SELECT seq, namespace, at, subject, action, target, before, after, request_id FROM mainspring.audit
WHERE namespace = $1 AND action = $8 AND -seq > -($3::bigint) AND -seq <= -($2::bigint) AND at >= $4 AND at < $5
  AND ($7::text IS NULL OR subject = $7)
ORDER BY -seq LIMIT $6;

-- forget_replies: answers that have expired
DELETE FROM mainspring.replies WHERE ctid = ANY (ARRAY(SELECT ctid FROM mainspring.replies WHERE expires_at <= $1 LIMIT $2));

-- forget_paces: budgets that are whole again
DELETE FROM mainspring.paces WHERE paid_at < $1;

-- forget_revocations: those of tokens that have expired by themselves
DELETE FROM mainspring.revocations WHERE expires_at <= $1;

-- forget_notes: changes of long ago
DELETE FROM mainspring.audit WHERE seq = ANY (ARRAY(SELECT seq FROM mainspring.audit WHERE action <> 'run.submit' AND at < $1 LIMIT $2));

-- forget_submissions: single submissions of a while ago
DELETE FROM mainspring.audit WHERE seq = ANY (ARRAY(SELECT seq FROM mainspring.audit WHERE action = 'run.submit' AND at < $1 LIMIT $2));

-- schema: the version of the schema
SELECT coalesce(max(version), 0) FROM mainspring.migrations;
