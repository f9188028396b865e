-- Erasure: a member or a community is erased from every store, step by step, and what is left is a proof of it.

-- One erasure. `stage` is how far it has come; a hold or a failure stops it there until it is released or tried again. `pubkey` is
-- forgotten with the end; what stays is `subject`, a keyed hash whose key is no part of the database. No foreign key to the community:
-- the record outlives it.
CREATE TABLE erasures (
  erasure_id uuid PRIMARY KEY,
  community integer NOT NULL,
  slug text NOT NULL,
  type text NOT NULL CHECK (type IN ('member', 'community')),
  cause text NOT NULL CHECK (cause IN ('member', 'operator', 'vanish', 'replay')),
  stage text NOT NULL CHECK (stage IN
    ('requested', 'grace', 'fenced', 'counted', 'deleting', 'verifying', 'completed', 'cancelled')),
  requested_at bigint NOT NULL,
  updated_at bigint NOT NULL,
  grace_until bigint NOT NULL,
  fenced_at bigint,
  counted_at bigint,
  completed_at bigint,
  held_at bigint,
  failed_at bigint,
  -- Seconds, as Nostr has them: what was signed up to then is erased and stays refused.
  until bigint,
  -- Consumers have to pass this number of the outbox before it is scrubbed.
  outbox_seq bigint,
  tries integer NOT NULL DEFAULT 0,
  passes integer NOT NULL DEFAULT 0,
  banned boolean NOT NULL DEFAULT false,
  pubkey bytea,
  subject bytea,
  hold_reason text,
  -- By the name of the store: counts before, rows that went, counts after, what failed and why, what is kept and until when.
  counted jsonb NOT NULL DEFAULT '{}',
  deleted jsonb NOT NULL DEFAULT '{}',
  verified jsonb NOT NULL DEFAULT '{}',
  failures jsonb NOT NULL DEFAULT '{}',
  kept jsonb NOT NULL DEFAULT '{}',
  -- Stores that this pass has gone through.
  done text[] NOT NULL DEFAULT '{}',
  CHECK (type = 'community' OR pubkey IS NOT NULL OR stage IN ('completed', 'cancelled'))
);
CREATE UNIQUE INDEX erasures_open_member ON erasures (community, pubkey)
  WHERE type = 'member' AND stage NOT IN ('completed', 'cancelled');
CREATE UNIQUE INDEX erasures_open_community ON erasures (community)
  WHERE type = 'community' AND stage NOT IN ('completed', 'cancelled');
CREATE INDEX erasures_open ON erasures (updated_at) WHERE stage NOT IN ('completed', 'cancelled');
CREATE INDEX erasures_fenced ON erasures (community, pubkey) WHERE stage IN ('fenced', 'counted', 'deleting', 'verifying');
CREATE INDEX erasures_newest ON erasures (requested_at, erasure_id);
CREATE INDEX erasures_subject ON erasures (community, subject) WHERE subject IS NOT NULL;

-- What goes on refusing events of the erased, and gift wraps to them, without naming anybody.
CREATE TABLE erasure_marks (
  community integer NOT NULL,
  until bigint NOT NULL,
  erased_at bigint NOT NULL,
  banned boolean NOT NULL DEFAULT false,
  subject bytea NOT NULL,
  PRIMARY KEY (community, subject)
);

-- Instances that lack the key of those hashes ask for it here; the answer is sealed for whoever asked.
CREATE TABLE subject_key_requests (
  request_id uuid PRIMARY KEY,
  requested_at bigint NOT NULL,
  asked_with bytea NOT NULL,
  sealed bytea
);

-- Signed events, each with the id of the one before it. `event` is the text as it was signed.
CREATE TABLE erasure_certificates (
  position bigint PRIMARY KEY,
  at bigint NOT NULL,
  erasure_id uuid NOT NULL UNIQUE,
  certificate_id bytea NOT NULL UNIQUE,
  previous bytea,
  event text NOT NULL
);

-- Something of the erased was found again.
CREATE TABLE erasure_alarms (
  community integer NOT NULL,
  at bigint NOT NULL,
  seen_at bigint NOT NULL,
  resolved_at bigint,
  found bigint NOT NULL,
  store text NOT NULL,
  subject bytea NOT NULL,
  PRIMARY KEY (community, subject, store)
);

-- A member who is being erased is hidden as one who asked to vanish is, without a request of theirs.
ALTER TABLE vanish_marks ALTER COLUMN request DROP NOT NULL, DROP COLUMN progress;

-- A row whose event was erased, after everybody has read it: its number stays, and nothing else.
ALTER TABLE events_outbox DROP CONSTRAINT events_outbox_op_check,
  ADD CONSTRAINT events_outbox_op_check CHECK (op IN ('upsert', 'delete', 'scrubbed'));

-- A community that is being erased: nothing reaches it any more.
ALTER TABLE communities ADD COLUMN closed_at bigint;

