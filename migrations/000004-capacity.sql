-- Capacity: what each topic holds, and which step of the response to short space is in force (events/rules/capacity.ts).

-- Kept up by the lane beside community_totals; a topic without served events has no row.
CREATE TABLE topic_totals (
  community integer NOT NULL,
  events bigint NOT NULL,
  bytes bigint NOT NULL,
  topic text NOT NULL,
  PRIMARY KEY (community, topic)
) WITH (fillfactor = 70);

-- An event's `seq` is the place of its upsert in the outbox, which has its topics.
INSERT INTO topic_totals (community, topic, events, bytes)
SELECT e.community, t.topic, count(*), sum(octet_length(e.payload))
FROM events e JOIN events_outbox o ON o.seq = e.seq AND o.op = 'upsert', unnest(o.topics) AS t (topic)
WHERE e.hidden IS NULL GROUP BY e.community, t.topic;

-- No row is step 0. An empty topic stands for the whole community. `since` is when the step began, in milliseconds.
CREATE TABLE capacity_steps (
  community integer NOT NULL REFERENCES communities (id),
  topic text NOT NULL DEFAULT '',
  step smallint NOT NULL CHECK (step BETWEEN 1 AND 3),
  since bigint NOT NULL,
  PRIMARY KEY (community, topic)
);
