-- oldest: 31
-- A run that needs a closer look when it is claimed is special: it needs a gate, may expire, or was lost before. The column has the name that
-- the program uses. Programs with an older schema are refused, so the procedures that they called go too.
ALTER TABLE mainspring.runs RENAME COLUMN care TO special;
DROP PROCEDURE IF EXISTS mainspring.accept_and_hand(
  text, text, text, text, text, text, text, smallint, bigint, bigint, text, text, bigint, integer, text, text, bigint, bigint, text, bigint,
  text, text, text, text, bigint);
DROP PROCEDURE IF EXISTS mainspring.accept_and_tell(
  text, text, text, text, text, text, text, smallint, bigint, bigint, text, text, bigint, integer, text, text, bigint, bigint, text, bigint,
  text, text, text, text);
DROP PROCEDURE IF EXISTS mainspring.accept_and_tell(
  text, text, text, text, text, text, text, smallint, bigint, bigint, text, text, bigint, integer, text, text, bigint, bigint, text, bigint,
  text, text);
DELETE FROM mainspring.functions WHERE name = 'older_programs';
