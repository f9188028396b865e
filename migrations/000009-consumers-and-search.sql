-- Consumers of the outbox: how far each has come, who works on it, what it could not take; and the first of them, search.

-- `generation`: which of what it has built is the one to read; 0 while none is whole yet. `holder` works on it and raises `beat`
-- about once a second: one that stands still is taken over, by the watcher's own clock. Every effect is saved with the number, in
-- one transaction that asks for the holder, so that one who was taken over can save nothing more.
ALTER TABLE consumer_offsets
  ADD COLUMN generation integer NOT NULL DEFAULT 0,
  ADD COLUMN holder uuid,
  ADD COLUMN beat bigint NOT NULL DEFAULT 0,
  ADD COLUMN paused_at bigint,
  ADD COLUMN applied bigint NOT NULL DEFAULT 0,
  ADD COLUMN rows_per_second real NOT NULL DEFAULT 0,
  ADD COLUMN error text,
  ADD COLUMN failing_since bigint;

-- A generation in the making: asked for, then pinned, then the view is scanned up to the pin, then the outbox is replayed from it
-- until this generation has what the other has, and takes its place.
CREATE TABLE consumer_rebuilds (
  consumer text PRIMARY KEY REFERENCES consumer_offsets (consumer),
  generation integer NOT NULL,
  reason text NOT NULL,
  requested_at bigint NOT NULL,
  started_at bigint,
  pinned_seq bigint,
  scanned_seq bigint NOT NULL DEFAULT 0,
  scanned bigint NOT NULL DEFAULT 0,
  expected bigint NOT NULL DEFAULT 0,
  last_seq bigint,
  updated_at bigint NOT NULL
);

-- Rows of the outbox (or events of a scan) that a consumer failed at, one by one and several times.
CREATE TABLE consumer_dead_letters (
  consumer text NOT NULL REFERENCES consumer_offsets (consumer),
  generation integer NOT NULL,
  seq bigint NOT NULL,
  ingested_at bigint NOT NULL,
  created_at bigint NOT NULL,
  failed_at bigint NOT NULL,
  community integer NOT NULL,
  kind integer NOT NULL,
  attempts integer NOT NULL,
  retry_asked boolean NOT NULL DEFAULT false,
  op text NOT NULL CHECK (op IN ('upsert', 'delete')),
  reason text,
  error text NOT NULL,
  event_id bytea NOT NULL,
  author bytea NOT NULL,
  topics text[] NOT NULL,
  effective_key text,
  PRIMARY KEY (consumer, generation, seq)
);
CREATE INDEX consumer_dead_letters_retry ON consumer_dead_letters (consumer, generation, seq) WHERE retry_asked;
CREATE INDEX consumer_dead_letters_author ON consumer_dead_letters (community, author);

-- What can be searched for. One partition for each generation, dropped as a whole. The text itself is in the event: here are its words
-- (search/rules-words.ts), by weight: A title and name, B content, C hashtags and mentions, D pairs of characters where a
-- script has no spaces. A deleted one stays, without being found, as long as its event does.
CREATE TABLE post_search_documents (
  generation integer NOT NULL,
  community integer NOT NULL,
  kind integer NOT NULL,
  created_at bigint NOT NULL,
  seq bigint NOT NULL,
  deleted_at bigint,
  event_id bytea NOT NULL,
  author bytea NOT NULL,
  words tsvector NOT NULL,
  PRIMARY KEY (generation, community, event_id)
) PARTITION BY LIST (generation);
CREATE INDEX post_search_documents_words ON post_search_documents USING gin (words) WHERE deleted_at IS NULL;
CREATE INDEX post_search_documents_newest ON post_search_documents (community, created_at DESC, event_id) WHERE deleted_at IS NULL;
CREATE INDEX post_search_documents_deleted ON post_search_documents (deleted_at) WHERE deleted_at IS NOT NULL;
CREATE INDEX post_search_documents_author ON post_search_documents (community, author);
CREATE TABLE post_search_documents_1 PARTITION OF post_search_documents FOR VALUES IN (1);

-- By which rules a generation was made: which kinds, and which topics were public.
CREATE TABLE search_rules (
  generation integer NOT NULL,
  community integer NOT NULL,
  rules jsonb NOT NULL,
  PRIMARY KEY (generation, community)
);

-- A step may be in force for want of space, or because a consumer of the outbox is far behind.
ALTER TABLE capacity_steps
  ADD COLUMN cause text NOT NULL DEFAULT 'space' CHECK (cause IN ('space', 'lag')),
  DROP CONSTRAINT capacity_steps_pkey,
  ADD PRIMARY KEY (community, topic, cause);
