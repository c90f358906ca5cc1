-- oldest: 1
-- From this instant on `history_tags` also has a row with the class of the run behind the tag (../functions/count_ended.sql), so that a list by tag
-- and task, or by tag and queue, reads no others. The minute lets statements end that began with the old trigger.
INSERT INTO mainspring.facts
SELECT 'classes_of_tags_since', CASE WHEN EXISTS (SELECT FROM mainspring.history_tags)
  THEN (extract(epoch FROM clock_timestamp()) * 1000000)::bigint + 60000000 ELSE 0 END;
