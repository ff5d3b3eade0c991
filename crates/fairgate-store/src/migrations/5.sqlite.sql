-- What a key may choose for its requests. `classes` and `taints` are JSON lists of names; the text `null` is all.
ALTER TABLE tenant_keys ADD COLUMN priority_max INTEGER NOT NULL DEFAULT 0;
ALTER TABLE tenant_keys ADD COLUMN may_pin INTEGER NOT NULL DEFAULT 0;
ALTER TABLE tenant_keys ADD COLUMN taints TEXT NOT NULL DEFAULT '[]';
