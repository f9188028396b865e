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

-- The topics that a payload names, as `core/topic.ts` reads them, and those that it is bound to. A value that needs an escape is left
-- out: no filter of cases can ask for it.
CREATE FUNCTION topics_of_event(asked_community integer, asked_event bytea) RETURNS text[] LANGUAGE sql STABLE AS $$
  SELECT coalesce(array_agg(DISTINCT t.topic), '{}') FROM event_dedupe d
  JOIN events e ON e.keep = d.keep AND e.ingested_at = d.ingested_at AND e.seq = d.seq
  CROSS JOIN LATERAL (SELECT found[1] AS topic FROM regexp_matches(e.payload, '\["t","([^"\\]+)"', 'g') AS found
    UNION ALL SELECT unnest(e.bound)) t
  WHERE d.community = asked_community AND d.event_id = asked_event
$$;

UPDATE moderation_cases SET topics = topics_of_event(community, target_event) WHERE target_event IS NOT NULL;
