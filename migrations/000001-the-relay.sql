-- The relay: communities and their settings, events with their tags, dedupe, heads, the outbox, the live bus.
--
-- Times: created_at and expiry are seconds, as Nostr has them; ingested_at and *_seen_at are milliseconds.
-- All of them come from the program; SQL never calls now().
-- `community` stands in every row (I13). The hot tables have no foreign key to it: the program writes only
-- communities it has loaded, and a check per event would cost more than the insert of a tag.

CREATE TABLE node_state (
  key text PRIMARY KEY,
  value text NOT NULL
);
COMMENT ON TABLE node_state IS 'What is fixed for the whole node: network_id, tag_hash_seed';

CREATE TABLE communities (
  id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  slug text NOT NULL UNIQUE CHECK (slug ~ '^[a-z0-9][a-z0-9-]{0,62}$'),
  host text UNIQUE,
  created_at bigint NOT NULL
);

CREATE TABLE community_settings (
  community integer NOT NULL REFERENCES communities (id),
  key text NOT NULL,
  value jsonb NOT NULL,
  version bigint NOT NULL DEFAULT 1,
  updated_at bigint NOT NULL,
  PRIMARY KEY (community, key)
);

-- One row. config_version grows with every change of communities or settings, so that instances can poll one number.
CREATE TABLE config_version (
  singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
  version bigint NOT NULL
);
INSERT INTO config_version (version) VALUES (1);

-- One row, written under the lane's lock only: outbox order is commit order (I8).
CREATE TABLE lane_state (
  singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
  last_seq bigint NOT NULL
) WITH (fillfactor = 10);
INSERT INTO lane_state (last_seq) VALUES (0);

-- Events, first by `keep` bucket (events/rules/keep.ts has the numbers), then by month of ingested_at, so that old data is
-- dropped, not deleted. No global unique key: event_dedupe guards it. `seq` is the place of its upsert in the outbox.
-- `hidden` says why a row is not effective (1 superseded); indexes hold effective rows only.
CREATE TABLE events (
  seq bigint NOT NULL,
  ingested_at bigint NOT NULL,
  created_at bigint NOT NULL,
  community integer NOT NULL,
  kind integer NOT NULL,
  keep smallint NOT NULL,
  hidden smallint,
  id bytea NOT NULL,
  pubkey bytea NOT NULL,
  payload text NOT NULL
) PARTITION BY LIST (keep);
CREATE UNIQUE INDEX events_place ON events (seq, ingested_at, keep);
CREATE INDEX events_newest ON events (community, created_at DESC) WHERE hidden IS NULL;
CREATE INDEX events_kind ON events (community, kind, created_at DESC) WHERE hidden IS NULL;
CREATE INDEX events_author ON events (community, pubkey, created_at DESC) WHERE hidden IS NULL;
CREATE INDEX events_author_kind ON events (community, pubkey, kind, created_at DESC) WHERE hidden IS NULL;

CREATE TABLE events_current PARTITION OF events FOR VALUES IN (0) WITH (autovacuum_analyze_threshold = 5000);
CREATE TABLE events_request PARTITION OF events FOR VALUES IN (1) WITH (autovacuum_analyze_threshold = 5000);
CREATE TABLE events_history PARTITION OF events FOR VALUES IN (2) PARTITION BY RANGE (ingested_at);
CREATE TABLE events_days30 PARTITION OF events FOR VALUES IN (3) PARTITION BY RANGE (ingested_at);

-- One row per distinct single-letter tag of an effective event. `tag` is a 64-bit hash of community, letter and value:
-- a value of any length or content is safe to index, and the exact value is checked on the event (events/postgres/query.ts).
CREATE TABLE event_tags (
  tag bigint NOT NULL,
  created_at bigint NOT NULL,
  seq bigint NOT NULL,
  ingested_at bigint NOT NULL,
  community integer NOT NULL,
  keep smallint NOT NULL
) PARTITION BY LIST (keep);
CREATE INDEX event_tags_tag ON event_tags (tag, created_at DESC, seq);

CREATE TABLE event_tags_current PARTITION OF event_tags FOR VALUES IN (0) WITH (autovacuum_analyze_threshold = 5000);
CREATE TABLE event_tags_request PARTITION OF event_tags FOR VALUES IN (1) WITH (autovacuum_analyze_threshold = 5000);
CREATE TABLE event_tags_days30 PARTITION OF event_tags FOR VALUES IN (3) PARTITION BY RANGE (ingested_at);

