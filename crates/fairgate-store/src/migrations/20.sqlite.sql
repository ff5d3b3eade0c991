-- Prompts have a table of their own, so that a change of a task's state does not write its prompt again.
CREATE TABLE fleet_prompts (
    task        TEXT PRIMARY KEY REFERENCES fleet_tasks (id) ON DELETE CASCADE,
    prompt      TEXT NOT NULL
);
INSERT INTO fleet_prompts (task, prompt) SELECT id, prompt FROM fleet_tasks;
ALTER TABLE fleet_tasks DROP COLUMN prompt;
-- The workspaces of tasks whose claims end are found without reading all.
CREATE INDEX fleet_workspaces_task ON fleet_workspaces (task) WHERE task IS NOT NULL;
