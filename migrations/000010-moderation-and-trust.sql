-- Moderation and trust: the node's keys, rules, cases, what was done, labels; reports and contacts as grounds, and scores.

-- Public halves of the keys that the node signs with. The secret halves are in a file outside the database, so that a dump of it
-- can sign nothing. The current one of a purpose has no time of retirement.
CREATE TABLE node_keys (
  community integer NOT NULL REFERENCES communities (id),
  purpose text NOT NULL,
  created_at bigint NOT NULL,
  retired_at bigint,
  pubkey bytea NOT NULL,
  PRIMARY KEY (community, pubkey)
);
CREATE UNIQUE INDEX node_keys_current ON node_keys (community, purpose) WHERE retired_at IS NULL;

-- What a moderator removed can be put back for some time.
CREATE INDEX events_removed ON events (hidden_at) WHERE hidden = 8;

-- `conditions`: kinds, authors, topics, words, patterns, tags, rate; all that are given must hold. The highest priority is asked
-- first. A rule is enabled only after it was tried against what is there, in its present version.
CREATE TABLE moderation_rules (
  rule_id uuid PRIMARY KEY,
  community integer NOT NULL REFERENCES communities (id),
  name text NOT NULL,
  priority integer NOT NULL DEFAULT 0,
  enabled boolean NOT NULL DEFAULT false,
  -- It judges what came in since.
  enabled_at bigint,
  conditions jsonb NOT NULL,
  action text NOT NULL CHECK (action IN ('label', 'hold', 'hide', 'refuse')),
  label jsonb,
  version integer NOT NULL DEFAULT 1,
  tried_version integer,
  created_at bigint NOT NULL,
  updated_at bigint NOT NULL,
  UNIQUE (community, name)
);

-- Events that met a rule with a rate, apart from its rate: counted by author and time. A row for each, so that an event which comes
-- again counts once.
CREATE TABLE moderation_rates (
  community integer NOT NULL,
  rule_id uuid NOT NULL REFERENCES moderation_rules (rule_id) ON DELETE CASCADE,
  at bigint NOT NULL,
  seq bigint NOT NULL,
  pubkey bytea NOT NULL,
  event_id bytea NOT NULL,
  PRIMARY KEY (rule_id, event_id)
);
CREATE INDEX moderation_rates_author ON moderation_rates (rule_id, pubkey, at);
CREATE INDEX moderation_rates_at ON moderation_rates (at);
CREATE INDEX moderation_rates_person ON moderation_rates (community, pubkey);

-- Something that a moderator should look at: an event or a person. Reports and rules about the same target share one open case.
CREATE TABLE moderation_cases (
  case_id uuid PRIMARY KEY,
  community integer NOT NULL REFERENCES communities (id),
  status text NOT NULL CHECK (status IN ('open', 'held', 'resolved', 'dismissed')),
  opened_at bigint NOT NULL,
  updated_at bigint NOT NULL,
  closed_at bigint,
  rule_id uuid REFERENCES moderation_rules (rule_id) ON DELETE SET NULL,
  target_event bytea,
  target_pubkey bytea NOT NULL,
  reason text NOT NULL
);
CREATE UNIQUE INDEX moderation_cases_open_event ON moderation_cases (community, target_event)
  WHERE status IN ('open', 'held') AND target_event IS NOT NULL;
CREATE UNIQUE INDEX moderation_cases_open_person ON moderation_cases (community, target_pubkey)
  WHERE status IN ('open', 'held') AND target_event IS NULL;
CREATE INDEX moderation_cases_list ON moderation_cases (community, status, opened_at, case_id);
CREATE INDEX moderation_cases_newest ON moderation_cases (community, opened_at, case_id);
CREATE INDEX moderation_cases_person ON moderation_cases (community, target_pubkey);

-- The case that a report has become part of.
ALTER TABLE reports ADD COLUMN case_id uuid REFERENCES moderation_cases (case_id) ON DELETE SET NULL;
CREATE INDEX reports_case ON reports (case_id) WHERE case_id IS NOT NULL;

