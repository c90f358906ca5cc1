-- oldest: 1
-- Events of many runs are one long text. Compressing it took three hundredths of the time of a busy server; where the server has it, LZ4 takes
-- less than half of that.
DO $$
BEGIN
  ALTER TABLE mainspring.outbox ALTER COLUMN events SET COMPRESSION lz4;
EXCEPTION WHEN feature_not_supported THEN
  NULL;
END $$;
