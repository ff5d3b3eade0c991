-- The policy class that a request was queued in.
ALTER TABLE attempts ADD COLUMN class TEXT;