-- What names a person is found by the person. The conditions hold for every row: they keep the lane's lookups, which do not name them, on the
-- primary keys, also while a table is new and the planner knows nothing of it.
CREATE INDEX event_dedupe_author ON event_dedupe (community, author) WHERE first_seen_at >= 0;
CREATE INDEX event_heads_pubkey ON event_heads (community, pubkey) WHERE created_at >= 0;
CREATE INDEX deletion_tombstones_author ON deletion_tombstones (community, author) WHERE requested_at >= 0;
CREATE INDEX events_outbox_author ON events_outbox (community, author) WHERE ingested_at >= 0;
CREATE INDEX moderation_actions_actor ON moderation_actions (community, actor) WHERE actor IS NOT NULL;
CREATE INDEX topic_subscription_requests_reviewer ON topic_subscription_requests (community, reviewed_by)
  WHERE reviewed_by IS NOT NULL;
-- Ids of what was erased are forgotten with the erasure.
CREATE INDEX event_dedupe_erased ON event_dedupe (community) WHERE hidden IN (6, 9);
CREATE INDEX audit_log_actor ON audit_log (community, actor) WHERE actor IS NOT NULL;
CREATE INDEX audit_log_target ON audit_log (community, target);
CREATE INDEX plan_events_pubkey ON plan_events (community, pubkey);
CREATE INDEX revoked_tokens_pubkey ON revoked_tokens (community, pubkey);

-- Nothing of one who is being erased is written any more, whoever writes it: so the count comes to zero.
CREATE FUNCTION is_fenced(of_community integer, of_pubkey bytea) RETURNS boolean LANGUAGE sql STABLE AS $$
  SELECT EXISTS (SELECT 1 FROM erasures e WHERE e.community = of_community AND e.pubkey = of_pubkey AND e.type = 'member'
    AND e.cause <> 'vanish' AND e.stage IN ('fenced', 'counted', 'deleting', 'verifying'))
$$;
CREATE FUNCTION refuse_erased() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF is_fenced(NEW.community, NEW.pubkey) THEN
    RAISE EXCEPTION 'this key is being erased: nothing of it is taken in until that is done' USING ERRCODE = 'MN001';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER refuse_erased BEFORE INSERT ON members FOR EACH ROW EXECUTE FUNCTION refuse_erased();
CREATE TRIGGER refuse_erased BEFORE INSERT ON operators FOR EACH ROW EXECUTE FUNCTION refuse_erased();
CREATE TRIGGER refuse_erased BEFORE INSERT ON blocked_authors FOR EACH ROW EXECUTE FUNCTION refuse_erased();
CREATE TRIGGER refuse_erased BEFORE INSERT ON plan_events FOR EACH ROW EXECUTE FUNCTION refuse_erased();
CREATE TRIGGER refuse_erased BEFORE INSERT ON usage_counters FOR EACH ROW EXECUTE FUNCTION refuse_erased();
CREATE TRIGGER refuse_erased BEFORE INSERT ON usage_requests FOR EACH ROW EXECUTE FUNCTION refuse_erased();
CREATE TRIGGER refuse_erased BEFORE INSERT ON revoked_tokens FOR EACH ROW EXECUTE FUNCTION refuse_erased();
CREATE TRIGGER refuse_erased BEFORE INSERT ON reports FOR EACH ROW EXECUTE FUNCTION refuse_erased();
-- What another says in an event is theirs, and is taken in; only nothing is noted of it about one who is being erased.
CREATE FUNCTION skip_erased() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NOT is_fenced(NEW.community, NEW.target_pubkey) THEN
    RETURN NEW;
  ELSIF NEW.event_id IS NULL THEN
    RAISE EXCEPTION 'the key that is reported is being erased' USING ERRCODE = 'MN001';
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER skip_erased BEFORE INSERT ON reports
  FOR EACH ROW WHEN (NEW.target_pubkey IS NOT NULL) EXECUTE FUNCTION skip_erased();

-- Sessions of operators in a browser. The token itself is with the browser only.
CREATE TABLE operator_sessions (
  community integer NOT NULL,
  created_at bigint NOT NULL,
  expires_at bigint NOT NULL,
  pubkey bytea NOT NULL,
  token_hash bytea NOT NULL,
  PRIMARY KEY (community, pubkey, token_hash)
);
CREATE INDEX operator_sessions_expiry ON operator_sessions (expires_at);
CREATE TABLE csrf_tokens (
  community integer NOT NULL,
  created_at bigint NOT NULL,
  expires_at bigint NOT NULL,
  pubkey bytea NOT NULL,
  -- Of the session that it belongs to.
  token_hash bytea NOT NULL,
  csrf_hash bytea NOT NULL,
  PRIMARY KEY (community, pubkey, token_hash)
);
CREATE INDEX csrf_tokens_expiry ON csrf_tokens (expires_at);

-- The newest first by time, as the other store of the audit log has it. With DynamoDB these rows are on their way there.
CREATE INDEX audit_log_time ON audit_log (community, at DESC, position DESC);
DROP INDEX audit_log_newest;
