-- What providers and token budgets count (input and output tokens), apart from what the scheduler is charged. Before this
-- step budgets counted what was charged.
ALTER TABLE attempts ADD COLUMN provider_tokens BIGINT NOT NULL DEFAULT 0;
UPDATE attempts SET provider_tokens = charged;
-- In micro-units of the installation's currency.
ALTER TABLE attempts ADD COLUMN money BIGINT NOT NULL DEFAULT 0;
-- The price that applied.
ALTER TABLE attempts ADD COLUMN price TEXT COLLATE "C";
-- 0 is an own worker, from 1 on a hosted one.
ALTER TABLE attempts ADD COLUMN tier BIGINT NOT NULL DEFAULT 0;

-- Prices that were in force at some time. A row never changes. Numbers are micro-units: for a million tokens, or a request.
CREATE TABLE prices (
    id              TEXT COLLATE "C" PRIMARY KEY,
    model           TEXT COLLATE "C" NOT NULL,
    upstream        TEXT COLLATE "C",
    currency        TEXT COLLATE "C" NOT NULL,
    input           BIGINT NOT NULL,
    cached_input    BIGINT NOT NULL,
    output          BIGINT NOT NULL,
    request         BIGINT NOT NULL,
    from_day        BIGINT,
    first_seen      BIGINT NOT NULL
);

ALTER TABLE tenants ADD COLUMN hosted TEXT COLLATE "C" NOT NULL DEFAULT 'allowed';
ALTER TABLE tenant_keys ADD COLUMN hosted TEXT COLLATE "C" NOT NULL DEFAULT 'allowed';

-- What a group, a tenant, a key or the hosted tier may use in a period: provider tokens or micro-units.
CREATE TABLE new_budgets (
    scope       TEXT COLLATE "C" NOT NULL,
    owner       TEXT COLLATE "C" NOT NULL,
    period      TEXT COLLATE "C" NOT NULL,
    unit        TEXT COLLATE "C" NOT NULL,
    tier        TEXT COLLATE "C" NOT NULL,
    amount      BIGINT NOT NULL,
    PRIMARY KEY (scope, owner, period, unit, tier)
);
INSERT INTO new_budgets (scope, owner, period, unit, tier, amount)
    SELECT scope, owner, period, 'tokens', 'any', tokens FROM budgets;
DROP TABLE budgets;
ALTER TABLE new_budgets RENAME TO budgets;

-- Tokens are provider tokens, money is micro-units. What is hosted is part of the rest.
ALTER TABLE sums RENAME COLUMN used TO tokens_used;
ALTER TABLE sums RENAME COLUMN reserved TO tokens_reserved;
ALTER TABLE sums ADD COLUMN money_used BIGINT NOT NULL DEFAULT 0;
ALTER TABLE sums ADD COLUMN money_reserved BIGINT NOT NULL DEFAULT 0;
ALTER TABLE sums ADD COLUMN hosted_tokens_used BIGINT NOT NULL DEFAULT 0;
ALTER TABLE sums ADD COLUMN hosted_tokens_reserved BIGINT NOT NULL DEFAULT 0;
ALTER TABLE sums ADD COLUMN hosted_money_used BIGINT NOT NULL DEFAULT 0;
ALTER TABLE sums ADD COLUMN hosted_money_reserved BIGINT NOT NULL DEFAULT 0;

-- Groups have sums from now on: until now, those of the tenants that they have now.
INSERT INTO sums (scope, owner, period, first_day, tokens_used, tokens_reserved)
    SELECT 'group', t.group_name, s.period, s.first_day, CAST(SUM(s.tokens_used) AS BIGINT), CAST(SUM(s.tokens_reserved) AS BIGINT)
    FROM sums s JOIN tenants t ON t.name = s.owner
    WHERE s.scope = 'tenant' GROUP BY t.group_name, s.period, s.first_day;

ALTER TABLE reservations ADD COLUMN provider_tokens BIGINT NOT NULL DEFAULT 0;
UPDATE reservations SET provider_tokens = tokens;
ALTER TABLE reservations ADD COLUMN money BIGINT NOT NULL DEFAULT 0;
-- Null where nothing is held on hosted workers.
ALTER TABLE reservations ADD COLUMN hosted_tokens BIGINT;
ALTER TABLE reservations ADD COLUMN hosted_money BIGINT;
