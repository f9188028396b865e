-- How an event came here, if it was not posted here: the gossip topic in hex, or 'sync'. What came by gossip
-- is not sent into the same topic again, and what came by sync is not sent at all.
ALTER TABLE events_outbox ADD COLUMN came_by text;
ALTER TABLE live_bus ADD COLUMN came_by text;

-- One instance of the database holds the endpoint. Its offset in the outbox is null until gossip has started.
CREATE TABLE p2p_lease (
  singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
  beat bigint NOT NULL DEFAULT 0,
  last_seq bigint,
  updated_at bigint NOT NULL DEFAULT 0,
  holder uuid
);
INSERT INTO p2p_lease DEFAULT VALUES;

-- The machines of this database that take part in gossip. The machine that holds the lease writes its state.
CREATE TABLE p2p_machines (
  machine text PRIMARY KEY CHECK (machine ~ '^[0-9a-f]{64}$'),
  seen_at bigint NOT NULL,
  addresses text[] NOT NULL,
  bases text[] NOT NULL,
  state jsonb
);
