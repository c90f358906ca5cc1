-- oldest: 1
-- Nothing is left of this step: the procedure that it made is one of ../functions.
SELECT;
