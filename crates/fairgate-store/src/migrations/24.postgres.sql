-- Groups, tenants and keys that a configuration file declares, and those that a file once declared.
CREATE TABLE declared_objects (
    kind        TEXT COLLATE "C" NOT NULL,
    name        TEXT COLLATE "C" NOT NULL,
    file        TEXT NOT NULL,
    line        BIGINT NOT NULL,
    withdrawn   BOOLEAN NOT NULL,
    PRIMARY KEY (kind, name)
);
-- The file that was applied last.
CREATE TABLE declared_source (
    one         BIGINT PRIMARY KEY CHECK (one = 1),
    gateway     TEXT NOT NULL,
    file        TEXT NOT NULL,
    digest      TEXT NOT NULL,
    applied_at  BIGINT NOT NULL
);
