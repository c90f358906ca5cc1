-- Takes a run back that was just accepted although it had ended before (not before `since`). Returns whether it had. A statement calls it for a
-- row that it has inserted; the function reads with a snapshot newer than the statement's. For the statement's own snapshot, a run that ends
-- while it is submitted again is in neither table, and would be accepted twice.
CREATE OR REPLACE FUNCTION mainspring.withdraw_if_ended(run_id text, since bigint) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  IF NOT EXISTS (SELECT FROM mainspring.history WHERE id = run_id AND finished_at >= since) THEN
    RETURN false;
  END IF;
  DELETE FROM mainspring.runs WHERE id = run_id;
  RETURN true;
END $$;
