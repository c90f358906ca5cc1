-- oldest: 1
-- What a worker knows of its tasks: how they are called, and how their runs are executed unless they say otherwise.
ALTER TABLE workers ADD COLUMN notices TEXT NOT NULL DEFAULT '[]';
