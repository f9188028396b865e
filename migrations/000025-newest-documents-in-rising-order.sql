-- The index of documents by time in rising order, read backwards. Events arrive in the order of time. In falling order each document is
-- inserted at the left end of its community: a page splits in the middle and its older half is never filled again. In rising order
-- PostgreSQL splits behind the newest entry, and pages stay full: 30 % less.
DROP INDEX post_search_documents_newest;
CREATE INDEX post_search_documents_newest ON post_search_documents (community, created_at, event_id DESC) WHERE deleted_at IS NULL;
