-- The hidden events of an author, the newest first, for the console: the same index with the time of the event.
DROP INDEX events_hidden_author;
CREATE INDEX events_hidden_author ON events (community, pubkey, created_at DESC) WHERE hidden IS NOT NULL;
