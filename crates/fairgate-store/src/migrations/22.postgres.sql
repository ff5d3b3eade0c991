-- Sessions of the pages that were ended before they expired. Their ids are no secrets.
CREATE TABLE revoked_sessions (
    id TEXT PRIMARY KEY NOT NULL,
    expires_at BIGINT NOT NULL
);
