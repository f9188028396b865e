/**
 * The grounds of trust, which are primary data (I9): contacts, reports with the weight of their reporter, and
 * when a key was first seen. Scores that depend on a written ground are marked as due in the same
 * transaction. Writing the same ground again changes nothing: a report keeps its weight.
 */
import type { ClientBase, Pool } from 'pg';
import type { Denial } from '../api/rules-errors.js';
import type { AccessRules } from '../events/rules/access.js';
import { factKey } from '../events/rules/facts.js';
import type { BegunId, StoredEvents } from '../events/stored-events.js';
import { hexArray, int2Array, int4Array, int8Array, textArray } from '../postgres/binary.js';
import { bytes, type Db } from '../postgres/values.js';
import { addReport, type NewReport, type Report } from '../reports/reports.sql.js';
import type { Reported } from '../reports/rules.js';
import { isOldEnough, scoreOf, standingOf, windowStart } from './rules.js';
import { CONTACTS_OF_ONE, gatherRisks, gatherTies, isPublicLabel, publicLabelValues } from './weights.sql.js';

// ── Authors ────────────────────────────────────────────────────────────────────────────────────────────────

export interface Seen {
  readonly community: number;
  readonly pubkey: string;
  readonly at: number;
}

/**
 * Keeps the earliest time. A new key may have been named before: from now on its density is asserted. A key
 * that turns out to be older may belong to a founder, on whom the scores of others depend.
 */
export async function writeAuthors(tx: ClientBase, seen: readonly Seen[], now: number): Promise<void> {
  if (seen.length === 0) return;
  await tx.query({
    name: 'trust-authors',
    text: `WITH written AS (
        INSERT INTO trust_authors AS a (community, first_seen_at, pubkey)
        SELECT community, min(at), pubkey
        FROM unnest($1::int[], $2::bytea[], $3::bigint[]) AS n (community, pubkey, at)
        GROUP BY community, pubkey ORDER BY community, pubkey
        ON CONFLICT (community, pubkey) DO UPDATE SET first_seen_at = excluded.first_seen_at
        WHERE excluded.first_seen_at < a.first_seen_at RETURNING community, pubkey)
      INSERT INTO trust_due (community, claim, due_at, subject)
      SELECT w.community, 'communication-density', $4::bigint, w.pubkey FROM written w
      WHERE EXISTS (SELECT 1 FROM trust_scores s WHERE s.community = w.community AND s.subject = w.pubkey)
      UNION SELECT n.community, 'communication-density', $4::bigint, n.pubkey FROM written w
      JOIN trust_people a ON a.community = w.community AND a.pubkey = w.pubkey
      JOIN trust_contacts c ON c.author = a.id JOIN trust_people n ON n.id = c.named
      ORDER BY 1, 4 ON CONFLICT DO NOTHING`,
    values: [
      int4Array(seen.map((s) => s.community)),
      hexArray(seen.map((s) => s.pubkey)),
      int8Array(seen.map((s) => s.at)),
      now,
    ],
  });
}

// ── Contacts ───────────────────────────────────────────────────────────────────────────────────────────────

export interface Contact {
  readonly community: number;
  readonly kind: number;
  readonly at: number;
  readonly author: string;
  readonly named: string;
  readonly eventId: string;
  /** How many people the event names. */
  readonly shared: number;
}

/**
 * How long a changed density waits: the score of a person who is named often is computed once in this time
 * instead of once per batch. A request for the score computes it at once (routes.ts), and an assertion waits
 * ten minutes anyway (ASSERTION_GAP).
 */
export const DENSITY_REST_MS = 60_000;

/**
 * A tie needs both directions: naming somebody who has never answered changes no score. The people are looked
 * up one by one (LATERAL): a join may walk over everybody in the community instead, once for each batch.
 */
const dueBoth = (answered: string) => `
  INSERT INTO trust_due (community, claim, due_at, subject)
  SELECT p.community, 'communication-density', $1::bigint, p.pubkey
  FROM (SELECT DISTINCT unnest(ARRAY[c.author, c.named]) AS id FROM changed c
    WHERE (SELECT 1 FROM trust_contacts r WHERE r.author = c.named AND r.named = c.author LIMIT 1) = 1
      OR ${answered}) d
  CROSS JOIN LATERAL (SELECT community, pubkey FROM trust_people WHERE id = d.id LIMIT 1) p
  ORDER BY 1, 4 ON CONFLICT DO NOTHING`;

