-- When each key was last used, in microseconds since 1970, at most a minute old.
CREATE TABLE key_uses (
    key_id      TEXT PRIMARY KEY,
    used_at     INTEGER NOT NULL
) WITHOUT ROWID;
