-- Topics and membership: who asks for which topic, who may read and post there, who runs the community.

-- Topics that an event is bound to beside those of its own `t` tags: a deletion request to its targets' topics, and in the
-- `default` mode an event without a topic to the global one. In the index and in the outbox only: the event is not changed.
ALTER TABLE events ADD COLUMN bound text[];

-- `pinned`: carried by the operator's will, also while nobody subscribes. `public`: its readers and authors need no subscription.
-- `name`: what people call it; the id of a topic is a hash. What the operator had set up before was open to everyone.
ALTER TABLE node_subscriptions
  ADD COLUMN pinned boolean NOT NULL DEFAULT false,
  ADD COLUMN public boolean NOT NULL DEFAULT false,
  ADD COLUMN name text;
UPDATE node_subscriptions SET pinned = enabled, public = true;
ALTER TABLE node_subscriptions DROP COLUMN enabled;
INSERT INTO node_subscriptions (community, topic, pinned, public, created_at, updated_at)
  SELECT id, 'kukuri:global', true, true, created_at, created_at FROM communities
  ON CONFLICT (community, topic) DO NOTHING;

-- One who has asked for a topic, or about whom the operator has decided. An account that is deleted stays as a mark.
CREATE TABLE members (
  community integer NOT NULL REFERENCES communities (id),
  pubkey bytea NOT NULL,
  status text NOT NULL DEFAULT 'active' CHECK (status IN ('active', 'disabled', 'deleted')),
  note text,
  created_at bigint NOT NULL,
  updated_at bigint NOT NULL,
  PRIMARY KEY (community, pubkey)
);
CREATE INDEX members_refused ON members (community) WHERE status <> 'active';

-- pending → approved → active, or rejected, or cancelled by the member. Approval makes the subscription in the same
-- transaction, so that a request passes `approved` on its way to `active`.
CREATE TABLE topic_subscription_requests (
  request_id uuid PRIMARY KEY,
  community integer NOT NULL,
  pubkey bytea NOT NULL,
  topic text NOT NULL,
  name text,
  requested_services text[] NOT NULL DEFAULT '{}',
  status text NOT NULL CHECK (status IN ('pending', 'approved', 'active', 'rejected', 'cancelled')),
  review_note text,
  reviewed_by bytea,
  created_at bigint NOT NULL,
  reviewed_at bigint,
  FOREIGN KEY (community, pubkey) REFERENCES members (community, pubkey)
);
CREATE UNIQUE INDEX topic_subscription_requests_pending ON topic_subscription_requests (community, pubkey, topic)
  WHERE status = 'pending';
CREATE INDEX topic_subscription_requests_member ON topic_subscription_requests (community, pubkey, created_at, request_id);
CREATE INDEX topic_subscription_requests_review ON topic_subscription_requests (community, status, created_at, request_id);

-- The right of a member to a topic, one row for each time from its start to its end.
CREATE TABLE topic_subscriptions (
  subscription_id uuid PRIMARY KEY,
  request_id uuid REFERENCES topic_subscription_requests (request_id),
  community integer NOT NULL,
  pubkey bytea NOT NULL,
  topic text NOT NULL,
  services text[] NOT NULL DEFAULT '{}',
  plan text NOT NULL DEFAULT 'free',
  status text NOT NULL CHECK (status IN ('active', 'paused', 'ended')),
  started_at bigint NOT NULL,
  updated_at bigint NOT NULL,
  ended_at bigint,
  FOREIGN KEY (community, pubkey) REFERENCES members (community, pubkey),
  CHECK ((status = 'ended') = (ended_at IS NOT NULL))
);
CREATE UNIQUE INDEX topic_subscriptions_open ON topic_subscriptions (community, topic, pubkey) WHERE status <> 'ended';
CREATE INDEX topic_subscriptions_active ON topic_subscriptions (community, topic, pubkey) WHERE status = 'active';
CREATE INDEX topic_subscriptions_request ON topic_subscriptions (request_id);
CREATE INDEX topic_subscriptions_member ON topic_subscriptions (community, pubkey, started_at, subscription_id);

