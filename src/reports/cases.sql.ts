/** Turns reports into cases: each opens one, or joins the open one about the same target. */
import type { ClientBase } from 'pg';
import { factKey } from '../events/rules/facts.js';
import type { EventRef } from '../events/store.js';
import type { StoredEvents } from '../events/stored-events.js';
import { OPEN_EVENT, OPEN_PERSON, topicsOfEvents } from '../moderation/cases.sql.js';
import { hexArray, int4Array, textArray } from '../postgres/binary.js';

/**
 * Each report without a case opens one or joins the open one. Reports about events that this node never
 * received are ignored. It is one statement for any number of reports, so that a flood of reports costs the
 * consumer little. The first report about a target gives the reason of its case.
 */
const caseSql = (source: string, { author, topics }: ReportedSql) => `
  WITH found AS (
    SELECT asked.place, r.report_id, r.community, r.target_event, r.reason,
      CASE WHEN r.target_event IS NULL THEN r.target_pubkey ELSE (${author}) END AS target_pubkey
    FROM ${source} WHERE r.case_id IS NULL
  ), of_events AS (
    INSERT INTO moderation_cases AS c (case_id, community, status, opened_at, updated_at, target_event,
      target_pubkey, reason, topics)
    SELECT DISTINCT ON (community, target_event) gen_random_uuid(), community, 'open', $1::bigint, $1::bigint,
      target_event, target_pubkey, 'reported: ' || reason, ${topics}
    FROM found WHERE target_event IS NOT NULL AND target_pubkey IS NOT NULL
    ORDER BY community, target_event, place, report_id
    ON CONFLICT ${OPEN_EVENT} DO UPDATE SET updated_at = excluded.updated_at
    RETURNING c.case_id, c.community, c.target_event, c.target_pubkey
  ), of_people AS (
    INSERT INTO moderation_cases AS c (case_id, community, status, opened_at, updated_at,
      target_pubkey, reason)
    SELECT DISTINCT ON (community, target_pubkey) gen_random_uuid(), community, 'open', $1::bigint,
      $1::bigint, target_pubkey, 'reported: ' || reason
    FROM found WHERE target_event IS NULL
    ORDER BY community, target_pubkey, place, report_id
    ON CONFLICT ${OPEN_PERSON} DO UPDATE SET updated_at = excluded.updated_at
    RETURNING c.case_id, c.community, c.target_event, c.target_pubkey
  )
  UPDATE reports r SET case_id = o.case_id
  FROM found f JOIN (SELECT * FROM of_events UNION ALL SELECT * FROM of_people) o ON o.community = f.community
    AND o.target_event IS NOT DISTINCT FROM f.target_event
    AND (f.target_event IS NOT NULL OR o.target_pubkey = f.target_pubkey)
  WHERE r.report_id = f.report_id`;

const OF_EVENTS = `unnest($2::int[], $3::bytea[]) WITH ORDINALITY AS asked (community, event_id, place)
    JOIN reports r ON r.community = asked.community AND r.event_id = asked.event_id`;
const OF_REPORT = `(SELECT $2::int AS community, $3::uuid AS report_id, 1 AS place) asked
    JOIN reports r ON r.community = asked.community AND r.report_id = asked.report_id`;

/** Expressions for the author of a reported event, in `r`, and for its topics. */
interface ReportedSql {
  readonly author: string;
  readonly topics: string;
}
const IN_DATABASE: ReportedSql = {
  author: `SELECT d.author FROM event_dedupe d
          WHERE d.community = r.community AND d.event_id = r.target_event`,
  topics: 'topics_of_event(community, target_event)',
};
/** Given as lists, which another store was asked for. */
const GIVEN = `unnest($4::int[], $5::bytea[], $6::bytea[], $7::text[])
  AS known (community, event_id, author, topics)`;
const ELSEWHERE: ReportedSql = {
  author: `SELECT known.author FROM ${GIVEN}
          WHERE known.community = r.community AND known.event_id = r.target_event`,
  topics: `coalesce((SELECT string_to_array(known.topics, E'\\n') FROM ${GIVEN}
          WHERE known.community = found.community AND known.event_id = found.target_event), '{}')`,
};

/** For reports that arrived as events. */
export function caseReports(
  tx: ClientBase,
  events: StoredEvents,
  reports: readonly EventRef[],
  now: number,
): Promise<void> {
  const communities = int4Array(reports.map(({ community }) => community));
  const ids = hexArray(reports.map(({ id }) => id));
  return reports.length === 0
    ? Promise.resolve()
    : makeCases(tx, events, 'case-reports', [now, communities, ids]);
}

/** For a report that arrived over HTTP. */
export function caseReport(
  tx: ClientBase,
  events: StoredEvents,
  { community, reportId }: { readonly community: number; readonly reportId: string },
  now: number,
): Promise<void> {
  return makeCases(tx, events, 'case-report', [now, community, reportId]);
}

const SOURCES = { 'case-reports': OF_EVENTS, 'case-report': OF_REPORT } as const;

async function makeCases(
  tx: ClientBase,
  events: StoredEvents,
  name: keyof typeof SOURCES,
  values: readonly unknown[],
): Promise<void> {
  const source = SOURCES[name];
  if (events.inDatabase) {
    await tx.query({ name, text: caseSql(source, IN_DATABASE), values: [...values] });
    return;
  }
  const { rows: targets } = await tx.query<EventRef>(
    `SELECT DISTINCT r.community, encode(r.target_event, 'hex') AS id FROM ${source}
     WHERE r.case_id IS NULL AND r.target_event IS NOT NULL AND $1::bigint IS NOT NULL`,
    [...values],
  );
  const known = [...(await events.known(tx, targets))];
  const topics = await topicsOfEvents(tx, events, targets);
  const refOf = (key: string) => targets.find(({ community, id }) => factKey(community, id) === key)!;
  await tx.query(caseSql(source, ELSEWHERE), [
    ...values,
    int4Array(known.map(([key]) => refOf(key).community)),
    hexArray(known.map(([key]) => refOf(key).id)),
    hexArray(known.map(([, { author }]) => author)),
    textArray(known.map(([key]) => (topics.get(key) ?? []).join('\n'))),
  ]);
}
