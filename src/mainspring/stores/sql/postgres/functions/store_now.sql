-- The store's clock in microseconds. Tests pass a time of their own; programs pass NULL.
CREATE OR REPLACE FUNCTION mainspring.store_now(given bigint) RETURNS bigint LANGUAGE sql VOLATILE PARALLEL SAFE
RETURN coalesce(given, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint);
