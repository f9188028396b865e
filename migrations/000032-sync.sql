-- Sync with other relays: when each peer was last synced, and where a sync without negentropy was interrupted.

-- `outcome` is a sentence for the operator, `counts` how many events went which way.
CREATE TABLE sync_runs (
  community integer NOT NULL REFERENCES communities (id),
  url text NOT NULL,
  started_at bigint NOT NULL,
  finished_at bigint,
  outcome text NOT NULL DEFAULT '',
  counts jsonb NOT NULL DEFAULT '{}',
  PRIMARY KEY (community, url)
);

-- Pages of REQ go from the newest to the oldest: everything from `until` up to `begun_at` is done (both seconds of Nostr).
-- `filter` is a hash of the filter.
CREATE TABLE sync_positions (
  community integer NOT NULL REFERENCES communities (id),
  until bigint NOT NULL,
  begun_at bigint NOT NULL,
  filter bytea NOT NULL,
  url text NOT NULL,
  PRIMARY KEY (community, url, filter)
);
