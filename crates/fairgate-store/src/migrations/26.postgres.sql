-- Numbers the rows of the ledger in the order in which they were written. Numbers become visible out of order, because a
-- transaction takes its numbers before it is committed.
ALTER TABLE attempts ADD COLUMN row_number BIGINT GENERATED ALWAYS AS IDENTITY;
CREATE UNIQUE INDEX attempts_number ON attempts (row_number);
-- Targets to which the ledger is exported. All rows up to number `settled` are in the target, and of the rows after it those that
-- were seen up to number `sent`.
CREATE TABLE ledger_exports (
    target      TEXT COLLATE "C" PRIMARY KEY,
    sent        BIGINT NOT NULL,
    settled     BIGINT NOT NULL
);
-- Guessed rows that were deleted from the ledger, for targets that may have them. `row_number` is that of the deleted row.
CREATE TABLE removed_attempts (
    row_number  BIGINT PRIMARY KEY,
    request     TEXT NOT NULL,
    attempt     BIGINT NOT NULL,
    tenant      TEXT NOT NULL,
    started_at  BIGINT NOT NULL
);
