/**
 * The grounds of trust, primary data of their own (I9): contacts, reports with the weight of their reporter, and when a key was first
 * seen. Whose score follows from what is written is marked as due in the same transaction. The same ground written again changes nothing:
 * a report keeps the weight that it had.
 */
import type { ClientBase, Pool } from 'pg';
import type { AccessRules } from '../core/access.js';
import type { Denial } from '../core/errors.js';
import type { Reported } from '../core/report.js';
import { isOldEnough, scoreOf, standingOf, windowStart } from '../core/trust.js';
import { hexArray, int2Array, int4Array, int8Array, textArray } from './binary.js';
import { bytes, type Db } from './config-change.js';
import { addReport, type NewReport, type Report } from './reports.js';
import { gatherRisks, gatherTies, isPublicLabel, publicLabelValues } from './trust-scores.js';

// ── Authors ───────────────────────────────────────────────────────────────────────────────────────────────────────

export interface Seen {
  readonly community: number;
  readonly pubkey: string;
  readonly at: number;
}

/**
 * The earliest time counts. A key that is new may have been named before, and is now one whose density is asserted; one that turns out
 * to be older may be a founder's, on whom others' scores stand.
 */
export async function writeAuthors(tx: ClientBase, seen: readonly Seen[], now: number): Promise<void> {
  if (seen.length === 0) return;
  await tx.query({
    name: 'trust-authors',
    text: `WITH written AS (
        INSERT INTO trust_authors AS a (community, first_seen_at, pubkey)
        SELECT community, min(at), pubkey FROM unnest($1::int[], $2::bytea[], $3::bigint[]) AS n (community, pubkey, at)
        GROUP BY community, pubkey ORDER BY community, pubkey
        ON CONFLICT (community, pubkey) DO UPDATE SET first_seen_at = excluded.first_seen_at
        WHERE excluded.first_seen_at < a.first_seen_at RETURNING community, pubkey)
      INSERT INTO trust_due (community, claim, due_at, subject)
      SELECT w.community, 'communication-density', $4::bigint, w.pubkey FROM written w
      WHERE EXISTS (SELECT 1 FROM trust_scores s WHERE s.community = w.community AND s.subject = w.pubkey)
      UNION SELECT c.community, 'communication-density', $4::bigint, c.named FROM written w
      JOIN trust_contacts c ON c.community = w.community AND c.author = w.pubkey
      ORDER BY 1, 4 ON CONFLICT DO NOTHING`,
    values: [
      int4Array(seen.map((s) => s.community)),
      hexArray(seen.map((s) => s.pubkey)),
      int8Array(seen.map((s) => s.at)),
      now,
    ],
  });
}

// ── Contacts ──────────────────────────────────────────────────────────────────────────────────────────────────────

export interface Contact {
  readonly community: number;
  readonly kind: number;
  readonly at: number;
  readonly author: string;
  readonly named: string;
  readonly eventId: string;
  /** How many the event names. */
  readonly shared: number;
}

/** A tie needs both directions: what one says to another who has never answered changes nobody's score. */
const ANSWERS = 'r.community = c.community AND r.named = c.author AND r.author = c.named';
const DUE_BOTH = `
  INSERT INTO trust_due (community, claim, due_at, subject)
  SELECT DISTINCT c.community, 'communication-density', $1::bigint, s.subject
  FROM changed c CROSS JOIN LATERAL (VALUES (c.author), (c.named)) AS s (subject)
  WHERE EXISTS (SELECT 1 FROM trust_contacts r WHERE ${ANSWERS}) OR EXISTS (SELECT 1 FROM changed r WHERE ${ANSWERS})
  ORDER BY 1, 4 ON CONFLICT DO NOTHING`;

