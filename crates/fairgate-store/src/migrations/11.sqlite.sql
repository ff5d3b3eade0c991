-- The tenants of response, conversation and item ids that upstreams have given out. Moments are microseconds since 1970.
CREATE TABLE response_ids (
    id          TEXT PRIMARY KEY,
    tenant      TEXT NOT NULL REFERENCES tenants (name) ON DELETE CASCADE,
    tokens      INTEGER NOT NULL,
    stored_at   INTEGER NOT NULL,
    expires_at  INTEGER NOT NULL
);
CREATE INDEX response_ids_tenant ON response_ids (tenant, stored_at);
CREATE INDEX response_ids_expiry ON response_ids (expires_at);
