-- What the node did, for its overview: counts of each minute, summed over the instances, and of each hour.
CREATE TABLE node_samples (
  step_seconds integer NOT NULL CHECK (step_seconds IN (60, 3600)),
  at bigint NOT NULL,
  connections integer NOT NULL,
  lane_depth integer NOT NULL,
  database_bytes bigint,
  disk_free_bytes bigint,
  outcomes bigint[] NOT NULL,
  ok_times bigint[] NOT NULL,
  lag_seconds jsonb NOT NULL,
  PRIMARY KEY (step_seconds, at)
);

-- Adds counts place by place. A newer program may know more places.
CREATE FUNCTION add_counts(a bigint[], b bigint[]) RETURNS bigint[] LANGUAGE sql IMMUTABLE AS $$
  SELECT coalesce(array_agg(coalesce(x, 0) + coalesce(y, 0) ORDER BY place), '{}')
  FROM unnest(a, b) WITH ORDINALITY AS t (x, y, place)
$$;

-- What each community kept at each hour: when is its limit met?
CREATE TABLE community_sizes (
  community integer NOT NULL,
  at bigint NOT NULL,
  events bigint NOT NULL,
  bytes bigint NOT NULL,
  PRIMARY KEY (community, at)
);
CREATE INDEX community_sizes_at ON community_sizes (at);

-- How often a job has failed in a row, and when it last succeeded.
ALTER TABLE job_runs ADD COLUMN failures integer NOT NULL DEFAULT 0, ADD COLUMN ok_at bigint;
UPDATE job_runs SET failures = CASE WHEN error IS NULL THEN 0 ELSE 1 END,
  ok_at = CASE WHEN error IS NULL THEN finished_at END;
