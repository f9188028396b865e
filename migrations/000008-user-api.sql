-- The rest of the members' API: policies and consents, plans and usage, tokens, reports, blocks, personal data.

-- A policy has versions, a version has texts. A draft may be changed; what is published may not; one version of each type is
-- current, and only that one is asked for.
CREATE TABLE policy_versions (
  community integer NOT NULL REFERENCES communities (id),
  type text NOT NULL CHECK (type IN ('terms', 'privacy')),
  version text NOT NULL,
  status text NOT NULL DEFAULT 'draft' CHECK (status IN ('draft', 'published', 'current')),
  created_at bigint NOT NULL,
  published_at bigint,
  current_at bigint,
  PRIMARY KEY (community, type, version),
  CHECK ((status = 'draft') = (published_at IS NULL))
);
CREATE UNIQUE INDEX policy_versions_current ON policy_versions (community, type) WHERE status = 'current';

CREATE TABLE policy_texts (
  community integer NOT NULL,
  type text NOT NULL,
  version text NOT NULL,
  locale text NOT NULL,
  title text NOT NULL,
  content text NOT NULL,
  content_hash bytea NOT NULL,
  updated_at bigint NOT NULL,
  PRIMARY KEY (community, type, version, locale),
  FOREIGN KEY (community, type, version) REFERENCES policy_versions (community, type, version)
);

-- What a member agreed to, word for word (the hash), in the language it was read in. One language is enough.
CREATE TABLE consents (
  consent_id uuid PRIMARY KEY,
  community integer NOT NULL,
  pubkey bytea NOT NULL,
  type text NOT NULL,
  version text NOT NULL,
  locale text NOT NULL,
  content_hash bytea NOT NULL,
  consented_at bigint NOT NULL,
  withdrawn_at bigint,
  FOREIGN KEY (community, pubkey) REFERENCES members (community, pubkey),
  FOREIGN KEY (community, type, version, locale) REFERENCES policy_texts (community, type, version, locale)
);
CREATE UNIQUE INDEX consents_in_force ON consents (community, pubkey, type, version) WHERE withdrawn_at IS NULL;
CREATE INDEX consents_member ON consents (community, pubkey, consented_at, consent_id);
CREATE INDEX consents_newest ON consents (community, consented_at, consent_id);

-- What a member may use. A plan named `free` exists without a row (plans/rules.ts); a row overrides it.
-- limits: maxTopics, searchPerDay, trustPerDay, reportsPerDay, exportsPerDay; what is missing is unlimited.
CREATE TABLE plans (
  community integer NOT NULL REFERENCES communities (id),
  plan_id text NOT NULL CHECK (plan_id ~ '^[a-z0-9][a-z0-9-]{0,62}$'),
  name text NOT NULL,
  limits jsonb NOT NULL DEFAULT '{}',
  created_at bigint NOT NULL,
  updated_at bigint NOT NULL,
  PRIMARY KEY (community, plan_id)
);
-- After `plan_until` the member is on the free plan again.
ALTER TABLE members
  ADD COLUMN plan text NOT NULL DEFAULT 'free',
  ADD COLUMN plan_until bigint,
  ADD COLUMN tokens_from bigint NOT NULL DEFAULT 0;
CREATE INDEX members_plan ON members (community, plan);

CREATE TABLE usage_counters (
  community integer NOT NULL,
  pubkey bytea NOT NULL,
  day integer NOT NULL,
  metric text NOT NULL,
  used integer NOT NULL,
  PRIMARY KEY (community, pubkey, day, metric)
);
CREATE INDEX usage_counters_newest ON usage_counters (community, (-day), pubkey, metric);

-- Requests that were counted, so that one that is sent again is not counted again. `holders`: how many of its sendings are
-- under way or have succeeded; when the last of them has failed, the use is given back.
CREATE TABLE usage_requests (
  community integer NOT NULL,
  pubkey bytea NOT NULL,
  metric text NOT NULL,
  request_id text NOT NULL,
  counted_at bigint NOT NULL,
  holders integer NOT NULL DEFAULT 1,
  PRIMARY KEY (community, pubkey, metric, request_id)
);
CREATE INDEX usage_requests_counted ON usage_requests (counted_at);

-- What a payment provider's calls are signed with; shown once, when it is made.
CREATE TABLE webhook_secrets (
  community integer PRIMARY KEY REFERENCES communities (id),
  secret text NOT NULL,
  created_at bigint NOT NULL
);

-- Calls of a payment provider that were carried out, with what came of each: one that is sent again changes nothing.
CREATE TABLE plan_events (
  community integer NOT NULL REFERENCES communities (id),
  event_id text NOT NULL,
  pubkey bytea NOT NULL,
  plan text NOT NULL,
  plan_until bigint,
  received_at bigint NOT NULL,
  PRIMARY KEY (community, event_id)
);
CREATE INDEX plan_events_received ON plan_events (received_at);