/** An event that is back shows its contacts again. */
export async function writeContacts(
  tx: ClientBase,
  contacts: readonly Contact[],
  now: number,
): Promise<void> {
  if (contacts.length === 0) return;
  await tx.query({
    name: 'trust-contacts',
    text: `WITH changed AS (
        INSERT INTO trust_contacts AS c (community, kind, at, author, named, event_id, shared)
        SELECT * FROM unnest($2::int[], $3::int[], $4::bigint[], $5::bytea[], $6::bytea[], $7::bytea[], $8::smallint[])
          AS n (community, kind, at, author, named, event_id, shared)
        WHERE NOT is_fenced(n.community, n.named) AND NOT is_fenced(n.community, n.author)
        ON CONFLICT (community, event_id, named) DO UPDATE SET gone = false WHERE c.gone
        RETURNING community, author, named) ${DUE_BOTH}`,
    values: [
      now,
      int4Array(contacts.map((c) => c.community)),
      int4Array(contacts.map((c) => c.kind)),
      int8Array(contacts.map((c) => c.at)),
      hexArray(contacts.map((c) => c.author)),
      hexArray(contacts.map((c) => c.named)),
      hexArray(contacts.map((c) => c.eventId)),
      int2Array(contacts.map((c) => c.shared)),
    ],
  });
}

export interface EventKey {
  readonly community: number;
  readonly id: string;
}

const keysOf = (events: readonly EventKey[]) => [
  int4Array(events.map(({ community }) => community)),
  hexArray(events.map(({ id }) => id)),
];

/** The event is not served any more: its contacts count, and are not shown. */
export async function hideContacts(tx: ClientBase, events: readonly EventKey[]): Promise<void> {
  if (events.length === 0) return;
  await tx.query({
    name: 'trust-contacts-gone',
    text: `UPDATE trust_contacts c SET gone = true FROM unnest($1::int[], $2::bytea[]) AS g (community, event_id)
      WHERE c.community = g.community AND c.event_id = g.event_id AND NOT c.gone`,
    values: keysOf(events),
  });
}

/** The event is served, but not to anyone, or is of a kind that does not count any more. */
export async function removeContacts(
  tx: ClientBase,
  events: readonly EventKey[],
  now: number,
): Promise<void> {
  if (events.length === 0) return;
  await tx.query({
    name: 'trust-contacts-removed',
    text: `WITH changed AS (
        DELETE FROM trust_contacts c USING unnest($2::int[], $3::bytea[]) AS g (community, event_id)
        WHERE c.community = g.community AND c.event_id = g.event_id RETURNING c.community, c.author, c.named) ${DUE_BOTH}`,
    values: [now, ...keysOf(events)],
  });
}

export interface ShownContact {
  readonly eventId: string;
  readonly kind: number;
  readonly at: number;
  readonly shared: number;
  readonly direction: 'out' | 'in';
}

/**
 * The newest contacts of a person within the window, with those who answer, whose events were not gone when last heard of. As for a score, it
 * begins with what the person said.
 */
export async function latestContacts(
  db: Db,
  { community, subject }: { readonly community: number; readonly subject: string },
  {
    since,
    kinds,
    limit,
  }: { readonly since: number; readonly kinds: readonly number[]; readonly limit: number },
): Promise<ShownContact[]> {
  const own = 'c.community = $1 AND c.at > $3 AND c.kind = ANY ($4)';
  const { rows } = await db.query<ShownContact>(
    `WITH told AS (SELECT * FROM trust_contacts c WHERE ${own} AND c.author = $2 ORDER BY c.at DESC LIMIT 1000),
     partners AS (SELECT DISTINCT t.named AS key FROM told t
       WHERE EXISTS (SELECT 1 FROM trust_contacts c WHERE ${own} AND c.named = $2 AND c.author = t.named))
     SELECT DISTINCT encode(event_id, 'hex') AS "eventId", kind, at, shared, direction FROM (
       SELECT t.*, 'out' AS direction FROM told t JOIN partners p ON p.key = t.named
       UNION ALL SELECT i.*, 'in' FROM partners p CROSS JOIN LATERAL (
         SELECT * FROM trust_contacts c WHERE ${own} AND c.named = $2 AND c.author = p.key ORDER BY c.at DESC LIMIT $5) i) c
     WHERE NOT gone ORDER BY at DESC, "eventId" LIMIT $5`,
    [community, bytes(subject), since, int4Array(kinds), limit],
  );
  return rows;
}

