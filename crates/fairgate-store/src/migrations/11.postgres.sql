-- The tenants of response, conversation and item ids that upstreams have given out. Moments are microseconds since 1970.
CREATE TABLE response_ids (
    id          TEXT COLLATE "C" PRIMARY KEY,
    tenant      TEXT COLLATE "C" NOT NULL REFERENCES tenants (name) ON DELETE CASCADE,
    tokens      BIGINT NOT NULL,
    stored_at   BIGINT NOT NULL,
    expires_at  BIGINT NOT NULL
);
CREATE INDEX response_ids_tenant ON response_ids (tenant, stored_at);
CREATE INDEX response_ids_expiry ON response_ids (expires_at);