-- Tokens that were revoked before their time. A token carries `members.tokens_from` of when it was made, and holds while the
-- two are equal: raising it revokes all of a member's tokens.
CREATE TABLE revoked_tokens (
  community integer NOT NULL,
  token_id text NOT NULL,
  pubkey bytea NOT NULL,
  expires_at bigint NOT NULL,
  PRIMARY KEY (community, token_id)
);
CREATE INDEX revoked_tokens_expiry ON revoked_tokens (expires_at);

-- Primary data of their own: what members report, over HTTP or as an event of kind 1984 (then `event_id` names it).
CREATE TABLE reports (
  report_id uuid PRIMARY KEY,
  community integer NOT NULL,
  pubkey bytea NOT NULL,
  target_event bytea,
  target_pubkey bytea,
  reason text NOT NULL,
  comment text NOT NULL DEFAULT '',
  event_id bytea,
  created_at bigint NOT NULL,
  CHECK (target_event IS NOT NULL OR target_pubkey IS NOT NULL)
);
CREATE UNIQUE INDEX reports_event ON reports (community, event_id, target_event, target_pubkey) NULLS NOT DISTINCT
  WHERE event_id IS NOT NULL;
CREATE INDEX reports_newest ON reports (community, created_at, report_id);
CREATE INDEX reports_member ON reports (community, pubkey, created_at, report_id);
CREATE INDEX reports_target_event ON reports (community, target_event, created_at, report_id)
  WHERE target_event IS NOT NULL;
CREATE INDEX reports_target_pubkey ON reports (community, target_pubkey, created_at, report_id)
  WHERE target_pubkey IS NOT NULL;

-- What the operator keeps out, at the door.
CREATE TABLE blocked_authors (
  community integer NOT NULL REFERENCES communities (id),
  pubkey bytea NOT NULL,
  reason text,
  created_at bigint NOT NULL,
  PRIMARY KEY (community, pubkey)
);
CREATE TABLE blocked_words (
  community integer NOT NULL REFERENCES communities (id),
  word text NOT NULL,
  reason text,
  created_at bigint NOT NULL,
  PRIMARY KEY (community, word)
);
CREATE TABLE blocked_addresses (
  community integer NOT NULL REFERENCES communities (id),
  network cidr NOT NULL,
  reason text,
  created_at bigint NOT NULL,
  PRIMARY KEY (community, network)
);

-- A member's wish to have, or to have deleted, everything that is held about them. `request_key`: how its sender named it, so
-- that it is made once however often it is sent. `tries`: how often a worker has begun it.
CREATE TABLE personal_data_requests (
  request_id uuid PRIMARY KEY,
  community integer NOT NULL,
  pubkey bytea NOT NULL,
  kind text NOT NULL CHECK (kind IN ('export', 'deletion')),
  status text NOT NULL CHECK (status IN ('pending', 'running', 'ready', 'failed', 'expired', 'cancelled', 'done')),
  note text,
  error text,
  bytes bigint NOT NULL DEFAULT 0,
  request_key text,
  tries integer NOT NULL DEFAULT 0,
  created_at bigint NOT NULL,
  started_at bigint,
  finished_at bigint,
  expires_at bigint,
  FOREIGN KEY (community, pubkey) REFERENCES members (community, pubkey)
);
CREATE UNIQUE INDEX personal_data_requests_open ON personal_data_requests (community, pubkey, kind)
  WHERE status IN ('pending', 'running');
CREATE INDEX personal_data_requests_member ON personal_data_requests (community, pubkey, created_at, request_id);
CREATE INDEX personal_data_requests_review ON personal_data_requests (community, kind, status, created_at, request_id);
CREATE INDEX personal_data_requests_work ON personal_data_requests (kind, status, tries, created_at);
CREATE UNIQUE INDEX personal_data_requests_key ON personal_data_requests (community, pubkey, kind, request_key)
  WHERE request_key IS NOT NULL;
CREATE INDEX personal_data_requests_ended
  ON personal_data_requests ((CASE status WHEN 'expired' THEN expires_at ELSE finished_at END))
  WHERE kind = 'export' AND status IN ('failed', 'expired', 'cancelled');

-- The file of an export in portions, so that any instance can serve what a worker has made. Gone with the request's time.
CREATE TABLE personal_data_files (
  request_id uuid NOT NULL REFERENCES personal_data_requests (request_id),
  position integer NOT NULL,
  portion bytea NOT NULL,
  PRIMARY KEY (request_id, position)
);
ALTER TABLE personal_data_files ALTER COLUMN portion SET STORAGE EXTERNAL;
