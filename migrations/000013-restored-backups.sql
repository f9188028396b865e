-- Keys on several machines, and communities that are made again under an erased name.

-- Which key is asked for: empty for the key of the erased, else the public half of a signing key.
ALTER TABLE subject_key_requests ADD COLUMN wanted text NOT NULL DEFAULT '';

-- Why the node itself put a key in the place of another one; empty when an operator did, and for the first one of a purpose.
ALTER TABLE node_keys ADD COLUMN reason text;

-- A community that was made again under the name of an erased one: what was signed up to then (seconds) is refused.
ALTER TABLE communities ADD COLUMN refused_until bigint;
UPDATE erasures SET until = fenced_at / 1000 WHERE type = 'community' AND until IS NULL AND fenced_at IS NOT NULL;
UPDATE communities c SET refused_until = (SELECT max(e.until) FROM erasures e
  WHERE e.type = 'community' AND e.stage = 'completed' AND e.slug = c.slug AND e.community <> c.id);

-- Topics about a person (<namespace>:user:<pubkey>) go with the person, whoever uses them.
CREATE INDEX topic_subscriptions_person ON topic_subscriptions (community, right(topic, 64)) WHERE topic LIKE '%user%';
CREATE INDEX topic_subscription_requests_person ON topic_subscription_requests (community, right(topic, 64))
  WHERE topic LIKE '%user%';
