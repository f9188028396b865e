-- Followers: services outside of the node that follow the outbox of a community. An erasure waits for what
-- they acknowledge.

CREATE TABLE outbox_followers (
  community integer NOT NULL,
  -- Everything up to this offset of the outbox has its effect at the follower.
  acknowledged_seq bigint NOT NULL,
  acknowledged_at bigint,
  registered_at bigint NOT NULL,
  seen_at bigint NOT NULL,
  -- An erasure went on without it: rows up to this offset were scrubbed before it had acknowledged them. It
  -- must rebuild from a view that is pinned there or later.
  overrun_seq bigint,
  overrun_at bigint,
  -- It rebuilds, from a view that is pinned here: erasures wait for it again.
  pinned_seq bigint,
  limit_seconds integer NOT NULL,
  name text NOT NULL,
  registered_by bytea,
  PRIMARY KEY (community, name)
);

-- Streams of the outbox that are open now, of every instance, registered or not: an erasure lets each of them
-- send the deletes before it scrubs the rows, for a few seconds. A crash ends the streams too.
CREATE UNLOGGED TABLE outbox_streams (
  stream_id uuid PRIMARY KEY,
  community integer NOT NULL,
  sent_seq bigint NOT NULL,
  seen_at bigint NOT NULL
);
CREATE INDEX outbox_streams_community ON outbox_streams (community);

-- `outbox_seq` and `announced_at`: the head of the outbox when the last delete of this pass was in it, and
-- when that was. `waits`: the followers that it waits for. `unacknowledged`: those that it went on without.
-- `added`: rows that came after a store was counted. `otherwise`: rows that were gone by other ways than this
-- erasure. In each store: counted + added = deleted + otherwise + verified.
ALTER TABLE erasures
  ADD COLUMN announced_at bigint,
  ADD COLUMN added jsonb NOT NULL DEFAULT '{}',
  ADD COLUMN otherwise jsonb NOT NULL DEFAULT '{}',
  ADD COLUMN waits jsonb NOT NULL DEFAULT '[]',
  ADD COLUMN unacknowledged jsonb NOT NULL DEFAULT '[]';

-- Erasures that are over did not note it: what is missing in a row went otherwise, what is too much came later.
WITH missing AS (
  SELECT e.erasure_id, v.key AS store,
    coalesce((e.counted->>v.key)::bigint - coalesce((e.deleted->>v.key)::bigint, 0) - v.value::bigint, 0) AS rows
  FROM erasures e, jsonb_each_text(e.verified) v WHERE e.stage = 'completed'
), summed AS (
  SELECT erasure_id, jsonb_object_agg(store, -rows) FILTER (WHERE rows < 0) AS added,
    jsonb_object_agg(store, rows) FILTER (WHERE rows > 0) AS otherwise
  FROM missing GROUP BY erasure_id
)
UPDATE erasures e SET added = coalesce(s.added, '{}'), otherwise = coalesce(s.otherwise, '{}')
FROM summed s WHERE s.erasure_id = e.erasure_id;
