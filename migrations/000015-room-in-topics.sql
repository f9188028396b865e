-- A topic that is over its own limit purges its oldest and goes on. `full`: it holds only what is never purged, so it takes no posts.
ALTER TABLE capacity_steps ADD COLUMN "full" boolean NOT NULL DEFAULT false;
-- Before, step 2 of a topic meant that it took no posts. The job settles each topic's step within a minute.
DELETE FROM capacity_steps WHERE topic <> '' AND step = 2;

-- Deletion requests by age, for communities that bound how long they are kept (deletion.keepRequestsDays).
CREATE INDEX events_request_age ON events_request (community, ingested_at) WHERE kind = 5 AND hidden IS NULL;
