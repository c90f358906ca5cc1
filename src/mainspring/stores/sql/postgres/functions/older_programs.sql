-- Procedures that programs with an older schema call (before version 17, and before version 5). A later version drops them, when its migrations
-- name 17 as the oldest.
CREATE OR REPLACE PROCEDURE mainspring.accept_and_hand(
  run_id text, namespace text, queue text, region text, task text, args text, options text, priority smallint, due_at bigint, expires_at bigint,
  job_id text, job text, fire_at bigint, idx integer, key text, retry_of text, created_at bigint, since bigint, events text, now bigint,
  noted_for text, request_id text, channel text, teller text, given bigint) LANGUAGE plpgsql AS $$
BEGIN
  CALL mainspring.accept_run($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25,
                             true);
END $$;

CREATE OR REPLACE PROCEDURE mainspring.accept_and_tell(
  run_id text, namespace text, queue text, region text, task text, args text, options text, priority smallint, due_at bigint, expires_at bigint,
  job_id text, job text, fire_at bigint, idx integer, key text, retry_of text, created_at bigint, since bigint, events text, now bigint,
  noted_for text, request_id text, channel text, teller text) LANGUAGE plpgsql AS $$
BEGIN
  CALL mainspring.accept_run($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, NULL,
                             false);
END $$;

CREATE OR REPLACE PROCEDURE mainspring.accept_and_tell(
  run_id text, namespace text, queue text, region text, task text, args text, options text, priority smallint, due_at bigint, expires_at bigint,
  job_id text, job text, fire_at bigint, idx integer, key text, retry_of text, created_at bigint, since bigint, events text, now bigint,
  channel text, teller text) LANGUAGE plpgsql AS $$
BEGIN
  CALL mainspring.accept_run($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, '', '', $21, $22, NULL,
                             false);
END $$;
