-- What the scheduler counted for an attempt that did not complete, in tokens.
ALTER TABLE attempts ADD COLUMN occupied INTEGER NOT NULL DEFAULT 0;
