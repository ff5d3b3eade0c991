-- Labels that an agent must have to work for a tenant's projects, as a sorted JSON list.
ALTER TABLE tenants ADD COLUMN requires TEXT NOT NULL DEFAULT '[]';
-- The machine that has the workspace's folder; NULL if every machine has it.
ALTER TABLE fleet_workspaces ADD COLUMN machine TEXT;
-- Labels that an agent must have to get a task, as sorted JSON lists: those that the task itself requires, and these together with
-- the label of its workspace's machine. Then the length of its prompt.
ALTER TABLE fleet_tasks ADD COLUMN requires TEXT NOT NULL DEFAULT '[]';
ALTER TABLE fleet_tasks ADD COLUMN labels TEXT NOT NULL DEFAULT '[]';
ALTER TABLE fleet_tasks ADD COLUMN prompt_bytes BIGINT NOT NULL DEFAULT 0;
UPDATE fleet_tasks SET prompt_bytes = octet_length(prompt);
-- The beginning of the last wait that does not count, which reaches until `waited_until`; `waited_us` is that of earlier waits.
ALTER TABLE fleet_tasks ADD COLUMN waited_from BIGINT NOT NULL DEFAULT 0;
UPDATE fleet_tasks SET waited_from = waited_until WHERE waited_until > 0;
-- Rounds look for the first ready tasks without labels, and for those with given labels.
DROP INDEX fleet_tasks_ready;
CREATE INDEX fleet_tasks_ready ON fleet_tasks (project, priority, made, labels) WHERE state = 'READY';
CREATE INDEX fleet_tasks_labels ON fleet_tasks (project, labels, priority, made) WHERE state = 'READY' AND labels <> '[]';