/** Evaluated once per statement, because usually nobody is being erased. */
const NOBODY_FENCED = `NOT (SELECT EXISTS (SELECT 1 FROM erasures e WHERE e.type = 'member'
  AND e.stage IN ('fenced', 'counted', 'deleting', 'verifying')))`;

/**
 * A transaction that writes contacts holds it, so that a person whom it names is not deleted meanwhile
 * (forgetPeople). Its own statement, before people are read.
 */
const PEOPLE_LOCK = 7_447_030;

/** The first 8 bytes of an event's id as a number, as contacts have it. */
export function eventNumber(id: string): bigint {
  return BigInt.asIntN(64, BigInt(`0x${id.slice(0, 16)}`));
}

/** Numbers of a list of people: contacts are sent as places in it, each key once. */
class People {
  readonly communities: number[] = [];
  readonly keys: string[] = [];
  private readonly places = new Map<string, number>();

  /** From 1 on, as SQL counts them. */
  placeOf(community: number, pubkey: string): number {
    const name = `${community}/${pubkey}`;
    const known = this.places.get(name);
    if (known !== undefined) return known;
    this.communities.push(community);
    this.keys.push(pubkey);
    this.places.set(name, this.keys.length);
    return this.keys.length;
  }

  values(): [Buffer, Buffer] {
    return [int4Array(this.communities), hexArray(this.keys)];
  }
}

/** The numbers of the people $2 and $3, in their order; null for an unknown one. */
const numbersOf = (condition: string) => `known AS MATERIALIZED (
  SELECT array_agg(p.id ORDER BY n.place) AS ids
  FROM unnest($2::int[], $3::bytea[]) WITH ORDINALITY AS n (community, pubkey, place)
  LEFT JOIN trust_people p ON p.community = n.community AND p.pubkey = n.pubkey AND ${condition})`;

export async function writeContacts(
  tx: ClientBase,
  contacts: readonly Contact[],
  now: number,
): Promise<void> {
  if (contacts.length === 0) return;
  const mutual = mutualAmong(contacts);
  const people = new People();
  const authors = contacts.map((c) => people.placeOf(c.community, c.author));
  const named = contacts.map((c) => people.placeOf(c.community, c.named));
  await tx.query({ name: 'trust-lock', text: `SELECT pg_advisory_xact_lock_shared(${PEOPLE_LOCK})` });
  await tx.query({
    name: 'trust-people',
    text: `INSERT INTO trust_people (community, pubkey)
      SELECT n.community, n.pubkey FROM unnest($1::int[], $2::bytea[]) AS n (community, pubkey)
      WHERE NOT EXISTS (SELECT 1 FROM trust_people p
          WHERE p.community = n.community AND p.pubkey = n.pubkey)
        AND (${NOBODY_FENCED} OR NOT is_fenced(n.community, n.pubkey))
      ORDER BY n.community, n.pubkey ON CONFLICT DO NOTHING`,
    values: people.values(),
  });
  await tx.query({
    name: 'trust-contacts',
    text: `WITH ${numbersOf(`(${NOBODY_FENCED} OR NOT is_fenced(n.community, n.pubkey))`)},
      changed AS (
        INSERT INTO trust_contacts (at, event, community, kind, author, named, shared)
        SELECT n.at, n.event, ($2::int[])[n.author], n.kind, k.ids[n.author], k.ids[n.named], n.shared
        FROM known k CROSS JOIN unnest($4::bigint[], $5::bigint[], $6::int[], $7::int[], $8::int[],
          $9::smallint[]) AS n (at, event, kind, author, named, shared)
        WHERE k.ids[n.author] IS NOT NULL AND k.ids[n.named] IS NOT NULL
        ON CONFLICT DO NOTHING RETURNING author, named)
      ${dueBoth(`(c.author, c.named) IN (SELECT k.ids[m.author], k.ids[m.named]
        FROM known k CROSS JOIN unnest($10::int[], $11::int[]) AS m (author, named))`)}`,
    values: [
      now + DENSITY_REST_MS,
      ...people.values(),
      int8Array(contacts.map((c) => c.at)),
      int8Array(contacts.map((c) => eventNumber(c.eventId))),
      int4Array(contacts.map((c) => c.kind)),
      int4Array(authors),
      int4Array(named),
      int2Array(contacts.map((c) => c.shared)),
      int4Array(mutual.map((c) => people.placeOf(c.community, c.author))),
      int4Array(mutual.map((c) => people.placeOf(c.community, c.named))),
    ],
  });
}

