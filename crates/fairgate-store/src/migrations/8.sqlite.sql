-- Whether a request has files, of which nobody can know the tokens for sure.
ALTER TABLE reservations ADD COLUMN has_files INTEGER NOT NULL DEFAULT 0;
