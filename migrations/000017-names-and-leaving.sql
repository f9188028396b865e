-- The name that the operator gave a member (NIP-05), one of its kind in the community; and since when a member who left is none.
ALTER TABLE members ADD COLUMN name text, ADD COLUMN left_at bigint;
CREATE UNIQUE INDEX members_name ON members (community, name) WHERE name IS NOT NULL;