/** Contacts that are answered in the same batch: the statement that writes both cannot see the other yet. */
function mutualAmong(contacts: readonly Contact[]): Contact[] {
  const pairs = new Map(contacts.map((c) => [`${c.community}/${c.author}/${c.named}`, c]));
  return [...pairs.values()].filter((c) => pairs.has(`${c.community}/${c.named}/${c.author}`));
}

/** For events that are served, but no longer to everybody, or whose kind no longer counts. */
export async function removeContacts(
  tx: ClientBase,
  contacts: readonly Contact[],
  now: number,
): Promise<void> {
  if (contacts.length === 0) return;
  const people = new People();
  await tx.query({
    name: 'trust-contacts-removed',
    text: `WITH ${numbersOf('true')},
      changed AS (
        DELETE FROM trust_contacts c USING known k, unnest($4::bigint[], $5::int[], $6::int[])
          AS n (event, author, named)
        WHERE c.author = k.ids[n.author] AND c.named = k.ids[n.named] AND c.event = n.event
        RETURNING c.author, c.named)
      ${dueBoth('false')}`,
    values: removedValues(contacts, people, now),
  });
}

function removedValues(contacts: readonly Contact[], people: People, now: number): unknown[] {
  const authors = contacts.map((c) => people.placeOf(c.community, c.author));
  const named = contacts.map((c) => people.placeOf(c.community, c.named));
  const events = int8Array(contacts.map((c) => eventNumber(c.eventId)));
  return [now + DENSITY_REST_MS, ...people.values(), events, int4Array(authors), int4Array(named)];
}

export interface ShownContact {
  readonly eventId: string;
  readonly kind: number;
  readonly at: number;
  readonly shared: number;
  readonly direction: 'out' | 'in';
}

/** The whole id of the event of a contact `c` whose author is the person `a`; null after its purge. */
export const EVENT_ID = `(SELECT d.event_id FROM event_dedupe d
  WHERE d.community = a.community AND d.author = a.pubkey AND d.event_id >= int8send(c.event)
    AND d.event_id <= int8send(c.event) || decode(repeat('ff', 24), 'hex') LIMIT 1)`;

/**
 * The newest contacts of a person within the window, with people who answer, also of events that are no
 * longer served. Like a score, the query starts from what the person wrote.
 */
export async function latestContacts(
  db: Db,
  events: StoredEvents,
  { community, subject }: { readonly community: number; readonly subject: string },
  {
    since,
    kinds,
    limit,
  }: { readonly since: number; readonly kinds: readonly number[]; readonly limit: number },
): Promise<ShownContact[]> {
  const counts = 'c.at > $3 AND c.kind = ANY ($4)';
  const { rows } = await db.query<Omit<ShownContact, 'eventId'> & BegunId>(
    `WITH me AS (SELECT id FROM trust_people WHERE community = $1 AND pubkey = $2),
     sent AS MATERIALIZED (SELECT c.* FROM me JOIN trust_contacts c ON c.author = me.id
       WHERE ${counts} ORDER BY c.author, c.named, c.at LIMIT ${CONTACTS_OF_ONE}),
     partners AS (SELECT n.id FROM (SELECT DISTINCT named AS id FROM sent) n CROSS JOIN me
       WHERE EXISTS (SELECT 1 FROM trust_contacts c WHERE c.author = n.id AND c.named = me.id AND ${counts})),
     newest AS (SELECT * FROM (
       SELECT s.*, 'out' AS direction FROM sent s JOIN partners p ON p.id = s.named
       UNION ALL SELECT i.*, 'in' FROM me CROSS JOIN partners p CROSS JOIN LATERAL (
         SELECT * FROM trust_contacts c WHERE c.author = p.id AND c.named = me.id AND ${counts}
         ORDER BY c.at DESC LIMIT $5) i) b
       ORDER BY at DESC, event LIMIT $5)
     SELECT DISTINCT encode(int8send(c.event), 'hex') AS begin, encode(a.pubkey, 'hex') AS author, c.kind,
       c.at, c.shared, c.direction
     FROM newest c JOIN trust_people a ON a.id = c.author ORDER BY c.at DESC, begin`,
    [community, bytes(subject), since, int4Array(kinds), limit],
  );
  const ids = await events.wholeIds(db, community, rows);
  return rows.flatMap(({ kind, at, shared, direction }, place) => {
    const eventId = ids[place];
    return eventId === undefined ? [] : [{ eventId, kind, at, shared, direction }];
  });
}

