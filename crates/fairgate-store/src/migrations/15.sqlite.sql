-- Longest time from a task's claim to its end, in microseconds; NULL for no limit.
ALTER TABLE fleet_tasks ADD COLUMN timeout INTEGER;
-- How often in a row the task's command asked to be run again later.
ALTER TABLE fleet_tasks ADD COLUMN put_offs INTEGER NOT NULL DEFAULT 0;
