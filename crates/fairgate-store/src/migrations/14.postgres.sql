-- Labels of an agent, and the tenants for which it may work, as sorted JSON lists; NULL for all tenants.
ALTER TABLE fleet_agents ADD COLUMN labels TEXT NOT NULL DEFAULT '[]';
ALTER TABLE fleet_agents ADD COLUMN tenants TEXT;
-- Labels that an agent must have to work for a project, as a sorted JSON list.
ALTER TABLE fleet_projects ADD COLUMN requires TEXT NOT NULL DEFAULT '[]';
-- What `busy`, `baseline` and `baseline_at` of a project are, for tenants: used if the fleet shares agents between tenants first.
CREATE TABLE fleet_tenants (
    tenant      TEXT PRIMARY KEY REFERENCES tenants (name) ON DELETE CASCADE,
    busy        BOOLEAN NOT NULL,
    baseline    BIGINT NOT NULL,
    baseline_at BIGINT NOT NULL
);