-- Statistics before data. A plan made on an empty table knows no column's spread and may take the wrong index, and a
-- prepared statement keeps it while thousands of events arrive (docs/decisions/0006). So a new partition, before anyone
-- can write to it, is filled with typical rows, analyzed and emptied: the statistics stay until real ones replace them.
-- The block with its own exception clause is a subtransaction: only there does TRUNCATE give the table a new file, and the
-- planner's row count goes back to "unknown". In the transaction that made the table it would stay 2,000 in 0 pages,
-- which the planner reads as empty for ever.
CREATE FUNCTION empty_new_table(target regclass) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  BEGIN
    EXECUTE format('TRUNCATE %s', target);
  EXCEPTION WHEN division_by_zero THEN
    RAISE;
  END;
END $$;

CREATE FUNCTION seed_event_statistics(target regclass, keep smallint, ingested_at bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  EXECUTE format(
    'INSERT INTO %s (seq, ingested_at, created_at, community, kind, keep, id, pubkey, payload)
     SELECT n, $2, 1700000000 + n * 60, 1, n %% 10, $1, decode(md5(n::text) || md5(n::text), ''hex''),
       decode(md5((n %% 100)::text) || md5((n %% 100)::text), ''hex''), repeat(''x'', 800)
     FROM generate_series(1, 2000) AS n', target) USING keep, ingested_at;
  EXECUTE format('ANALYZE %s', target);
  PERFORM empty_new_table(target);
END $$;

CREATE FUNCTION seed_tag_statistics(target regclass, keep smallint, ingested_at bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  EXECUTE format(
    'INSERT INTO %s (tag, created_at, seq, ingested_at, community, keep)
     SELECT n %% 200, 1700000000 + n * 6, n / 10, $2, 1, $1 FROM generate_series(1, 4000) AS n', target)
    USING keep, ingested_at;
  EXECUTE format('ANALYZE %s', target);
  PERFORM empty_new_table(target);
END $$;

SELECT seed_event_statistics('events_current', 0::smallint, 0);
SELECT seed_event_statistics('events_request', 1::smallint, 0);
SELECT seed_tag_statistics('event_tags_current', 0::smallint, 0);
SELECT seed_tag_statistics('event_tags_request', 1::smallint, 0);

-- Every id ever accepted, once (I3), and where its row lies.
CREATE TABLE event_dedupe (
  seq bigint NOT NULL,
  ingested_at bigint NOT NULL,
  first_seen_at bigint NOT NULL,
  community integer NOT NULL,
  keep smallint NOT NULL,
  event_id bytea NOT NULL,
  author bytea NOT NULL,
  PRIMARY KEY (community, event_id)
);

-- The high-water mark of each replaceable key (I4): stays when its version goes. The key is the SHA-256 of
-- `kind:pubkey:d`, because `d` may be longer than an index page and may hold what text cannot.
CREATE TABLE event_heads (
  community integer NOT NULL,
  kind integer NOT NULL,
  created_at bigint NOT NULL,
  address_hash bytea NOT NULL,
  pubkey bytea NOT NULL,
  event_id bytea NOT NULL,
  topics text[] NOT NULL,
  PRIMARY KEY (community, address_hash)
);

CREATE TABLE events_outbox (
  seq bigint PRIMARY KEY,
  ingested_at bigint NOT NULL,
  created_at bigint NOT NULL,
  community integer NOT NULL,
  kind integer NOT NULL,
  op text NOT NULL CHECK (op IN ('upsert', 'delete')),
  reason text CHECK (reason IN
    ('nip09', 'superseded', 'expiration', 'retention', 'capacity', 'vanish', 'erasure', 'moderation')),
  event_id bytea NOT NULL,
  author bytea NOT NULL,
  topics text[] NOT NULL,
  effective_key text,
  CHECK ((op = 'delete') = (reason IS NOT NULL))
);

-- What each community holds, kept up by the lane so that nothing ever has to count rows.
CREATE TABLE community_totals (
  community integer PRIMARY KEY,
  events bigint NOT NULL,
  bytes bigint NOT NULL
) WITH (fillfactor = 10);

-- Ephemeral events between instances: unlogged, trimmed after minutes, never shown to services.
-- The sequence is a logged one of its own: an unlogged identity would start again at 1 after a crash,
-- and every reader would wait for numbers it has passed.
CREATE SEQUENCE live_bus_position;
CREATE UNLOGGED TABLE live_bus (
  position bigint PRIMARY KEY DEFAULT nextval('live_bus_position'),
  sent_at bigint NOT NULL,
  community integer NOT NULL,
  event_id bytea NOT NULL,
  payload text NOT NULL
);
CREATE UNIQUE INDEX live_bus_event ON live_bus (community, event_id);
CREATE INDEX live_bus_sent_at ON live_bus (sent_at);