// ── Reports ───────────────────────────────────────────────────────────────────────────────────────────────────────

export interface ReportGround {
  readonly community: number;
  readonly reporter: string;
  /** The event, or the UUID without its dashes. */
  readonly source: string;
  readonly at: number;
  /** When it came: the standing is that of this moment. */
  readonly cameAt: number;
  readonly targets: readonly Reported[];
}

/** A report over HTTP, and as a ground, in one transaction. Sent again it is the same. */
export function addWeighedReport(
  pool: Pool,
  report: NewReport,
  rules: AccessRules,
  now: number,
): Promise<Report | Denial> {
  const { community, pubkey: reporter, targetEvent: event, targetPubkey: pubkey, reason } = report;
  return addReport(pool, report, now, async (tx, { reportId, createdAt: at }) => {
    const source = reportId.replaceAll('-', '');
    const targets = [{ event, pubkey, reason }];
    await writeReport(tx, { community, reporter, source, at, cameAt: now, targets }, rules, now);
  });
}

interface Target {
  readonly subject: string;
  readonly event: string;
  readonly reason: string;
}

export async function writeReport(
  tx: Db,
  report: ReportGround,
  rules: AccessRules,
  now: number,
): Promise<void> {
  const { community, reporter, source, at, targets } = report;
  const told = (await subjectsOf(tx, community, targets)).filter(({ subject }) => subject !== reporter);
  if (told.length === 0) return;
  const weight = await standing(tx, report, rules);
  await tx.query({
    name: 'trust-report',
    text: `WITH written AS (
        INSERT INTO trust_reports (community, at, weight, reporter, subject, target_event, source, reason)
        SELECT $1, $2, $3, $4, subject, target_event, $5, reason
        FROM unnest($6::bytea[], $7::bytea[], $8::text[]) AS n (subject, target_event, reason)
        WHERE NOT is_fenced($1, subject) AND NOT is_fenced($1, $4)
        ON CONFLICT DO NOTHING RETURNING subject, weight)
      INSERT INTO trust_due (community, claim, due_at, subject)
      SELECT DISTINCT $1::int, 'report-based', $9::bigint, subject FROM written WHERE weight > 0
      ORDER BY 4 ON CONFLICT DO NOTHING`,
    values: [
      community,
      at,
      weight,
      bytes(reporter),
      bytes(source),
      hexArray(told.map(({ subject }) => subject)),
      hexArray(told.map(({ event }) => event)),
      textArray(told.map(({ reason }) => reason)),
      now,
    ],
  });
}

/** The author of an event that was ever here is known; of another the reporter's word is taken. */
async function subjectsOf(tx: Db, community: number, targets: readonly Reported[]): Promise<Target[]> {
  const ids = targets.flatMap(({ event }) => (event === undefined ? [] : [event]));
  const { rows } = await tx.query<{ id: string; author: string }>({
    name: 'trust-authors-of',
    text: `SELECT encode(event_id, 'hex') AS id, encode(author, 'hex') AS author FROM event_dedupe
      WHERE community = $1 AND event_id = ANY ($2::bytea[])`,
    values: [community, hexArray(ids)],
  });
  const authors = new Map(rows.map(({ id, author }) => [id, author]));
  return targets.flatMap(({ event, pubkey, reason }) => {
    const subject = (event === undefined ? undefined : authors.get(event)) ?? pubkey;
    return subject === undefined ? [] : [{ subject, event: event ?? '', reason }];
  });
}

interface Known {
  readonly firstSeenAt: number | null;
  readonly approved: boolean;
}

/** An operator, or one whose request for a topic an operator approved: of the key `:key` of community `$1`. */
export const isApproved = (
  key: string,
) => `(EXISTS (SELECT 1 FROM operators o WHERE o.community = $1 AND o.pubkey = ${key})
  OR EXISTS (SELECT 1 FROM topic_subscriptions s JOIN topic_subscription_requests r USING (request_id)
    JOIN members m ON m.community = s.community AND m.pubkey = s.pubkey
    WHERE s.community = $1 AND s.pubkey = ${key} AND s.status = 'active' AND m.status = 'active' AND r.reviewed_by IS NOT NULL))`;

