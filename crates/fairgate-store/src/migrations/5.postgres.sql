-- What a key may choose for its requests. `classes` and `taints` are JSON lists of names; the text `null` is all.
ALTER TABLE tenant_keys ADD COLUMN priority_max BIGINT NOT NULL DEFAULT 0;
ALTER TABLE tenant_keys ADD COLUMN may_pin BOOLEAN NOT NULL DEFAULT FALSE;
ALTER TABLE tenant_keys ADD COLUMN taints TEXT COLLATE "C" NOT NULL DEFAULT '[]';