-- What was done, by a rule or by a moderator. One that changes the view is an order until `done_at`: it is carried out in the lane, by
-- whoever comes first, and what became of it is its outcome.
CREATE TABLE moderation_actions (
  action_id uuid PRIMARY KEY,
  position bigint GENERATED ALWAYS AS IDENTITY,
  community integer NOT NULL REFERENCES communities (id),
  case_id uuid REFERENCES moderation_cases (case_id),
  rule_id uuid REFERENCES moderation_rules (rule_id) ON DELETE SET NULL,
  action text NOT NULL CHECK (action IN ('label', 'unlabel', 'remove', 'restore', 'ban', 'unban', 'dismiss', 'reopen')),
  at bigint NOT NULL,
  done_at bigint,
  outcome text,
  actor bytea,
  target_event bytea,
  target_pubkey bytea,
  note text
);
CREATE INDEX moderation_actions_case ON moderation_actions (case_id, position);
CREATE INDEX moderation_actions_due ON moderation_actions (position) WHERE done_at IS NULL;
CREATE INDEX moderation_actions_event ON moderation_actions (community, target_event);
CREATE INDEX moderation_actions_person ON moderation_actions (community, target_pubkey);
-- A rule acts on an event once, however often it comes.
CREATE UNIQUE INDEX moderation_actions_rule ON moderation_actions (rule_id, target_event) WHERE rule_id IS NOT NULL;

-- Labels of the node (NIP-32 and kind 39006), on an event or on a person, with the topics of the event. They are signed and published by
-- a worker, and so is what withdraws them. `signed_at` and `lapses_at` in seconds, as Nostr has them.
CREATE TABLE labels (
  label_id uuid PRIMARY KEY,
  community integer NOT NULL REFERENCES communities (id),
  created_at bigint NOT NULL,
  signed_at bigint NOT NULL,
  lapses_at bigint NOT NULL,
  published_at bigint,
  withdrawn_at bigint,
  withdrawal_published_at bigint,
  confidence real NOT NULL CHECK (confidence > 0 AND confidence <= 1),
  label text NOT NULL CHECK (label IN ('spam', 'illegal', 'harassment', 'impersonation', 'nsfw', 'safe')),
  case_id uuid REFERENCES moderation_cases (case_id),
  rule_id uuid REFERENCES moderation_rules (rule_id) ON DELETE SET NULL,
  target_event bytea,
  target_pubkey bytea NOT NULL,
  label_event bytea,
  label_address_event bytea,
  policy text NOT NULL DEFAULT '',
  topics text[] NOT NULL DEFAULT '{}'
);
CREATE INDEX labels_event ON labels (community, target_event, created_at);
CREATE INDEX labels_person ON labels (community, target_pubkey, created_at);
CREATE INDEX labels_unpublished ON labels (created_at, label_id)
  WHERE published_at IS NULL OR (withdrawn_at IS NOT NULL AND withdrawal_published_at IS NULL);

-- Grounds of trust, primary data. A contact: an event that anyone may read and that names somebody (`p`); it stays when the event goes,
-- and is then not shown. A report: with the weight that its reporter had when it came. Times in milliseconds.
CREATE TABLE trust_contacts (
  community integer NOT NULL,
  kind integer NOT NULL,
  at bigint NOT NULL,
  gone boolean NOT NULL DEFAULT false,
  author bytea NOT NULL,
  named bytea NOT NULL,
  event_id bytea NOT NULL,
  PRIMARY KEY (community, event_id, named),
  CHECK (author <> named)
);
CREATE INDEX trust_contacts_author ON trust_contacts (community, author, at);
CREATE INDEX trust_contacts_named ON trust_contacts (community, named, at);
CREATE INDEX trust_contacts_at ON trust_contacts (community, at);

