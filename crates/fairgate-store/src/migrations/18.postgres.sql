-- Events that webhooks are to be notified of, one row for each event and webhook. `body` is the JSON that is sent. `due_at` is the moment
-- of the next try; NULL once all tries have failed. Moments are microseconds since 1970.
CREATE TABLE fleet_webhook_events (
    webhook     TEXT NOT NULL,
    id          TEXT NOT NULL,
    tenant      TEXT NOT NULL,
    kind        TEXT NOT NULL,
    made_at     BIGINT NOT NULL,
    tries       BIGINT NOT NULL,
    due_at      BIGINT,
    error       TEXT,
    body        TEXT NOT NULL,
    PRIMARY KEY (webhook, id)
);
CREATE INDEX fleet_webhook_events_due ON fleet_webhook_events (webhook, due_at);
-- What became of the events of each webhook so far, and the last failure.
CREATE TABLE fleet_webhooks (
    webhook     TEXT PRIMARY KEY,
    delivered   BIGINT NOT NULL,
    failed      BIGINT NOT NULL,
    dropped     BIGINT NOT NULL,
    delivered_at BIGINT,
    error       TEXT,
    error_at    BIGINT
);
-- The highest part of the budget in the window that webhooks were notified of, in percent, and when. In `fleet` for all projects together.
ALTER TABLE fleet_projects ADD COLUMN budget_notified BIGINT NOT NULL DEFAULT 0;
ALTER TABLE fleet_projects ADD COLUMN budget_notified_at BIGINT NOT NULL DEFAULT 0;
ALTER TABLE fleet ADD COLUMN budget_notified BIGINT NOT NULL DEFAULT 0;
ALTER TABLE fleet ADD COLUMN budget_notified_at BIGINT NOT NULL DEFAULT 0;
