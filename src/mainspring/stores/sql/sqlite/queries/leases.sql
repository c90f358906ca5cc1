-- end_silent: the term of an owner that let its lease expire ended with the last renewal
UPDATE term_history SET reason = ?5, ended_at = max(began_at, (SELECT expires_at - ?3 FROM leases WHERE name = ?1))
WHERE name = ?1 AND ended_at IS NULL AND owner = (
    SELECT owner FROM leases WHERE name = ?1 AND owner <> ?2 AND expires_at > 0 AND expires_at <= ?4
);

-- acquire: take a lease that is free or has expired; its token always grows
INSERT INTO leases (name, owner, token, expires_at) VALUES (?1, ?2, 1, ?3)
ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, token = token + 1, expires_at = excluded.expires_at WHERE expires_at <= ?4
RETURNING token;

-- renew: keep a lease that is still ours
UPDATE leases SET expires_at = ?1 WHERE name = ?2 AND owner = ?3 AND token = ?4 AND expires_at > ?5;

-- release: free a lease that is still ours, and keep its token
UPDATE leases SET expires_at = 0 WHERE name = ?1 AND owner = ?2 AND token = ?3;

-- holders: the holders of leases by a prefix of their names
SELECT DISTINCT owner FROM leases WHERE substr(name, 1, length(?1)) = ?1 AND expires_at > ?2;

-- newest_term: the newest term of a name
SELECT number, owner FROM terms WHERE name = ?;

-- begin_term: a new term
INSERT INTO terms (name, number, owner, began_at) VALUES (?1, 1, ?2, ?3)
ON CONFLICT (name) DO UPDATE SET number = number + 1, owner = excluded.owner, began_at = excluded.began_at
RETURNING number;

-- open_term: note in the history that a term has begun, or goes on after its owner had ended it
INSERT INTO term_history (name, number, owner, began_at) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (name, number) DO UPDATE SET ended_at = NULL, reason = '' WHERE ended_at IS NOT NULL
RETURNING number;

-- close_terms: earlier terms that their owners never closed
UPDATE term_history SET ended_at = ?3, reason = ?4 WHERE name = ?1 AND number < ?2 AND ended_at IS NULL;

-- forget_terms: keep the latest of a name
DELETE FROM term_history WHERE name = ?1 AND number <= ?2;

-- end_term: the owner of a term says that it has ended, and why
UPDATE term_history SET ended_at = ?4, reason = ?5
WHERE name = ?1 AND number = ?2 AND owner = ?3 AND ended_at IS NULL;

-- terms: the latest terms, newest first
SELECT name, number, owner, began_at, ended_at, reason FROM term_history
WHERE ?1 IS NULL OR name = ?1 ORDER BY began_at DESC, name, number DESC LIMIT ?2;

-- check_in: a node is alive
INSERT INTO nodes (name, coordination, every, started_at, checked_in_at, skew, loops) VALUES (?1, ?2, ?3, ?4, ?4, ?5, ?6)
ON CONFLICT (name) DO UPDATE SET coordination = excluded.coordination, every = excluded.every, checked_in_at = excluded.checked_in_at,
                                 skew = excluded.skew, loops = excluded.loops;

-- forget_nodes: those that have not checked in for long
DELETE FROM nodes WHERE checked_in_at < ?1;

-- leave: a node stops
DELETE FROM nodes WHERE name = ?1;

-- nodes: all that checked in lately, by name
SELECT name, coordination, every, started_at, checked_in_at, skew, loops FROM nodes ORDER BY name;
