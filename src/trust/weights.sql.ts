/**
 * The sums of the grounds of trust, computed from them only (I9): the reports and labels about a person, and
 * their ties with people of standing.
 */

import { type AccessRules, publicTopicsOf } from '../events/rules/access.js';
import { DAY_MS } from '../events/rules/retention.js';
import { hexArray, int4Array, textArray } from '../postgres/binary.js';
import { bytes, type Db } from '../postgres/values.js';
import {
  ESTABLISHED_DAYS,
  foundedUntil,
  TIE_FULL,
  type TrustSettings,
  windowMs,
  windowStart,
} from './rules.js';

export interface Grounds {
  /** Of reports, one per reporter; or of ties, at most one per person. */
  readonly weight: number;
  readonly labels: number;
  /** Something counts now. */
  readonly grounded: boolean;
  /** The person has posted here. */
  readonly seen: boolean;
  /** When the weight changes if no grounds are added. */
  readonly changesAt: number | null;
}

type GroundsRow = Grounds & { readonly subject: string };

const bySubject = (rows: readonly GroundsRow[]) => new Map(rows.map((row) => [row.subject, row]));
const SEEN = 'EXISTS (SELECT 1 FROM trust_authors a WHERE a.community = $1 AND a.pubkey = s.subject) AS seen';

/** Whether this person of community `$1` is the author of a contact or named in one. */
export const hasContacts = (subject: string) => `EXISTS (SELECT 1 FROM trust_people p
  WHERE p.community = $1::int AND p.pubkey = ${subject}
    AND (EXISTS (SELECT 1 FROM trust_contacts c WHERE c.author = p.id)
      OR EXISTS (SELECT 1 FROM trust_contacts c WHERE c.named = p.id)))`;

/**
 * A label on an event counts only when anyone may read the event, by the same rule as in search: what only
 * members of a topic can see must not show in a public number. A label on the person always counts. Uses
 * three parameters, starting with number `first`.
 */
export const isPublicLabel = (
  first: number,
) => `(target_event IS NULL OR $${first}::text IS NULL OR topics && $${first + 1}::text[]
  OR NOT EXISTS (SELECT 1 FROM unnest(topics) AS t (topic)
    WHERE starts_with(t.topic, $${first}::text) OR t.topic = ANY ($${first + 2}::text[])))`;

export function publicLabelValues(rules: AccessRules): unknown[] {
  const topics = publicTopicsOf(rules);
  return [topics?.prefix ?? null, textArray(topics?.public ?? []), textArray(topics?.plain ?? [])];
}

/** Each reporter counts once, with the greatest weight of their reports. */
const RISKS_SQL = `
  SELECT encode(s.subject, 'hex') AS subject, coalesce(r.weight, 0)::float8 AS weight, l.count AS labels,
    ${SEEN}, coalesce(r.weight, 0) > 0 OR l.count > 0 AS grounded,
    least(least(r.oldest, l.oldest) + $4::bigint, l.lapses) AS "changesAt"
  FROM unnest($2::bytea[]) AS s (subject)
  CROSS JOIN LATERAL (
    SELECT sum(o.weight) AS weight, min(o.oldest) AS oldest
    FROM (SELECT max(weight)::numeric AS weight, min(at) AS oldest FROM trust_reports
      WHERE community = $1 AND subject = s.subject AND at > $3 AND weight > 0 GROUP BY reporter) o) r
  CROSS JOIN LATERAL (
    SELECT count(*) AS count, min(created_at) AS oldest, min(lapses_at) * 1000 AS lapses FROM labels
    WHERE community = $1 AND target_pubkey = s.subject AND created_at > $3 AND label <> 'safe'
      AND withdrawn_at IS NULL AND lapses_at * 1000 > $5 AND ${isPublicLabel(6)}) l`;

export async function gatherRisks(
  db: Db,
  community: number,
  subjects: readonly string[],
  rules: AccessRules,
  now: number,
): Promise<Map<string, Grounds>> {
  const { settings } = rules;
  const times = [windowStart(now, settings), windowMs(settings), now];
  const { rows } = await db.query<GroundsRow>({
    name: 'trust-risks',
    text: RISKS_SQL,
    values: [community, hexArray(subjects), ...times, ...publicLabelValues(rules)],
  });
  return bySubject(rows);
}

/**
 * At most this many contacts of one person are read, beginning with those whom the community has known
 * longest, and the newest of one person with another.
 */
export const CONTACTS_OF_ONE = 10_000;
const CONTACTS_OF_TWO = 1_000;
/** `stands_from` of somebody whose standing an operator took away. */
export const NEVER = Number.MAX_SAFE_INTEGER;

/**
 * The time from which the ties of author `a` count for others; null: they do not. `founded` is the parameter
 * with the end of the founding days.
 */
export const countsFrom = (founded: string) => `coalesce(a.stands_from,
  CASE WHEN a.first_seen_at <= ${founded} THEN a.first_seen_at + ${ESTABLISHED_DAYS * DAY_MS} END)`;

/**
 * The greatest contact of each day, and the time of the oldest. `columns` are grouped by in addition to the
 * day.
 */
const byDay = (columns: string, contacts: string) => `
  SELECT ${columns} max(round(w.weight / c.shared, 3)) AS weight, min(c.at) AS oldest
  FROM (${contacts}) c
  JOIN unnest($5::int[], $6::numeric[]) AS w (kind, weight) ON w.kind = c.kind
  GROUP BY ${columns} c.at / ${DAY_MS}`;
