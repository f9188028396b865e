-- Members search in the topics that they may read. Until now posts of topics that are not public were not indexed at all where clients
-- must authenticate, so those communities' documents are to be made again.

-- Hashes of the topics of the event, so that documents of topics that the reader may not see need not be looked at. The event itself
-- decides; null: no topic, or too many.
ALTER TABLE post_search_documents ADD COLUMN topics int[];

UPDATE search_rules SET rules = jsonb_build_object('mixed', 'posts of topics that are not public were left out') || rules
WHERE jsonb_typeof(rules -> 'topics') = 'object' AND NOT rules ? 'mixed';