-- `source`: the event of kind 1984, or the UUID of a report over HTTP. Without an event that is reported `target_event` is empty.
CREATE TABLE trust_reports (
  community integer NOT NULL,
  at bigint NOT NULL,
  weight double precision NOT NULL CHECK (weight >= 0 AND weight <= 1),
  reporter bytea NOT NULL,
  subject bytea NOT NULL,
  target_event bytea NOT NULL,
  source bytea NOT NULL,
  reason text NOT NULL,
  PRIMARY KEY (community, source, subject, target_event),
  CHECK (reporter <> subject)
);
CREATE INDEX trust_reports_subject ON trust_reports (community, subject, at);
CREATE INDEX trust_reports_reporter ON trust_reports (community, reporter, at);
CREATE INDEX trust_reports_at ON trust_reports (community, at);

-- When a key was first seen here, for its standing.
CREATE TABLE trust_authors (
  community integer NOT NULL,
  first_seen_at bigint NOT NULL,
  pubkey bytea NOT NULL,
  PRIMARY KEY (community, pubkey)
);

-- Derived: the scores as they were last computed, and what was last asserted of them. `changes_at`: when the next ground leaves the window.
-- `publish_at`: from when on an assertion is wanted. `asserted_at` in seconds, taken before the assertion is made, so that none is
-- older than the one before it.
CREATE TABLE trust_scores (
  community integer NOT NULL,
  claim text NOT NULL CHECK (claim IN ('report-based', 'communication-density')),
  score double precision NOT NULL,
  computed_at bigint NOT NULL,
  changes_at bigint,
  publish_at bigint,
  asserted_at bigint,
  rank smallint NOT NULL,
  asserted_rank smallint,
  grounded boolean NOT NULL,
  subject bytea NOT NULL,
  assertion bytea,
  asserted_by bytea,
  PRIMARY KEY (community, subject, claim)
);
CREATE INDEX trust_scores_changes ON trust_scores (changes_at) WHERE changes_at IS NOT NULL;
CREATE INDEX trust_scores_publish ON trust_scores (publish_at) WHERE publish_at IS NOT NULL;
CREATE INDEX trust_scores_idle ON trust_scores (community, computed_at) WHERE NOT grounded;

-- Whose scores have to be computed again. Written in the transaction of the ground.
CREATE TABLE trust_due (
  community integer NOT NULL,
  claim text NOT NULL,
  due_at bigint NOT NULL,
  subject bytea NOT NULL,
  PRIMARY KEY (community, subject, claim)
);
CREATE INDEX trust_due_at ON trust_due (due_at);

-- A label is a ground, whoever writes it.
CREATE FUNCTION trust_label_changed() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  changed labels := CASE WHEN TG_OP = 'DELETE' THEN OLD ELSE NEW END;
BEGIN
  INSERT INTO trust_due (community, claim, due_at, subject)
  VALUES (changed.community, 'report-based', changed.created_at, changed.target_pubkey) ON CONFLICT DO NOTHING;
  RETURN NULL;
END $$;
CREATE TRIGGER trust_label_written AFTER INSERT OR DELETE ON labels
  FOR EACH ROW EXECUTE FUNCTION trust_label_changed();
CREATE TRIGGER trust_label_changed AFTER UPDATE OF created_at, lapses_at, withdrawn_at, label, target_pubkey ON labels
  FOR EACH ROW EXECUTE FUNCTION trust_label_changed();

-- By which rules contacts were taken in: which kinds, and which topics were public.
CREATE TABLE trust_rules (
  generation integer NOT NULL,
  community integer NOT NULL,
  rules jsonb NOT NULL,
  PRIMARY KEY (generation, community)
);

-- By which rules scores are computed. After a change everybody's are computed anew, in the order of the keys: up to `after` it is done;
-- without one all of it is. `passed`: how far the daily pass over all scores has come, while it is under way.
CREATE TABLE trust_sweeps (
  community integer PRIMARY KEY,
  rules jsonb NOT NULL,
  after bytea,
  passed bytea
);
