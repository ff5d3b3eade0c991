-- Time of own workers that an attempt took, in microseconds of the full worker, and the id of the price set by which the
-- scheduler counted it.
ALTER TABLE attempts ADD COLUMN worker_us INTEGER NOT NULL DEFAULT 0;
ALTER TABLE attempts ADD COLUMN price_set TEXT;
