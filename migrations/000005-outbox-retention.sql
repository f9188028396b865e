-- The outbox in ranges of a million numbers, so that what is old is dropped, not deleted; and who has read how far.

ALTER TABLE events_outbox RENAME TO events_outbox_0;
ALTER TABLE events_outbox_0 RENAME CONSTRAINT events_outbox_pkey TO events_outbox_0_pkey;
CREATE TABLE events_outbox (LIKE events_outbox_0 INCLUDING DEFAULTS INCLUDING CONSTRAINTS, PRIMARY KEY (seq))
  PARTITION BY RANGE (seq);
DO $$
DECLARE
  upto bigint := (SELECT (last_seq / 1000000 + 1) * 1000000 FROM lane_state);
BEGIN
  EXECUTE format('ALTER TABLE events_outbox ATTACH PARTITION events_outbox_0 FOR VALUES FROM (0) TO (%s)', upto);
  EXECUTE format(
    'CREATE TABLE events_outbox_%s PARTITION OF events_outbox FOR VALUES FROM (%s) TO (%s)',
    upto / 1000000, upto, upto + 1000000);
END $$;

-- The first number that is still there; a reader that is behind it has missed rows and must rebuild.
ALTER TABLE lane_state ADD COLUMN outbox_floor bigint NOT NULL DEFAULT 1;

CREATE TABLE consumer_offsets (
  consumer text PRIMARY KEY,
  last_seq bigint NOT NULL,
  updated_at bigint NOT NULL
);
