-- oldest: 1
-- Which text of each function of ../functions the database has, and the schema version of the program that created it: a program replaces a
-- text that differs from its own, unless a program with a newer schema created it.
CREATE TABLE mainspring.functions (
  name    text COLLATE "C" PRIMARY KEY,
  hash    text NOT NULL,
  version integer NOT NULL
);
