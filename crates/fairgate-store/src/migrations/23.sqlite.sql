-- The parts of the budgets of tenants and groups that webhooks were notified of, in percent, in the period that ends at `resets_at`. The
-- server that writes the row also writes the event. Moments are microseconds since 1970.
CREATE TABLE fleet_budget_notices (
    scope       TEXT NOT NULL,
    owner       TEXT NOT NULL,
    period      TEXT NOT NULL,
    unit        TEXT NOT NULL,
    tier        TEXT NOT NULL,
    amount      INTEGER NOT NULL,
    resets_at   INTEGER NOT NULL,
    percent     INTEGER NOT NULL,
    PRIMARY KEY (scope, owner, period, unit, tier, amount, resets_at, percent)
);
