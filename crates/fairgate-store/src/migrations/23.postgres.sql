-- The parts of the budgets of tenants and groups that webhooks were notified of, in percent, in the period that ends at `resets_at`. The
-- server that writes the row also writes the event. Moments are microseconds since 1970.
CREATE TABLE fleet_budget_notices (
    scope       TEXT COLLATE "C" NOT NULL,
    owner       TEXT COLLATE "C" NOT NULL,
    period      TEXT COLLATE "C" NOT NULL,
    unit        TEXT COLLATE "C" NOT NULL,
    tier        TEXT COLLATE "C" NOT NULL,
    amount      BIGINT NOT NULL,
    resets_at   BIGINT NOT NULL,
    percent     BIGINT NOT NULL,
    PRIMARY KEY (scope, owner, period, unit, tier, amount, resets_at, percent)
);
