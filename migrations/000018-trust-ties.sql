-- Trust counts ties between people instead of single contacts: both have named each other, on several days, and a note that names many is
-- shared by all of them.

-- How many people the event names: each gets that part of its weight.
ALTER TABLE trust_contacts ADD COLUMN shared smallint NOT NULL DEFAULT 1 CHECK (shared >= 1);
UPDATE trust_contacts c SET shared = n.people
FROM (SELECT community, event_id, count(*) AS people FROM trust_contacts GROUP BY community, event_id HAVING count(*) > 1) n
WHERE c.community = n.community AND c.event_id = n.event_id;

-- What one person said to another.
CREATE INDEX trust_contacts_pair ON trust_contacts (community, named, author, at);
DROP INDEX trust_contacts_named;

-- From when on this person's ties count for others, in milliseconds. Null: by the age of the key alone, where it is a founder's.
ALTER TABLE trust_authors ADD COLUMN stands_from bigint;
