-- Prices of input tokens that are written to a provider's cache, and of those that it keeps for an hour.
ALTER TABLE prices ADD COLUMN cache_write BIGINT;
ALTER TABLE prices ADD COLUMN cache_write_1h BIGINT;
-- Input tokens that were written to a cache, and those of them that are kept for an hour.
ALTER TABLE attempts ADD COLUMN cache_written_tokens BIGINT NOT NULL DEFAULT 0;
ALTER TABLE attempts ADD COLUMN cache_written_1h_tokens BIGINT NOT NULL DEFAULT 0;
