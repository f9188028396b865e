-- Retention: what was past its days stays hidden when the days are raised later, and what is not kept any more is deleted by row.

-- Whatever came in before `kept_since` was past the days in force when the rules were last changed; milliseconds. A topic without one
-- has its community's. `history_kept_since`: the same of superseded versions, by when they were superseded.
ALTER TABLE communities
  ADD COLUMN kept_since bigint NOT NULL DEFAULT 0,
  ADD COLUMN history_kept_since bigint NOT NULL DEFAULT 0;
ALTER TABLE node_subscriptions ADD COLUMN kept_since bigint;

-- Superseded versions are found by their time, community by community.
CREATE INDEX events_history_time ON events_history (community, ingested_at);

-- 0 days of history meant for ever; now it means none.
UPDATE community_settings SET value = '"forever"' WHERE key = 'retention.historyDays' AND value = '0';
UPDATE config_version SET version = version + 1;

-- What retention had hidden in the bucket that is never dropped.
DELETE FROM events WHERE keep = 6 AND hidden = 4;
