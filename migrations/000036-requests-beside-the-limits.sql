-- online: reading all requests takes long where there are many, and nothing may wait for it.
-- Deletion requests are kept for ever and never refused for space. So the limits of communities and topics do not count them:
-- otherwise a topic would have less and less room for posts, and in the end none. They are part of `events` and `bytes`.
ALTER TABLE community_totals
  ADD COLUMN IF NOT EXISTS requests bigint NOT NULL DEFAULT 0,
  ADD COLUMN IF NOT EXISTS request_bytes bigint NOT NULL DEFAULT 0;
ALTER TABLE topic_totals
  ADD COLUMN IF NOT EXISTS requests bigint NOT NULL DEFAULT 0,
  ADD COLUMN IF NOT EXISTS request_bytes bigint NOT NULL DEFAULT 0;

UPDATE community_totals t SET requests = c.requests, request_bytes = c.bytes
FROM (SELECT community, count(*) AS requests, sum(octet_length(payload)) AS bytes
  FROM events WHERE keep = 1 AND kind = 5 AND hidden IS NULL GROUP BY community) c
WHERE t.community = c.community;

-- A payload with an escaped U+0000 or half of a pair is left out, because its tags may not be text for PostgreSQL: such a request counts as an event
-- until it leaves.
UPDATE topic_totals t SET requests = c.requests, request_bytes = c.bytes
FROM (SELECT community, topic, count(*) AS requests, sum(bytes) AS bytes
  FROM (SELECT DISTINCT e.community, e.seq, octet_length(e.payload) AS bytes, tag ->> 1 AS topic
    FROM events e CROSS JOIN LATERAL json_array_elements(e.payload::json -> 'tags') AS tag
    WHERE e.keep = 1 AND e.kind = 5 AND e.hidden IS NULL AND e.payload !~ '(^|[^\\])(\\\\)*\\u(0000|[dD][89a-fA-F])' AND tag ->> 0 = 't') found
  GROUP BY community, topic) c
WHERE t.community = c.community AND t.topic = c.topic;
