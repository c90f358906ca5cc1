-- oldest: 1
-- The new version of a run that is claimed finds room on its page: one record less in the log, and no other page to look for. Events are
-- forgotten in the order in which they were kept, which needs no index of their ages.
ALTER TABLE mainspring.runs SET (fillfactor = 50);
DROP INDEX mainspring.outbox_by_age;
