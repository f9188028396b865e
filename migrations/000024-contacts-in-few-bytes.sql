-- Contacts in few bytes. A row had three keys of 33 bytes and four indexes: 139 MB for the contacts of 100,000 events. Now people have a
-- number, the event is named by the first 8 bytes of its id, and one index holds author, named person and time.

-- Everybody who is the author of a contact or is named in one. The number means nothing outside of these tables.
CREATE TABLE trust_people (
  id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  community integer NOT NULL,
  pubkey bytea NOT NULL
);
INSERT INTO trust_people (community, pubkey)
SELECT community, author FROM trust_contacts UNION SELECT community, named FROM trust_contacts;
CREATE UNIQUE INDEX trust_people_key ON trust_people (community, pubkey);

ALTER TABLE trust_contacts RENAME TO trust_contacts_before;
ALTER TABLE trust_contacts_before RENAME CONSTRAINT trust_contacts_pkey TO trust_contacts_before_pkey;
-- `event`: the first 8 bytes of the event's id as a number. `author` and `named`: of trust_people. There is no foreign key: it would lock
-- and write the row of a person for each contact.
CREATE TABLE trust_contacts (
  at bigint NOT NULL,
  event bigint NOT NULL,
  community integer NOT NULL,
  kind integer NOT NULL,
  author integer NOT NULL,
  named integer NOT NULL,
  shared smallint NOT NULL CHECK (shared >= 1),
  CHECK (author <> named)
);
INSERT INTO trust_contacts (at, event, community, kind, author, named, shared)
SELECT DISTINCT ON (a.id, n.id, c.at, e.event) c.at, e.event, c.community, c.kind, a.id, n.id, c.shared
FROM trust_contacts_before c
JOIN trust_people a ON a.community = c.community AND a.pubkey = c.author
JOIN trust_people n ON n.community = c.community AND n.pubkey = c.named
CROSS JOIN LATERAL (SELECT ('x' || encode(substr(c.event_id, 1, 8), 'hex'))::bit(64)::bigint AS event) e
ORDER BY a.id, n.id, c.at, e.event;
DROP TABLE trust_contacts_before;
ALTER TABLE trust_contacts ADD PRIMARY KEY (author, named, at, event);
CREATE INDEX trust_contacts_named ON trust_contacts (named);
ANALYZE trust_people, trust_contacts;

-- Statistics before data, as in 000023: 2,000 contacts of 100 people with one another, over a month.
SELECT seed_consumer_statistics('trust_contacts', $$(at, event, community, kind, author, named, shared)
  SELECT 1700000000000 + n * 1200000::bigint, n / 2, 1, CASE WHEN n % 5 = 0 THEN 7 ELSE 1 END, n % 100 + 1, n % 97 + 101, 2
  FROM generate_series(1, 2000) AS n$$);
SELECT seed_consumer_statistics('trust_people', $$(community, pubkey)
  SELECT 1, sha256(n::text::bytea) FROM generate_series(1, 2000) AS n$$);
