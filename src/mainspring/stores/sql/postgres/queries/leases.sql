-- acquire: take a lease that is free or has expired; its token always grows. Who finds it held locks and writes nothing
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

-- holders: who holds a lease whose name begins so; there are few leases, so all of them are looked at
SELECT DISTINCT owner FROM mainspring.leases WHERE starts_with(name, $1) AND expires_at > mainspring.store_now($2);

-- newest_term: the newest term of a name, held so that no other begins meanwhile
SELECT number, owner FROM mainspring.terms WHERE name = $1 FOR UPDATE;

-- begin_term: a new term
INSERT INTO mainspring.terms AS t (name, number, owner, began_at) VALUES ($1, 1, $2, $3)
ON CONFLICT (name) DO UPDATE SET number = t.number + 1, owner = excluded.owner, began_at = excluded.began_at
RETURNING number;
