-- Moderators at work: cases are found by topic, author, rule and age.

-- Topics of the event as it was when the case was opened; none for a case about a person.
ALTER TABLE moderation_cases ADD COLUMN topics text[] NOT NULL DEFAULT '{}';
CREATE INDEX moderation_cases_topics ON moderation_cases USING gin (topics);
CREATE INDEX moderation_cases_author ON moderation_cases (community, target_pubkey, opened_at, case_id);
DROP INDEX moderation_cases_person;
CREATE INDEX moderation_cases_rule ON moderation_cases (community, rule_id, opened_at, case_id) WHERE rule_id IS NOT NULL;
-- Which case has a report of this reason.
CREATE INDEX reports_case_reason ON reports (case_id, reason) WHERE case_id IS NOT NULL;
DROP INDEX reports_case;

-- The topics that a payload names, as `topics/rules.ts` reads them, and those that it is bound to. A value that needs an escape is left
-- out: no filter of cases can ask for it.
CREATE FUNCTION topics_of_event(asked_community integer, asked_event bytea) RETURNS text[] LANGUAGE sql STABLE AS $$
  SELECT coalesce(array_agg(DISTINCT t.topic), '{}') FROM event_dedupe d
  JOIN events e ON e.keep = d.keep AND e.ingested_at = d.ingested_at AND e.seq = d.seq
  CROSS JOIN LATERAL (SELECT found[1] AS topic FROM regexp_matches(e.payload, '\["t","([^"\\]+)"', 'g') AS found
    UNION ALL SELECT unnest(e.bound)) t
  WHERE d.community = asked_community AND d.event_id = asked_event
$$;

UPDATE moderation_cases SET topics = topics_of_event(community, target_event) WHERE target_event IS NOT NULL;

-- What moderators do to many events as one: what is stored and meets the conditions, the newest first, down to the cursor. It is carried out in
-- portions by a worker, and can be undone as one: then from `undo_after` to `undo_until`, by the position of its actions.
CREATE TABLE moderation_batches (
  batch_id uuid PRIMARY KEY,
  community integer NOT NULL REFERENCES communities (id),
  status text NOT NULL CHECK (status IN ('running', 'done', 'undoing', 'undone')),
  action text NOT NULL CHECK (action IN ('remove', 'hold', 'label', 'release')),
  created_at bigint NOT NULL,
  updated_at bigint NOT NULL,
  since bigint,
  until bigint,
  cursor_at bigint NOT NULL,
  cursor_id bytea NOT NULL DEFAULT '',
  looked_at bigint NOT NULL DEFAULT 0,
  matched bigint NOT NULL DEFAULT 0,
  undo_after bigint,
  undo_until bigint,
  stopped_early boolean NOT NULL DEFAULT false,
  -- Of a rule: what a moderator has restored is not judged again.
  by_rule boolean NOT NULL,
  conditions jsonb NOT NULL,
  label jsonb,
  actor bytea,
  undone_by bytea,
  note text NOT NULL
);
CREATE INDEX moderation_batches_newest ON moderation_batches (community, created_at, batch_id);
CREATE INDEX moderation_batches_open ON moderation_batches (updated_at) WHERE status IN ('running', 'undoing');

ALTER TABLE moderation_actions ADD COLUMN batch_id uuid REFERENCES moderation_batches (batch_id) ON DELETE SET NULL;
CREATE INDEX moderation_actions_batch ON moderation_actions (batch_id, position) WHERE batch_id IS NOT NULL;
ALTER TABLE labels ADD COLUMN batch_id uuid REFERENCES moderation_batches (batch_id) ON DELETE SET NULL;
CREATE INDEX labels_batch ON labels (batch_id) WHERE batch_id IS NOT NULL;
-- What a rule holds, and its labels, when it is deleted.
CREATE INDEX labels_rule ON labels (rule_id) WHERE rule_id IS NOT NULL;

-- The appeal of the person whom a case is about, against one action: the last one, as long as the case is there.
ALTER TABLE moderation_cases ADD COLUMN appeal text, ADD COLUMN appealed_at bigint, ADD COLUMN appeal_of uuid;
CREATE INDEX moderation_cases_appealed ON moderation_cases (community, opened_at, case_id)
  WHERE appealed_at IS NOT NULL AND status IN ('open', 'held');
CREATE INDEX moderation_cases_appeals ON moderation_cases (community, target_pubkey, appealed_at) WHERE appealed_at IS NOT NULL;
