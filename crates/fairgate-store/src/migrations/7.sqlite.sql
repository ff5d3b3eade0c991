-- How long a key's requests may wait, and the shortest deadline that they may state, in milliseconds.
ALTER TABLE tenant_keys ADD COLUMN deadline_ms INTEGER;
ALTER TABLE tenant_keys ADD COLUMN deadline_min_ms INTEGER;
