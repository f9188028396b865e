-- A deletion by address takes the superseded versions along.

-- They are found by author and kind; which address a version has is read from the event itself.
CREATE INDEX events_history_author ON events_history (community, pubkey, kind, created_at, seq);

-- What one batch of the lane could not hold of them: a job goes on from (created_at, seq) downwards, then the row goes.
-- An address belongs to its author, so its hash is enough as a key.
CREATE TABLE history_deletions (
  community integer NOT NULL,
  kind integer NOT NULL,
  requested_at bigint NOT NULL,
  created_at bigint NOT NULL,
  seq bigint NOT NULL,
  address_hash bytea NOT NULL,
  author bytea NOT NULL,
  PRIMARY KEY (community, address_hash)
);
