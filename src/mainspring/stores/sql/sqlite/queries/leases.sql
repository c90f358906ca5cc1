-- acquire: take a lease that is free or has expired; its token always grows
INSERT INTO leases (name, owner, token, expires_at) VALUES (?1, ?2, 1, ?3)
ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, token = token + 1, expires_at = excluded.expires_at WHERE expires_at <= ?4
RETURNING token;

-- renew: keep a lease that is still ours
UPDATE leases SET expires_at = ?1 WHERE name = ?2 AND owner = ?3 AND token = ?4 AND expires_at > ?5;

-- release: free a lease that is still ours, and keep its token
UPDATE leases SET expires_at = 0 WHERE name = ?1 AND owner = ?2 AND token = ?3;

-- holders: who holds a lease whose name begins so
SELECT DISTINCT owner FROM leases WHERE substr(name, 1, length(?1)) = ?1 AND expires_at > ?2;

-- newest_term: the newest term of a name
SELECT number, owner FROM terms WHERE name = ?;

-- begin_term: a new term
INSERT INTO terms (name, number, owner, began_at) VALUES (?1, 1, ?2, ?3)
ON CONFLICT (name) DO UPDATE SET number = number + 1, owner = excluded.owner, began_at = excluded.began_at
RETURNING number;
