CREATE TABLE directory (
    one         INTEGER PRIMARY KEY CHECK (one = 1),
    version     INTEGER NOT NULL
);
INSERT INTO directory (one, version) VALUES (1, 0);

CREATE TABLE tenant_groups (
    name        TEXT PRIMARY KEY,
    weight      INTEGER NOT NULL,
    created_at  INTEGER NOT NULL
);

CREATE TABLE tenants (
    name        TEXT PRIMARY KEY,
    group_name  TEXT NOT NULL REFERENCES tenant_groups (name),
    weight      INTEGER NOT NULL,
    disabled    INTEGER NOT NULL,
    in_flight           INTEGER,
    queued_requests     INTEGER,
    queued_bytes        INTEGER,
    requests_per_minute INTEGER,
    tokens_per_minute   INTEGER,
    created_at  INTEGER NOT NULL
);
CREATE INDEX tenants_group ON tenants (group_name);

CREATE TABLE tenant_keys (
    id          TEXT PRIMARY KEY,
    tenant      TEXT NOT NULL REFERENCES tenants (name) ON DELETE CASCADE,
    name        TEXT NOT NULL,
    hint        TEXT NOT NULL,
    hash        BLOB NOT NULL UNIQUE,
    weight      INTEGER NOT NULL,
    in_flight           INTEGER,
    queued_requests     INTEGER,
    queued_bytes        INTEGER,
    requests_per_minute INTEGER,
    tokens_per_minute   INTEGER,
    models      TEXT,
    classes     TEXT NOT NULL,
    created_at  INTEGER NOT NULL,
    expires_at  INTEGER,
    revoked_at  INTEGER
);
CREATE INDEX tenant_keys_tenant ON tenant_keys (tenant);

-- What a tenant or key may use in a period.
CREATE TABLE budgets (
    scope       TEXT NOT NULL,
    owner       TEXT NOT NULL,
    period      TEXT NOT NULL,
    tokens      INTEGER NOT NULL,
    PRIMARY KEY (scope, owner, period)
) WITHOUT ROWID;

-- What it used in that which begins on a day (counted from 1970-01-01), with or without a budget.
CREATE TABLE sums (
    scope       TEXT NOT NULL,
    owner       TEXT NOT NULL,
    period      TEXT NOT NULL,
    first_day   INTEGER NOT NULL,
    used        INTEGER NOT NULL,
    reserved    INTEGER NOT NULL,
    PRIMARY KEY (scope, owner, period, first_day)
) WITHOUT ROWID;

CREATE TABLE reservations (
    request     TEXT PRIMARY KEY,
    group_name  TEXT NOT NULL,
    tenant      TEXT NOT NULL,
    key_id      TEXT NOT NULL,
    model       TEXT NOT NULL,
    tokens      INTEGER NOT NULL,
    at          INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE attempts (
    request         TEXT NOT NULL,
    attempt         INTEGER NOT NULL,
    last_attempt    INTEGER NOT NULL,
    started_at      INTEGER NOT NULL,
    group_name      TEXT NOT NULL,
    tenant          TEXT NOT NULL,
    key_id          TEXT NOT NULL,
    agent           TEXT,
    session         TEXT,
    route           TEXT NOT NULL,
    streamed        INTEGER NOT NULL,
    model           TEXT NOT NULL,
    pool            TEXT,
    worker          TEXT,
    estimate        INTEGER NOT NULL,
    input_tokens    INTEGER NOT NULL,
    cached_tokens   INTEGER NOT NULL,
    output_tokens   INTEGER NOT NULL,
    charged         INTEGER NOT NULL,
    usage_source    TEXT NOT NULL,
    waited_us       INTEGER NOT NULL,
    first_token_us  INTEGER,
    total_us        INTEGER NOT NULL,
    status          INTEGER NOT NULL,
    outcome         TEXT NOT NULL,
    code            TEXT,
    brownout        INTEGER NOT NULL
);
CREATE UNIQUE INDEX attempts_request ON attempts (request, attempt);
CREATE INDEX attempts_started ON attempts (started_at);
CREATE INDEX attempts_tenant ON attempts (tenant, started_at);

CREATE TABLE audit (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    at          INTEGER NOT NULL,
    actor       TEXT NOT NULL,
    action      TEXT NOT NULL,
    subject     TEXT NOT NULL,
    before_json TEXT,
    after_json  TEXT
);
