-- Groups, tenants and keys that a configuration file declares, and those that a file once declared.
CREATE TABLE declared_objects (
    kind        TEXT NOT NULL,
    name        TEXT NOT NULL,
    file        TEXT NOT NULL,
    line        INTEGER NOT NULL,
    withdrawn   INTEGER NOT NULL,
    PRIMARY KEY (kind, name)
) WITHOUT ROWID;
-- The file that was applied last.
CREATE TABLE declared_source (
    one         INTEGER PRIMARY KEY CHECK (one = 1),
    gateway     TEXT NOT NULL,
    file        TEXT NOT NULL,
    digest      TEXT NOT NULL,
    applied_at  INTEGER NOT NULL
);
