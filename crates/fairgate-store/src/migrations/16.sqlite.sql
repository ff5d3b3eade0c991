-- Most tokens and most money, in micro-units, that a task may use over all its claims; NULL for no limit.
ALTER TABLE fleet_tasks ADD COLUMN tokens_max INTEGER;
ALTER TABLE fleet_tasks ADD COLUMN money_max INTEGER;
-- Money that the task's calls have cost, in micro-units.
ALTER TABLE fleet_tasks ADD COLUMN money INTEGER NOT NULL DEFAULT 0;
