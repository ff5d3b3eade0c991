CREATE TABLE directory (
    one         BIGINT PRIMARY KEY CHECK (one = 1),
    version     BIGINT NOT NULL
);
INSERT INTO directory (one, version) VALUES (1, 0);

CREATE TABLE tenant_groups (
    name        TEXT COLLATE "C" PRIMARY KEY,
    weight      BIGINT NOT NULL,
    created_at  BIGINT NOT NULL
);

CREATE TABLE tenants (
    name        TEXT COLLATE "C" PRIMARY KEY,
    group_name  TEXT COLLATE "C" NOT NULL REFERENCES tenant_groups (name),
    weight      BIGINT NOT NULL,
    disabled    BOOLEAN NOT NULL,
    in_flight           BIGINT,
    queued_requests     BIGINT,
    queued_bytes        BIGINT,
    requests_per_minute BIGINT,
    tokens_per_minute   BIGINT,
    created_at  BIGINT NOT NULL
);
CREATE INDEX tenants_group ON tenants (group_name);

CREATE TABLE tenant_keys (
    id          TEXT COLLATE "C" PRIMARY KEY,
    tenant      TEXT COLLATE "C" NOT NULL REFERENCES tenants (name) ON DELETE CASCADE,
    name        TEXT COLLATE "C" NOT NULL,
    hint        TEXT COLLATE "C" NOT NULL,
    hash        BYTEA NOT NULL UNIQUE,
    weight      BIGINT NOT NULL,
    in_flight           BIGINT,
    queued_requests     BIGINT,
    queued_bytes        BIGINT,
    requests_per_minute BIGINT,
    tokens_per_minute   BIGINT,
    models      TEXT COLLATE "C",
    classes     TEXT COLLATE "C" NOT NULL,
    created_at  BIGINT NOT NULL,
    expires_at  BIGINT,
    revoked_at  BIGINT
);
CREATE INDEX tenant_keys_tenant ON tenant_keys (tenant);

-- What a tenant or key may use in a period.
CREATE TABLE budgets (
    scope       TEXT COLLATE "C" NOT NULL,
    owner       TEXT COLLATE "C" NOT NULL,
    period      TEXT COLLATE "C" NOT NULL,
    tokens      BIGINT NOT NULL,
    PRIMARY KEY (scope, owner, period)
);

-- What it used in that which begins on a day (counted from 1970-01-01), with or without a budget.
CREATE TABLE sums (
    scope       TEXT COLLATE "C" NOT NULL,
    owner       TEXT COLLATE "C" NOT NULL,
    period      TEXT COLLATE "C" NOT NULL,
    first_day   BIGINT NOT NULL,
    used        BIGINT NOT NULL,
    reserved    BIGINT NOT NULL,
    PRIMARY KEY (scope, owner, period, first_day)
);

CREATE TABLE reservations (
    request     TEXT COLLATE "C" PRIMARY KEY,
    group_name  TEXT COLLATE "C" NOT NULL,
    tenant      TEXT COLLATE "C" NOT NULL,
    key_id      TEXT COLLATE "C" NOT NULL,
    model       TEXT COLLATE "C" NOT NULL,
    tokens      BIGINT NOT NULL,
    at          BIGINT NOT NULL,
    instance    BIGINT NOT NULL
);

-- The processes that share this database; the reservations of one whose lease has run out are resolved by the others.
CREATE TABLE instances (
    id          BIGINT PRIMARY KEY,
    lease_until TIMESTAMPTZ NOT NULL
);

CREATE TABLE attempts (
    request         TEXT COLLATE "C" NOT NULL,
    attempt         BIGINT NOT NULL,
    last_attempt    BOOLEAN NOT NULL,
    started_at      BIGINT NOT NULL,
    group_name      TEXT COLLATE "C" NOT NULL,
    tenant          TEXT COLLATE "C" NOT NULL,
    key_id          TEXT COLLATE "C" NOT NULL,
    agent           TEXT COLLATE "C",
    session         TEXT COLLATE "C",
    route           TEXT COLLATE "C" NOT NULL,
    streamed        BOOLEAN NOT NULL,
    model           TEXT COLLATE "C" NOT NULL,
    pool            TEXT COLLATE "C",
    worker          TEXT COLLATE "C",
    estimate        BIGINT NOT NULL,
    input_tokens    BIGINT NOT NULL,
    cached_tokens   BIGINT NOT NULL,
    output_tokens   BIGINT NOT NULL,
    charged         BIGINT NOT NULL,
    usage_source    TEXT COLLATE "C" NOT NULL,
    waited_us       BIGINT NOT NULL,
    first_token_us  BIGINT,
    total_us        BIGINT NOT NULL,
    status          BIGINT NOT NULL,
    outcome         TEXT COLLATE "C" NOT NULL,
    code            TEXT COLLATE "C",
    brownout        BOOLEAN NOT NULL,
    PRIMARY KEY (request, attempt)
);
CREATE INDEX attempts_started ON attempts (started_at);
CREATE INDEX attempts_tenant ON attempts (tenant, started_at);

CREATE TABLE audit (
    id          BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at          BIGINT NOT NULL,
    actor       TEXT COLLATE "C" NOT NULL,
    action      TEXT COLLATE "C" NOT NULL,
    subject     TEXT COLLATE "C" NOT NULL,
    before_json TEXT COLLATE "C",
    after_json  TEXT COLLATE "C"
);
