-- oldest: 1
-- What a worker knows of its tasks: how they are called, and how their runs are executed unless they say otherwise. JSON.
ALTER TABLE mainspring.workers ADD COLUMN notices text NOT NULL DEFAULT '[]';