const COUNTS = 'at > $3 AND kind = ANY ($5)';
const SENT = `SELECT * FROM trust_contacts WHERE author = me.id AND ${COUNTS}
  ORDER BY author, named, at LIMIT ${CONTACTS_OF_ONE}`;
const ANSWERED = `SELECT * FROM trust_contacts WHERE author = d.named AND named = me.id AND ${COUNTS}
  ORDER BY at DESC LIMIT ${CONTACTS_OF_TWO}`;

/** Those whom person `me` named and who named `me`, with both directions. */
const PARTNERS = `
      SELECT n.pubkey, d.given, i.got, least(d.oldest, i.oldest) AS oldest,
        ${countsFrom('$8::bigint')} AS counts_from
      FROM (SELECT named, sum(weight) AS given, min(oldest) AS oldest
        FROM (${byDay('c.named,', SENT)}) o GROUP BY named) d
      CROSS JOIN LATERAL (
        SELECT sum(weight) AS got, min(oldest) AS oldest FROM (${byDay('', ANSWERED)}) o) i
      JOIN trust_people n ON n.id = d.named
      JOIN trust_authors a ON a.community = $1 AND a.pubkey = n.pubkey
      WHERE i.got IS NOT NULL`;
const strengthOf = (of: string) => `round(least(1, least(${of}.given, ${of}.got) / ${TIE_FULL}), 3)`;

/**
 * Ties with people of standing: those whom the person named and who named the person. The query starts from
 * what the person wrote, because the number of events that name somebody is unlimited. The sum changes when
 * the oldest contact leaves the window, or when somebody gains standing.
 */
const TIES_SQL = `
  SELECT encode(s.subject, 'hex') AS subject, coalesce(t.ties, 0)::float8 AS weight, 0 AS labels, ${SEEN},
    coalesce(t.ties, 0) > 0 AS grounded, t.changes AS "changesAt"
  FROM unnest($2::bytea[]) AS s (subject)
  LEFT JOIN trust_people me ON me.community = $1 AND me.pubkey = s.subject
  CROSS JOIN LATERAL (
    SELECT sum(${strengthOf('p')})
        FILTER (WHERE p.counts_from <= $7::bigint) AS ties,
      least(min(p.oldest) + $4::bigint,
        min(p.counts_from) FILTER (WHERE p.counts_from > $7::bigint)) AS changes
    FROM (${PARTNERS}) p
    WHERE p.counts_from < ${NEVER}) t`;

export async function gatherTies(
  db: Db,
  community: number,
  subjects: readonly string[],
  { settings }: Pick<AccessRules, 'settings'>,
  now: number,
): Promise<Map<string, Grounds>> {
  const weights = Object.entries(settings['trust.kindWeights']);
  const { rows } = await db.query<GroundsRow>({
    name: 'trust-ties',
    text: TIES_SQL,
    values: [
      community,
      hexArray(subjects),
      windowStart(now, settings),
      windowMs(settings),
      int4Array(weights.map(([kind]) => Number(kind))),
      weights.map(([, weight]) => String(weight)),
      now,
      await readFounded(db, community, settings),
    ],
  });
  return bySubject(rows);
}

export interface Tie {
  readonly pubkey: string;
  /** The weights of the two directions, and what they are together, 0 to 1. */
  readonly given: number;
  readonly got: number;
  readonly strength: number;
  /** Since when it counts; null: the other person has no standing. */
  readonly countsFrom: number | null;
}

/** The ties of one person: those that count first, then the strongest. */
export async function listTies(
  db: Db,
  { community, subject }: { readonly community: number; readonly subject: string },
  { settings }: Pick<AccessRules, 'settings'>,
  limit: number,
  now: number,
): Promise<Tie[]> {
  const weights = Object.entries(settings['trust.kindWeights']);
  const { rows } = await db.query<Tie>({
    name: 'trust-tie-list',
    text: `SELECT encode(p.pubkey, 'hex') AS pubkey, p.given::float8, p.got::float8,
        ${strengthOf('p')}::float8 AS strength, nullif(p.counts_from, ${NEVER}) AS "countsFrom"
      FROM trust_people me CROSS JOIN LATERAL (${PARTNERS}) p
      WHERE me.community = $1 AND me.pubkey = $2
      ORDER BY coalesce(p.counts_from <= $7::bigint, false) DESC, strength DESC, p.pubkey LIMIT $4::bigint`,
    values: [
      community,
      bytes(subject),
      windowStart(now, settings),
      limit,
      int4Array(weights.map(([kind]) => Number(kind))),
      weights.map(([, weight]) => String(weight)),
      now,
      await readFounded(db, community, settings),
    ],
  });
  return rows;
}

/** Keys that were first seen up to this time belong to founders. */
export async function readFounded(db: Db, community: number, settings: TrustSettings): Promise<number> {
  const { rows } = await db.query<{ at: number }>({
    name: 'trust-founded',
    text: 'SELECT created_at AS at FROM communities WHERE id = $1',
    values: [community],
  });
  return foundedUntil(rows[0]?.at ?? 0, settings);
}

export const GATHER = { 'report-based': gatherRisks, 'communication-density': gatherTies } as const;
