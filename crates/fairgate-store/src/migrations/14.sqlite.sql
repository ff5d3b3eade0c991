-- Labels of an agent, and the tenants for which it may work, as sorted JSON lists; NULL for all tenants.
ALTER TABLE fleet_agents ADD COLUMN labels TEXT NOT NULL DEFAULT '[]';
ALTER TABLE fleet_agents ADD COLUMN tenants TEXT;
-- Labels that an agent must have to work for a project, as a sorted JSON list.
ALTER TABLE fleet_projects ADD COLUMN requires TEXT NOT NULL DEFAULT '[]';
