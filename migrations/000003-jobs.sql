-- Jobs: what the node does by itself, and what its sweeps need.

-- The latest run of each job, one row each, so that it stays small for ever. `finished_at` is empty while it runs, or when
-- it was cut off. The scheduler keeps its own tables in the schema minato_worker.
CREATE TABLE job_runs (
  job text PRIMARY KEY,
  started_at bigint NOT NULL,
  finished_at bigint,
  changed bigint NOT NULL DEFAULT 0,
  more boolean NOT NULL DEFAULT false,
  error text
) WITH (fillfactor = 50);

-- Each community has its own audit time and its own time of dedupe, so the sweeps walk community by community.
DROP INDEX events_audit;
CREATE INDEX events_audit ON events (community, hidden_at) WHERE hidden = 2;
DROP INDEX event_dedupe_gone;
CREATE INDEX event_dedupe_gone ON event_dedupe (community, gone_at) WHERE gone_at IS NOT NULL;

-- A hidden gift wrap has no tag rows any more; an erasure of its recipient finds it here.
CREATE INDEX events_hidden_wraps ON events (community, seq) WHERE hidden IS NOT NULL AND kind = 1059;

-- How far an erasure has come, for the `until` that it names; a later request begins again.
ALTER TABLE vanish_marks ADD COLUMN progress jsonb;