// ── Reports ────────────────────────────────────────────────────────────────────────────────────────────────

export interface ReportGround {
  readonly community: number;
  readonly reporter: string;
  /** The id of the event, or the UUID of the report without its dashes. */
  readonly source: string;
  readonly at: number;
  /** When it arrived: the reporter's standing at this moment counts. */
  readonly cameAt: number;
  readonly targets: readonly Reported[];
}

/** Writes a report that arrived over HTTP, and its ground, in one transaction. Sending it again is safe. */
export function addWeighedReport(
  pool: Pool,
  events: StoredEvents,
  report: NewReport,
  rules: AccessRules,
  now: number,
): Promise<Report | Denial> {
  const { community, pubkey: reporter, targetEvent: event, targetPubkey: pubkey, reason } = report;
  return addReport(pool, events, report, now, async (tx, { reportId, createdAt: at }) => {
    const source = reportId.replaceAll('-', '');
    const targets = [{ event, pubkey, reason }];
    await writeReport(tx, events, { community, reporter, source, at, cameAt: now, targets }, rules, now);
  });
}

interface Target {
  readonly subject: string;
  readonly event: string;
  readonly reason: string;
}

export async function writeReport(
  tx: Db,
  events: StoredEvents,
  report: ReportGround,
  rules: AccessRules,
  now: number,
): Promise<void> {
  const { community, reporter, source, at, targets } = report;
  const named = (await subjectsOf(tx, events, community, targets)).filter(
    ({ subject }) => subject !== reporter,
  );
  if (named.length === 0) return;
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
      hexArray(named.map(({ subject }) => subject)),
      hexArray(named.map(({ event }) => event)),
      textArray(named.map(({ reason }) => reason)),
      now,
    ],
  });
}

/** The author of a received event is known; for any other event the report says who wrote it. */
async function subjectsOf(
  tx: Db,
  events: StoredEvents,
  community: number,
  targets: readonly Reported[],
): Promise<Target[]> {
  const refs = targets.flatMap(({ event }) => (event === undefined ? [] : [{ community, id: event }]));
  const known = await events.known(tx, refs);
  return targets.flatMap(({ event, pubkey, reason }) => {
    const subject = known.get(factKey(community, event ?? ''))?.author ?? pubkey;
    return subject === undefined ? [] : [{ subject, event: event ?? '', reason }];
  });
}

interface Known {
  readonly firstSeenAt: number | null;
  readonly approved: boolean;
}

/** Whether `key` of community `$1` is an operator, or a member whose topic request an operator approved. */
export const isApproved = (
  key: string,
) => `(EXISTS (SELECT 1 FROM operators o WHERE o.community = $1 AND o.pubkey = ${key})
  OR EXISTS (SELECT 1 FROM topic_subscriptions s JOIN topic_subscription_requests r USING (request_id)
    JOIN members m ON m.community = s.community AND m.pubkey = s.pubkey
    WHERE s.community = $1 AND s.pubkey = ${key} AND s.status = 'active' AND m.status = 'active'
      AND r.reviewed_by IS NOT NULL))`;

