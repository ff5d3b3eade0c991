-- Secrets that every gateway on this database shares, as hexadecimal text. Made once, by the first gateway that needs them.
CREATE TABLE installation_secrets (
    name TEXT NOT NULL PRIMARY KEY,
    secret TEXT NOT NULL
);
-- Costs as if no part of the prompt were cached, which is what tenants see. 0 in rows of an earlier version.
ALTER TABLE attempts ADD COLUMN estimate_uncached BIGINT NOT NULL DEFAULT 0;
ALTER TABLE attempts ADD COLUMN charged_uncached BIGINT NOT NULL DEFAULT 0;
