-- For a delete: the keys of the tags of the event (as in event_tags), so that a client that returns with a cursor learns of deletions
-- that its filter could match and that it was allowed to see. NULL for an upsert, and where the tags are not known or are too many.
ALTER TABLE events_outbox ADD COLUMN tags bigint[];