/** Runs the cheap query first: each new key of a flood costs one query. */
async function standing(
  tx: Db,
  { community, reporter, cameAt }: ReportGround,
  rules: AccessRules,
): Promise<number> {
  const { settings } = rules;
  const { rows } = await tx.query<Known>({
    name: 'trust-standing',
    text: `SELECT
      (SELECT first_seen_at FROM trust_authors WHERE community = $1 AND pubkey = $2) AS "firstSeenAt",
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

/** Numbers by reason and by label, never who reported. */
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
    `SELECT label AS name, count(*) AS rows FROM labels
     WHERE community = $1 AND target_pubkey = $2 AND created_at > $3 AND withdrawn_at IS NULL
       AND lapses_at * 1000 > $4 AND label <> 'safe' AND ${isPublicLabel(5)}
     GROUP BY label ORDER BY label`,
    [...values, now, ...publicLabelValues(rules)],
  );
  const counts = (rows: readonly { name: string; rows: number }[]) =>
    Object.fromEntries(rows.map(({ name, rows: count }) => [name, count]));
  return { reasons: counts(reasons.rows), labels: counts(labels.rows) };
}

// ── Deleting old grounds ───────────────────────────────────────────────────────────────────────────────────

/** Deletes reports that are older than any window. Returns the number of deleted rows. */
export async function forgetReports(
  client: ClientBase,
  community: number,
  before: number,
  limit: number,
): Promise<number> {
  const { rowCount } = await client.query(
    `DELETE FROM trust_reports WHERE (community, source, subject, target_event) IN
       (SELECT community, source, subject, target_event FROM trust_reports WHERE community = $1 AND at < $2
         ORDER BY at LIMIT $3)`,
    [community, before, limit],
  );
  return rowCount ?? 0;
}

/** One batch of a walk over all people, in the order of their numbers. */
export interface ForgetBatch {
  readonly deleted: number;
  /** Where the next batch begins; undefined at the end. */
  readonly after: number | undefined;
}

/**
 * Deletes the contacts of the next authors that are older than any window of their community. There is no
 * index by time: a walk over the authors once a day costs less than an index for every contact.
 */
export async function forgetContacts(
  client: ClientBase,
  before: ReadonlyMap<number, number>,
  after: number,
  limit: number,
): Promise<ForgetBatch> {
  const least = (than: string) => `(SELECT min(author) FROM trust_contacts WHERE author > ${than})`;
  const { rows } = await client.query<{ author: number }>(
    `WITH RECURSIVE walk (author, place) AS (
       SELECT ${least('$1::int')}, 1
       UNION ALL SELECT ${least('walk.author')}, place + 1 FROM walk WHERE author IS NOT NULL AND place < $2)
     SELECT author FROM walk WHERE author IS NOT NULL ORDER BY place`,
    [after, limit],
  );
  const authors = rows.map(({ author }) => author);
  const { rowCount } = await client.query(
    `DELETE FROM trust_contacts WHERE ctid = ANY (ARRAY(
       SELECT c.ctid FROM unnest($1::int[]) AS n (author) JOIN trust_contacts c ON c.author = n.author
       LEFT JOIN trust_people p ON p.id = n.author
       LEFT JOIN unnest($2::int[], $3::bigint[]) AS b (community, before) ON b.community = p.community
       WHERE p.id IS NULL OR c.at < b.before LIMIT $4))`,
    [int4Array(authors), int4Array([...before.keys()]), int8Array([...before.values()]), limit],
  );
  const deleted = rowCount ?? 0;
  if (deleted === limit) return { deleted, after };
  return { deleted, after: authors.length < limit ? undefined : authors.at(-1) };
}

/** Deletes those of the next people who are in no contact. */
export async function forgetPeople(client: ClientBase, after: number, limit: number): Promise<ForgetBatch> {
  await client.query('SELECT pg_advisory_lock($1)', [PEOPLE_LOCK]);
  try {
    const { rows } = await client.query<{ people: number; last: number | null; deleted: number }>(
      `WITH page AS (SELECT id FROM trust_people WHERE id > $1 ORDER BY id LIMIT $2),
       gone AS (DELETE FROM trust_people p USING page WHERE p.id = page.id
         AND NOT EXISTS (SELECT 1 FROM trust_contacts c WHERE c.author = p.id)
         AND NOT EXISTS (SELECT 1 FROM trust_contacts c WHERE c.named = p.id) RETURNING p.id)
       SELECT count(*) AS people, max(id) AS last, (SELECT count(*) FROM gone) AS deleted FROM page`,
      [after, limit],
    );
    const { people, last, deleted } = rows[0]!;
    return { deleted, after: people < limit ? undefined : last! };
  } finally {
    await client.query('SELECT pg_advisory_unlock($1)', [PEOPLE_LOCK]);
  }
}

export async function countOldGrounds(
  client: ClientBase,
  community: number,
  before: number,
): Promise<number> {
  const { rows } = await client.query<{ count: number }>(
    `SELECT (SELECT count(*) FROM trust_people p JOIN trust_contacts c ON c.author = p.id
         WHERE p.community = $1 AND c.at < $2)
       + (SELECT count(*) FROM trust_reports WHERE community = $1 AND at < $2) AS count`,
    [community, before],
  );
  return rows[0]!.count;
}