/** The cheap questions first: a crowd of new keys costs one look each. */
async function standing(
  tx: Db,
  { community, reporter, cameAt }: ReportGround,
  rules: AccessRules,
): Promise<number> {
  const { settings } = rules;
  const { rows } = await tx.query<Known>({
    name: 'trust-standing',
    text: `SELECT (SELECT first_seen_at FROM trust_authors WHERE community = $1 AND pubkey = $2) AS "firstSeenAt",
        ${isApproved('$2')} AS approved`,
    values: [community, bytes(reporter)],
  });
  const { firstSeenAt, approved } = rows[0]!;
  const seenForMs = firstSeenAt === null ? undefined : cameAt - firstSeenAt;
  if (!approved && !isOldEnough(seenForMs)) return 0;
  const ties = approved
    ? 0
    : (await gatherTies(tx, community, [reporter], rules, cameAt)).get(reporter)!.weight;
  const grounds = await gatherRisks(tx, community, [reporter], rules, cameAt);
  const risk = scoreOf('report-based', grounds.get(reporter)!, settings);
  return standingOf({ seenForMs, ties, approved, risk }, settings);
}

export interface ReportCounts {
  readonly reasons: Readonly<Record<string, number>>;
  readonly labels: Readonly<Record<string, number>>;
}

/** How many of which, never by whom. */
export async function countReports(
  db: Db,
  { community, subject }: { readonly community: number; readonly subject: string },
  rules: AccessRules,
  now: number,
): Promise<ReportCounts> {
  const values = [community, bytes(subject), windowStart(now, rules.settings)];
  const reasons = await db.query<{ name: string; rows: number }>(
    `SELECT reason AS name, count(DISTINCT reporter) AS rows FROM trust_reports
     WHERE community = $1 AND subject = $2 AND at > $3 AND weight > 0 GROUP BY reason ORDER BY reason`,
    values,
  );
  const labels = await db.query<{ name: string; rows: number }>(
    `SELECT label AS name, count(*) AS rows FROM labels WHERE community = $1 AND target_pubkey = $2 AND created_at > $3
       AND withdrawn_at IS NULL AND lapses_at * 1000 > $4 AND label <> 'safe' AND ${isPublicLabel(5)}
     GROUP BY label ORDER BY label`,
    [...values, now, ...publicLabelValues(rules)],
  );
  const counts = (rows: readonly { name: string; rows: number }[]) =>
    Object.fromEntries(rows.map(({ name, rows: count }) => [name, count]));
  return { reasons: counts(reasons.rows), labels: counts(labels.rows) };
}

// ── Forgetting and erasing ────────────────────────────────────────────────────────────────────────────────────────

/** Grounds that no window reaches any more. Returns how many went. */
export async function forgetGrounds(
  client: ClientBase,
  community: number,
  before: number,
  limit: number,
): Promise<number> {
  const contacts = await client.query(
    `DELETE FROM trust_contacts WHERE (community, event_id, named) IN
       (SELECT community, event_id, named FROM trust_contacts WHERE community = $1 AND at < $2 ORDER BY at LIMIT $3)`,
    [community, before, limit],
  );
  const reports = await client.query(
    `DELETE FROM trust_reports WHERE (community, source, subject, target_event) IN
       (SELECT community, source, subject, target_event FROM trust_reports WHERE community = $1 AND at < $2 ORDER BY at LIMIT $3)`,
    [community, before, limit],
  );
  return (contacts.rowCount ?? 0) + (reports.rowCount ?? 0);
}

export async function countOldGrounds(
  client: ClientBase,
  community: number,
  before: number,
): Promise<number> {
  const { rows } = await client.query<{ count: number }>(
    `SELECT (SELECT count(*) FROM trust_contacts WHERE community = $1 AND at < $2)
       + (SELECT count(*) FROM trust_reports WHERE community = $1 AND at < $2) AS count`,
    [community, before],
  );
  return rows[0]!.count;
}
