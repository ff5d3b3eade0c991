-- Numbers the rows of the ledger in the order in which they were written. A number is never given twice, so the table is built
-- again with a key that counts on.
CREATE TABLE attempts_numbered (
    row_number              INTEGER PRIMARY KEY AUTOINCREMENT,
    request                 TEXT NOT NULL,
    attempt                 INTEGER NOT NULL,
    last_attempt            INTEGER NOT NULL,
    started_at              INTEGER NOT NULL,
    group_name              TEXT NOT NULL,
    tenant                  TEXT NOT NULL,
    key_id                  TEXT NOT NULL,
    agent                   TEXT,
    session                 TEXT,
    route                   TEXT NOT NULL,
    streamed                INTEGER NOT NULL,
    model                   TEXT NOT NULL,
    pool                    TEXT,
    worker                  TEXT,
    estimate                INTEGER NOT NULL,
    input_tokens            INTEGER NOT NULL,
    cached_tokens           INTEGER NOT NULL,
    output_tokens           INTEGER NOT NULL,
    charged                 INTEGER NOT NULL,
    usage_source            TEXT NOT NULL,
    waited_us               INTEGER NOT NULL,
    first_token_us          INTEGER,
    total_us                INTEGER NOT NULL,
    status                  INTEGER NOT NULL,
    outcome                 TEXT NOT NULL,
    code                    TEXT,
    brownout                INTEGER NOT NULL,
    occupied                INTEGER NOT NULL DEFAULT 0,
    provider_tokens         INTEGER NOT NULL DEFAULT 0,
    money                   INTEGER NOT NULL DEFAULT 0,
    price                   TEXT,
    tier                    INTEGER NOT NULL DEFAULT 0,
    class                   TEXT,
    project                 TEXT,
    task                    TEXT,
    epoch                   INTEGER,
    estimate_uncached       INTEGER NOT NULL DEFAULT 0,
    charged_uncached        INTEGER NOT NULL DEFAULT 0,
    cache_written_tokens    INTEGER NOT NULL DEFAULT 0,
    cache_written_1h_tokens INTEGER NOT NULL DEFAULT 0,
    worker_us               INTEGER NOT NULL DEFAULT 0,
    price_set               TEXT
);
INSERT INTO attempts_numbered (
    request, attempt, last_attempt, started_at, group_name, tenant, key_id, agent, session, route, streamed, model,
    pool, worker, estimate, input_tokens, cached_tokens, output_tokens, charged, usage_source, waited_us,
    first_token_us, total_us, status, outcome, code, brownout, occupied, provider_tokens, money, price, tier, class,
    project, task, epoch, estimate_uncached, charged_uncached, cache_written_tokens, cache_written_1h_tokens,
    worker_us, price_set
)
SELECT
    request, attempt, last_attempt, started_at, group_name, tenant, key_id, agent, session, route, streamed, model,
    pool, worker, estimate, input_tokens, cached_tokens, output_tokens, charged, usage_source, waited_us,
    first_token_us, total_us, status, outcome, code, brownout, occupied, provider_tokens, money, price, tier, class,
    project, task, epoch, estimate_uncached, charged_uncached, cache_written_tokens, cache_written_1h_tokens,
    worker_us, price_set
FROM attempts ORDER BY rowid;
DROP TABLE attempts;
ALTER TABLE attempts_numbered RENAME TO attempts;
CREATE UNIQUE INDEX attempts_request ON attempts (request, attempt);
CREATE INDEX attempts_started ON attempts (started_at);
CREATE INDEX attempts_tenant ON attempts (tenant, started_at);
-- Targets to which the ledger is exported. All rows up to number `settled` are in the target, and of the rows after it those that
-- were seen up to number `sent`.
CREATE TABLE ledger_exports (
    target      TEXT PRIMARY KEY,
    sent        INTEGER NOT NULL,
    settled     INTEGER NOT NULL
) WITHOUT ROWID;
-- Guessed rows that were deleted from the ledger, for targets that may have them. `row_number` is that of the deleted row.
CREATE TABLE removed_attempts (
    row_number  INTEGER PRIMARY KEY,
    request     TEXT NOT NULL,
    attempt     INTEGER NOT NULL,
    tenant      TEXT NOT NULL,
    started_at  INTEGER NOT NULL
);
