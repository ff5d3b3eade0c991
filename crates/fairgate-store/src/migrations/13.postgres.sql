-- What projects are charged for the time of agents. Sizes are tokens, times are microseconds.

-- `waited_us` is the time of the latest claim that does not count, because the claim waited for a provider's limit or the
-- database was away; it reaches until `waited_until`. `agent_us` and `credit_extra` are of all ended claims: the time that counts,
-- and what the task was charged beyond its tokens.
ALTER TABLE fleet_tasks ADD COLUMN waited_us BIGINT NOT NULL DEFAULT 0;
ALTER TABLE fleet_tasks ADD COLUMN waited_until BIGINT NOT NULL DEFAULT 0;
ALTER TABLE fleet_tasks ADD COLUMN agent_us BIGINT NOT NULL DEFAULT 0;
ALTER TABLE fleet_tasks ADD COLUMN credit_extra BIGINT NOT NULL DEFAULT 0;

-- Of the claims that ended: what was charged beyond tokens, what was charged in all and for how long; tokens and time of completed
-- tasks that made calls; and how many tasks were completed without a call.
ALTER TABLE fleet_usage ADD COLUMN credit_extra BIGINT NOT NULL DEFAULT 0;
ALTER TABLE fleet_usage ADD COLUMN paid BIGINT NOT NULL DEFAULT 0;
ALTER TABLE fleet_usage ADD COLUMN agent_us BIGINT NOT NULL DEFAULT 0;
ALTER TABLE fleet_usage ADD COLUMN work_tokens BIGINT NOT NULL DEFAULT 0;
ALTER TABLE fleet_usage ADD COLUMN work_us BIGINT NOT NULL DEFAULT 0;
ALTER TABLE fleet_usage ADD COLUMN without_calls BIGINT NOT NULL DEFAULT 0;
ALTER TABLE fleet_projects ADD COLUMN window_extra BIGINT NOT NULL DEFAULT 0;
ALTER TABLE fleet_projects ADD COLUMN window_extra_oldest BIGINT NOT NULL DEFAULT 0;
ALTER TABLE fleet_projects ADD COLUMN window_paid BIGINT NOT NULL DEFAULT 0;
ALTER TABLE fleet_projects ADD COLUMN window_agent_us BIGINT NOT NULL DEFAULT 0;
ALTER TABLE fleet_projects ADD COLUMN window_work_tokens BIGINT NOT NULL DEFAULT 0;
ALTER TABLE fleet_projects ADD COLUMN window_work_us BIGINT NOT NULL DEFAULT 0;
ALTER TABLE fleet_projects ADD COLUMN window_without_calls BIGINT NOT NULL DEFAULT 0;
-- What a task of the project is expected to be charged, like `learned`.
ALTER TABLE fleet_projects ADD COLUMN learned_credit BIGINT;
