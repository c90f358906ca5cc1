-- The key of the advisory lock that the listening connection named `ear` holds while it lives.
CREATE OR REPLACE FUNCTION mainspring.ear_lock(ear text) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN hashtextextended('mainspring ear ' || ear, 0);
