-- What projects are charged for the time of agents. Sizes are tokens, times are microseconds.

-- `waited_us` is the time of the latest claim that does not count, because the claim waited for a provider's limit or the
-- database was away; it reaches until `waited_until`. `agent_us` and `credit_extra` are of all ended claims: the time that counts,
-- and what the task was charged beyond its tokens.
ALTER TABLE fleet_tasks ADD COLUMN waited_us INTEGER NOT NULL DEFAULT 0;
ALTER TABLE fleet_tasks ADD COLUMN waited_until INTEGER NOT NULL DEFAULT 0;
ALTER TABLE fleet_tasks ADD COLUMN agent_us INTEGER NOT NULL DEFAULT 0;
ALTER TABLE fleet_tasks ADD COLUMN credit_extra INTEGER NOT NULL DEFAULT 0;

-- Of the claims that ended: what was charged beyond tokens, what was charged in all and for how long; tokens and time of completed
-- tasks that made calls; and how many tasks were completed without a call.
ALTER TABLE fleet_usage ADD COLUMN credit_extra INTEGER NOT NULL DEFAULT 0;
ALTER TABLE fleet_usage ADD COLUMN paid INTEGER NOT NULL DEFAULT 0;
ALTER TABLE fleet_usage ADD COLUMN agent_us INTEGER NOT NULL DEFAULT 0;
ALTER TABLE fleet_usage ADD COLUMN work_tokens INTEGER NOT NULL DEFAULT 0;
ALTER TABLE fleet_usage ADD COLUMN work_us INTEGER NOT NULL DEFAULT 0;
ALTER TABLE fleet_usage ADD COLUMN without_calls INTEGER NOT NULL DEFAULT 0;
ALTER TABLE fleet_projects ADD COLUMN window_extra INTEGER NOT NULL DEFAULT 0;
ALTER TABLE fleet_projects ADD COLUMN window_extra_oldest INTEGER NOT NULL DEFAULT 0;
ALTER TABLE fleet_projects ADD COLUMN window_paid INTEGER NOT NULL DEFAULT 0;
ALTER TABLE fleet_projects ADD COLUMN window_agent_us INTEGER NOT NULL DEFAULT 0;
ALTER TABLE fleet_projects ADD COLUMN window_work_tokens INTEGER NOT NULL DEFAULT 0;
ALTER TABLE fleet_projects ADD COLUMN window_work_us INTEGER NOT NULL DEFAULT 0;
ALTER TABLE fleet_projects ADD COLUMN window_without_calls INTEGER NOT NULL DEFAULT 0;
-- What a task of the project is expected to be charged, like `learned`.
ALTER TABLE fleet_projects ADD COLUMN learned_credit INTEGER;
