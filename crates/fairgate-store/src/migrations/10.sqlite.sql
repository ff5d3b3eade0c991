-- The rights of keys and projects as JSON, in one form for both. A right that is not named is closed.
-- Keys keep what they may do: those that exist may open leases and name ids of others.
ALTER TABLE tenant_keys ADD COLUMN rights TEXT NOT NULL DEFAULT '{}';
UPDATE tenant_keys SET rights = json_object(
    'models', json(COALESCE(models, 'null')),
    'classes', json(classes),
    'priority_max', priority_max,
    'may_pin', json(CASE WHEN may_pin <> 0 THEN 'true' ELSE 'false' END),
    'may_lease', json('true'),
    'may_use_foreign_ids', json('true'),
    'taints', json(taints),
    'deadline_ms', deadline_ms,
    'deadline_min_ms', deadline_min_ms
);
ALTER TABLE tenant_keys DROP COLUMN models;
ALTER TABLE tenant_keys DROP COLUMN classes;
ALTER TABLE tenant_keys DROP COLUMN priority_max;
ALTER TABLE tenant_keys DROP COLUMN may_pin;
ALTER TABLE tenant_keys DROP COLUMN taints;
ALTER TABLE tenant_keys DROP COLUMN deadline_ms;
ALTER TABLE tenant_keys DROP COLUMN deadline_min_ms;
-- Task keys of the projects that exist could name all classes, open leases and name ids of others.
ALTER TABLE fleet_projects ADD COLUMN rights TEXT NOT NULL DEFAULT '{}';
UPDATE fleet_projects SET rights = json_object('classes', NULL, 'may_lease', json('true'), 'may_use_foreign_ids', json('true'));
