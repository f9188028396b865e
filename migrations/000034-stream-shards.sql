-- Events in DynamoDB: the shards of its stream, how far each was appended to events_outbox, and which worker reads it.
-- A child is read after its parent. `checkpoint` is moved in the transaction that appends the records.
CREATE TABLE stream_shards (
  seen_at bigint NOT NULL,
  held_until bigint NOT NULL DEFAULT 0,
  is_done boolean NOT NULL DEFAULT false,
  stream text NOT NULL,
  shard text NOT NULL,
  parent text,
  checkpoint text,
  holder text,
  PRIMARY KEY (stream, shard)
);
