-- acquire: take a lease that is free or has expired; its token always grows. A held lease is neither locked nor written. The term of an owner that let it expire ended with the last renewal
WITH silent AS (
    UPDATE mainspring.term_history h SET ended_at = GREATEST(h.began_at, l.expires_at - $3::bigint), reason = $5
    FROM mainspring.leases l
    WHERE l.name = $1 AND l.owner <> $2 AND l.expires_at > 0 AND l.expires_at <= mainspring.store_now($4)
        AND h.name = l.name AND h.owner = l.owner AND h.ended_at IS NULL
)
INSERT INTO mainspring.leases AS l (name, owner, token, expires_at)
SELECT $1, $2, 1, mainspring.store_now($4) + $3::bigint
WHERE NOT EXISTS (SELECT FROM mainspring.leases WHERE name = $1 AND expires_at > mainspring.store_now($4))
ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, token = l.token + 1, expires_at = mainspring.store_now($4) + $3::bigint
WHERE l.expires_at <= mainspring.store_now($4)
RETURNING token, expires_at;

-- renew: keep a lease that is still ours
UPDATE mainspring.leases SET expires_at = mainspring.store_now($5) + $4::bigint
WHERE name = $1 AND owner = $2 AND token = $3 AND expires_at > mainspring.store_now($5) RETURNING expires_at;

-- release: free a lease that is still ours, and keep its token
UPDATE mainspring.leases SET expires_at = 0 WHERE name = $1 AND owner = $2 AND token = $3;

-- holders: the holders of leases by a prefix of their names; there are few leases, so all of them are read
SELECT DISTINCT owner FROM mainspring.leases WHERE starts_with(name, $1) AND expires_at > mainspring.store_now($2);

-- newest_term: the newest term of a name, held so that no other begins meanwhile
SELECT number, owner FROM mainspring.terms WHERE name = $1 FOR UPDATE;

-- begin_term: a new term
INSERT INTO mainspring.terms AS t (name, number, owner, began_at) VALUES ($1, 1, $2, $3)
ON CONFLICT (name) DO UPDATE SET number = t.number + 1, owner = excluded.owner, began_at = excluded.began_at
RETURNING number;

-- open_term: note in the history that a term has begun, or goes on after its owner had ended it
INSERT INTO mainspring.term_history AS h (name, number, owner, began_at) VALUES ($1, $2, $3, $4)
ON CONFLICT (name, number) DO UPDATE SET ended_at = NULL, reason = '' WHERE h.ended_at IS NOT NULL
RETURNING number;

-- close_terms: earlier terms that their owners never closed
UPDATE mainspring.term_history SET ended_at = $3, reason = $4 WHERE name = $1 AND number < $2 AND ended_at IS NULL;

-- forget_terms: keep the latest of a name
DELETE FROM mainspring.term_history WHERE name = $1 AND number <= $2;

-- end_term: the owner of a term says that it has ended, and why
UPDATE mainspring.term_history SET ended_at = $4, reason = $5
WHERE name = $1 AND number = $2 AND owner = $3 AND ended_at IS NULL;

-- terms: the latest terms, newest first
SELECT name, number, owner, began_at, ended_at, reason FROM mainspring.term_history
WHERE $1::text IS NULL OR name = $1 ORDER BY began_at DESC, name, number DESC LIMIT $2;

-- check_in: a node is alive
INSERT INTO mainspring.nodes (name, coordination, every, started_at, checked_in_at, skew, loops) VALUES ($1, $2, $3, $4, $4, $5, $6)
ON CONFLICT (name) DO UPDATE SET coordination = excluded.coordination, every = excluded.every, checked_in_at = excluded.checked_in_at,
                                 skew = excluded.skew, loops = excluded.loops;

-- forget_nodes: those that have not checked in for long
DELETE FROM mainspring.nodes WHERE checked_in_at < $1;

-- leave: a node stops
DELETE FROM mainspring.nodes WHERE name = $1;

-- nodes: all that checked in lately, by name
SELECT name, coordination, every, started_at, checked_in_at, skew, loops FROM mainspring.nodes ORDER BY name;
