-- The life of an event: deleted, expired, vanished, kept for its time, purged.

-- From its second of expiry an event is not served (I7). `hidden_at` is when a row was hidden, for the audit time of deletions.
-- `hidden`: 1 superseded, 2 deleted, 3 expired, 4 retention, 5 capacity, 6 vanished (events/rules/hidden.ts).
ALTER TABLE events ADD COLUMN expires_at bigint, ADD COLUMN hidden_at bigint;
UPDATE events SET expires_at = least(substring(payload from '\["expiration","([0-9]{1,20})"')::numeric, 9007199254740991)
  WHERE payload ~ '\["expiration","[0-9]{1,20}"';
CREATE INDEX events_expiry ON events (expires_at) WHERE hidden IS NULL AND expires_at IS NOT NULL;
CREATE INDEX events_audit ON events (hidden_at) WHERE hidden = 2;
-- What an author has in the store that is no longer served, for a deletion or an erasure that has to take it along.
CREATE INDEX events_hidden_author ON events (community, pubkey) WHERE hidden IS NOT NULL;

-- A dedupe row outlives its event. `hidden` is why the event is no longer served; `gone_at` when its row was purged.
ALTER TABLE event_dedupe
  ADD COLUMN hidden smallint,
  ADD COLUMN gone_at bigint,
  ADD COLUMN last_seen_at bigint,
  ADD COLUMN seen_count integer NOT NULL DEFAULT 1;
UPDATE event_dedupe SET hidden = 1 WHERE keep = 2;
CREATE INDEX event_dedupe_gone ON event_dedupe (gone_at) WHERE gone_at IS NOT NULL;

-- What its owner asked to delete, keyed by who asked: another author's request never blocks anything (I5).
-- `target` is the event id, or the SHA-256 of the address: a `d` of any length and content is safe to index.
CREATE TABLE deletion_tombstones (
  community integer NOT NULL,
  is_address boolean NOT NULL,
  requested_at bigint NOT NULL,
  applied_at bigint,
  target bytea NOT NULL,
  author bytea NOT NULL,
  deletion_event bytea NOT NULL,
  PRIMARY KEY (community, target, author)
);
CREATE INDEX deletion_tombstones_request ON deletion_tombstones (community, deletion_event);

-- Targets that an author has named on a day, so that tombstones cannot flood the store.
CREATE TABLE deletion_quotas (
  community integer NOT NULL,
  day integer NOT NULL,
  targets integer NOT NULL,
  author bytea NOT NULL,
  PRIMARY KEY (community, author, day)
);

-- NIP-62: everything by this pubkey up to `until`, and gift wraps to it, is hidden by the mark at once and erased in batches.
-- `recipient_tag` is the key of ["p", pubkey] in event_tags. `erased_at` is empty while the erasure is under way.
CREATE TABLE vanish_marks (
  community integer NOT NULL,
  until bigint NOT NULL,
  recipient_tag bigint NOT NULL,
  erased_at bigint,
  pubkey bytea NOT NULL,
  request bytea NOT NULL,
  PRIMARY KEY (community, pubkey)
);
CREATE INDEX vanish_marks_pending ON vanish_marks (community, pubkey) WHERE erased_at IS NULL;

-- Topics that this node carries, with how long and how much of each is kept.
-- ingest_policy: retentionDays, maxEvents, maxBytes, maxDelaySeconds, allowBackfill; what is missing follows the settings.
CREATE TABLE node_subscriptions (
  community integer NOT NULL REFERENCES communities (id),
  topic text NOT NULL,
  enabled boolean NOT NULL DEFAULT true,
  priority smallint NOT NULL DEFAULT 0,
  ingest_policy jsonb NOT NULL DEFAULT '{}',
  created_at bigint NOT NULL,
  updated_at bigint NOT NULL,
  PRIMARY KEY (community, topic)
);

-- The longer steps of retention: up to 90 days, up to 365, for ever. The first step (up to 30) is days30. Their partitions are made
-- when a topic first needs them, so that a node without long topics does not pay for empty ones in every query.
CREATE TABLE events_days90 PARTITION OF events FOR VALUES IN (4) PARTITION BY RANGE (ingested_at);
CREATE TABLE events_days365 PARTITION OF events FOR VALUES IN (5) PARTITION BY RANGE (ingested_at);
CREATE TABLE events_forever PARTITION OF events FOR VALUES IN (6) PARTITION BY RANGE (ingested_at);
CREATE TABLE event_tags_days90 PARTITION OF event_tags FOR VALUES IN (4) PARTITION BY RANGE (ingested_at);
CREATE TABLE event_tags_days365 PARTITION OF event_tags FOR VALUES IN (5) PARTITION BY RANGE (ingested_at);
CREATE TABLE event_tags_forever PARTITION OF event_tags FOR VALUES IN (6) PARTITION BY RANGE (ingested_at);