-- What no member may ask for, and what is not carried however many have subscribed.
CREATE TABLE blocked_topics (
  community integer NOT NULL REFERENCES communities (id),
  topic text NOT NULL,
  reason text,
  created_at bigint NOT NULL,
  PRIMARY KEY (community, topic)
);

-- Those added to the ones of MINATO_ADMIN_PUBKEYS, who are operators of every community.
CREATE TABLE operators (
  community integer NOT NULL REFERENCES communities (id),
  pubkey bytea NOT NULL,
  added_by bytea,
  created_at bigint NOT NULL,
  PRIMARY KEY (community, pubkey)
);

-- A code that lets one request be approved by itself. Only its hash is kept.
CREATE TABLE invites (
  invite_id uuid PRIMARY KEY,
  community integer NOT NULL REFERENCES communities (id),
  code_hash bytea NOT NULL UNIQUE,
  topic text,
  created_by bytea,
  created_at bigint NOT NULL,
  expires_at bigint NOT NULL,
  revoked_at bigint,
  used_by bytea,
  used_at bigint
);

-- Every action of an operator, in the transaction of the action. No actor: the command line on the node's own machine.
CREATE TABLE audit_log (
  position bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  community integer NOT NULL,
  at bigint NOT NULL,
  actor bytea,
  action text NOT NULL,
  target text NOT NULL,
  details jsonb NOT NULL DEFAULT '{}'
);
CREATE INDEX audit_log_newest ON audit_log (community, position DESC);

-- How many use a topic is counted from their rows, and what is carried follows from them: neither can drift. Whoever needs only
-- `enabled` does not pay for the count: both are expressions of their own, and what is not asked for is not computed.
CREATE VIEW node_topics AS
SELECT n.community, n.topic, n.name, n.pinned, n.public, n.priority, n.ingest_policy, n.created_at, n.updated_at,
  (SELECT count(*) FROM topic_subscriptions s JOIN members m USING (community, pubkey)
    WHERE s.community = n.community AND s.topic = n.topic AND s.status = 'active' AND m.status = 'active') AS ref_count,
  b.topic IS NOT NULL AS blocked,
  b.topic IS NULL AND (n.pinned OR EXISTS (SELECT 1 FROM topic_subscriptions s JOIN members m USING (community, pubkey)
    WHERE s.community = n.community AND s.topic = n.topic AND s.status = 'active' AND m.status = 'active')) AS enabled
FROM node_subscriptions n
LEFT JOIN blocked_topics b ON b.community = n.community AND b.topic = n.topic;

-- Who has the right to which topic; public topics aside. Derived, so that it is right whoever changes the rows.
CREATE VIEW topic_rights AS
SELECT s.community, s.pubkey, s.topic FROM topic_subscriptions s JOIN members m USING (community, pubkey)
WHERE s.status = 'active' AND m.status = 'active';

-- `version` grows with everything that all instances hold in memory, `rights_version` with every right of a member.
-- A transaction that changes either takes this row first, so that they follow one another.
ALTER TABLE config_version ADD COLUMN rights_version bigint NOT NULL DEFAULT 1;

-- Token buckets that hold across instances. Lost in a crash, which only ever favours a client.
CREATE UNLOGGED TABLE rate_buckets (
  key text PRIMARY KEY,
  tokens double precision NOT NULL,
  granted double precision NOT NULL,
  at bigint NOT NULL
) WITH (fillfactor = 50);
CREATE INDEX rate_buckets_at ON rate_buckets (at);

-- Credentials that were used once and must not be used again while they are fresh.
CREATE TABLE used_credentials (
  key text PRIMARY KEY,
  expires_at bigint NOT NULL
);
CREATE INDEX used_credentials_expiry ON used_credentials (expires_at);
