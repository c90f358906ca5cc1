-- oldest: 23
-- A run that needs a closer look when it is claimed is special: it needs a gate, or was lost before. The column has the name that the program
-- uses. A program with an older schema would not find it, and is refused.
ALTER TABLE runs RENAME COLUMN care TO special;
ALTER TABLE inbox RENAME COLUMN care TO special;
