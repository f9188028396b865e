/**
 * What the jobs ask and change. Every sweep walks an index that was made for it and takes a bounded batch. What is served is
 * only selected here: the lane hides and announces it (I8). What is hidden already was announced when it was hidden, and
 * nothing brings it back, so it is deleted here, in one short statement of its own outside the lane.
 * I11: tombstones, vanish marks, heads and the dedupe rows of what is there are never touched.
 */
import type { Client } from 'pg';
import { KIND_VANISH } from '../core/classify.js';
import { KIND_GIFT_WRAP } from '../core/deletion.js';
import type { NostrEvent } from '../core/event.js';
import { HIDDEN_CODES, type Hidden, hiddenOf } from '../core/hidden.js';
import type { RowRef, StoredEvent } from '../core/plan.js';
import { topicsOf, UNBOUND } from '../core/topic.js';
import { int2Array, int8Array } from './binary.js';
import { eventAt } from './query.js';

/** A batch holds whole events: beside their number, their bytes are bounded. */
const BATCH_BYTES_MAX = 4 * 1_048_576;
/** A dry run counts up to here. */
export const COUNT_MAX = 1_000_000;
/** Rows that a search looks through in one statement, most of which may not be what it looks for. */
const PAGE_ROWS = 1_000;

export type SweptRow = StoredEvent & { readonly community: number };

/** Takes rows until they fill a batch, the first always. The size of a long text is known without reading it. */
function bounded(rows: string): string {
  return `SELECT community, seq, ingested_at, keep, payload, bound FROM (
      SELECT r.*, sum(octet_length(payload)) OVER (ROWS UNBOUNDED PRECEDING) - octet_length(payload) AS bytes_before
      FROM (${rows}) r) b
    WHERE bytes_before < ${BATCH_BYTES_MAX}`;
}

const COLUMNS = 'e.community, e.seq, e.ingested_at, e.keep, e.payload, e.bound';

interface EventRow {
  community: number;
  seq: number;
  ingested_at: number;
  keep: number;
  payload: string;
  bound: string[] | null;
}

async function selectEvents(client: Client, text: string, values: unknown[]): Promise<SweptRow[]> {
  const { rows } = await client.query<EventRow>({ text, values });
  return rows.map(({ community, seq, ingested_at, keep, payload, bound }) => ({
    community,
    row: { seq, ingestedAt: ingested_at, keep },
    event: JSON.parse(payload) as NostrEvent,
    bound: bound ?? UNBOUND,
  }));
}

// ── Counting for a dry run ────────────────────────────────────────────────────────────────────────────────────────

/** Topics are in the events themselves: a dry run reads so many of them, in portions. */
export const TOPIC_ROWS_MAX = 10_000;
const PORTION_ROWS = 100;

export interface KindCount {
  readonly kind: number;
  readonly rows: number;
  /** Rows whose topics were read, and how many of those rows each topic holds. */
  readonly looked: number;
  readonly topics: ReadonlyMap<string, number>;
}

/** `from` names the rows as `e`: FROM … WHERE …. */
async function countByKind(client: Client, from: string, values: unknown[]): Promise<KindCount[]> {
  const found = await client.query<{ kind: number; rows: number }>({
    text: `SELECT kind, count(*) AS rows FROM (SELECT e.kind ${from} LIMIT ${COUNT_MAX}) r GROUP BY kind`,
    values,
  });
  if (found.rows.length === 0) return [];
  const seen = await lookAtTopics(client, from, values);
  const nothing = { looked: 0, topics: new Map<string, number>() };
  return found.rows.map(({ kind, rows }) => ({ kind, rows, ...(seen.get(kind) ?? nothing) }));
}

interface SeenTopics {
  looked: number;
  readonly topics: Map<string, number>;
}

async function lookAtTopics(
  client: Client,
  from: string,
  values: unknown[],
): Promise<Map<number, SeenTopics>> {
  const seen = new Map<number, SeenTopics>();
  await client.query('BEGIN');
  try {
    await client.query(
      `DECLARE looked NO SCROLL CURSOR FOR SELECT e.payload ${from} LIMIT ${TOPIC_ROWS_MAX}`,
      values,
    );
    for (let rows = PORTION_ROWS; rows === PORTION_ROWS; ) {
      const portion = await client.query<{ payload: string }>(`FETCH ${PORTION_ROWS} FROM looked`);
      for (const { payload } of portion.rows) noteTopics(seen, JSON.parse(payload) as NostrEvent);
      rows = portion.rows.length;
    }
  } finally {
    await client.query('ROLLBACK');
  }
  return seen;
}

function noteTopics(seen: Map<number, SeenTopics>, event: NostrEvent): void {
  const ofKind = seen.get(event.kind) ?? { looked: 0, topics: new Map<string, number>() };
  seen.set(event.kind, ofKind);
  ofKind.looked += 1;
  for (const topic of topicsOf(event)) ofKind.topics.set(topic, (ofKind.topics.get(topic) ?? 0) + 1);
}

// ── Expiry ────────────────────────────────────────────────────────────────────────────────────────────────────────

const EXPIRED = 'FROM events e WHERE e.hidden IS NULL AND e.expires_at IS NOT NULL AND e.expires_at <= $1';
export const EXPIRED_SQL = bounded(`SELECT ${COLUMNS} ${EXPIRED} ORDER BY e.expires_at LIMIT $2`);

export function selectExpired(client: Client, nowSeconds: number, limit: number): Promise<SweptRow[]> {
  return selectEvents(client, EXPIRED_SQL, [nowSeconds, limit]);
}

export function countExpired(client: Client, nowSeconds: number): Promise<KindCount[]> {
  return countByKind(client, EXPIRED, [nowSeconds]);
}

// ── Hidden rows: deleted with their content; their dedupe rows stay and say when ──────────────────────────────────

/** Where the place is known: said so that no index of hidden rows looks like a way in to the planner. */
const IS_HIDDEN = 'coalesce(e.hidden, 0) <> 0';

/** `rows` gives the places and ids; locked first, so that a row that another transaction just took is left to it. */
function deleteHidden(rows: string, dedupe: string): string {
  return `WITH gone AS MATERIALIZED (${rows}), known AS (
      UPDATE event_dedupe d SET ${dedupe} FROM gone g WHERE d.community = g.community AND d.event_id = g.id
    )
    DELETE FROM events e USING gone g
    WHERE e.keep = g.keep AND e.ingested_at = g.ingested_at AND e.seq = g.seq AND ${IS_HIDDEN}`;
}

const PLACE = 'e.community, e.seq, e.ingested_at, e.keep, e.id';
const hiddenAs = (hidden: 'deleted' | 'removed') =>
  `FROM events e WHERE e.community = $1 AND e.hidden = ${HIDDEN_CODES[hidden]} AND e.hidden_at <= $2`;
const AUDITED = hiddenAs('deleted');
/** What is held waits for its moderator, however long; and a removal can be undone from when it was decided. */
const REMOVED = `${hiddenAs('removed')}
    AND NOT EXISTS (SELECT 1 FROM moderation_cases c WHERE c.community = e.community AND c.target_event = e.id AND c.status = 'held')
    AND NOT EXISTS (SELECT 1 FROM moderation_actions a WHERE a.community = e.community AND a.target_event = e.id
      AND a.action = 'remove' AND a.at > $2)`;
const purgeSql = (from: string) =>
  deleteHidden(`SELECT ${PLACE} ${from} ORDER BY e.hidden_at LIMIT $3 FOR UPDATE`, 'gone_at = $4');
export const PURGE_DELETED_SQL = purgeSql(AUDITED);
export const PURGE_REMOVED_SQL = purgeSql(REMOVED);

type Purge = (
  client: Client,
  community: number,
  hiddenBefore: number,
  now: number,
  limit: number,
) => Promise<number>;
const purgeBy =
  (text: string): Purge =>
  async (client, community, hiddenBefore, now, limit) => {
    const values = [community, hiddenBefore, limit, now];
    return (await client.query({ text, values })).rowCount ?? 0;
  };

/** Deleted events whose time of audit is over. The tombstone and the dedupe row keep them out (I6). */
export const purgeDeleted = purgeBy(PURGE_DELETED_SQL);
/** What a moderator removed and nobody restored in time. The dedupe row keeps it out, for ever. */
export const purgeRemoved = purgeBy(PURGE_REMOVED_SQL);

export function countRemoved(client: Client, community: number, hiddenBefore: number): Promise<KindCount[]> {
  return countByKind(client, REMOVED, [community, hiddenBefore]);
}

export function countDeleted(client: Client, community: number, hiddenBefore: number): Promise<KindCount[]> {
  return countByKind(client, AUDITED, [community, hiddenBefore]);
}

// ── Vanished ──────────────────────────────────────────────────────────────────────────────────────────────────────

/** In this order: what is hidden while the erasure runs falls from the first into the second, from the third into the fourth. */
export const ERASURE_STEPS = [
  'served',
  'hidden',
  'wraps',
  'hidden-wraps',
  'reports',
  'exports',
  'documents',
  'letters',
  'labels',
  'cases',
  'trust',
] as const;
export type ErasureStep = (typeof ERASURE_STEPS)[number];

/** Where an erasure stands; of use only while the mark still has the same `until`. */
export interface ErasureProgress {
  readonly until: number;
  readonly step: ErasureStep;
  /** The last place that the step has looked at. */
  readonly createdAt: number;
  readonly seq: number;
}

export interface PendingMark {
  readonly community: number;
  readonly pubkey: string;
  readonly until: number;
  /** A 64-bit key, and so a text here. */
  readonly recipient: string;
  readonly progress: ErasureProgress | null;
}

export async function pendingMarks(client: Client, limit: number): Promise<PendingMark[]> {
  const { rows } = await client.query<PendingMark>(
    `SELECT community, encode(pubkey, 'hex') AS pubkey, until, recipient_tag::text AS recipient, progress
     FROM vanish_marks WHERE erased_at IS NULL ORDER BY community, pubkey LIMIT $1`,
    [limit],
  );
  return rows;
}

const bytes = (hex: string) => Buffer.from(hex, 'hex');
const MARKED = `e.community = $1 AND e.pubkey = $2 AND e.created_at <= $3 AND e.kind <> ${KIND_VANISH}`;
const SERVED_OF_AUTHOR = `FROM events e WHERE e.hidden IS NULL AND ${MARKED}`;
const HIDDEN_OF_AUTHOR = `FROM events e WHERE e.hidden IS NOT NULL AND ${MARKED}`;
export const VANISHED_SERVED_SQL = bounded(
  `SELECT ${COLUMNS} ${SERVED_OF_AUTHOR} ORDER BY e.created_at DESC LIMIT $4`,
);
const AS_VANISHED = `hidden = ${HIDDEN_CODES.vanished}, gone_at`;
export const VANISHED_HIDDEN_SQL = deleteHidden(
  `SELECT ${PLACE} ${HIDDEN_OF_AUTHOR} LIMIT $4 FOR UPDATE`,
  `${AS_VANISHED} = $5`,
);

const markValues = ({ community, pubkey, until }: PendingMark) => [community, bytes(pubkey), until];

export function selectOfVanished(client: Client, mark: PendingMark, limit: number): Promise<SweptRow[]> {
  return selectEvents(client, VANISHED_SERVED_SQL, [...markValues(mark), limit]);
}

export async function purgeHiddenOfVanished(
  client: Client,
  mark: PendingMark,
  now: number,
  limit: number,
): Promise<number> {
  const values = [...markValues(mark), limit, now];
  return (await client.query({ text: VANISHED_HIDDEN_SQL, values })).rowCount ?? 0;
}

/** A recipient's `p` tags are mostly on events that are no gift wraps, so they are looked through page by page. */
const TAGGED_BEFORE = `g.tag = $1::bigint AND g.created_at <= $2 AND (g.created_at < $2 OR g.seq > $3)`;
const IS_WRAP = `e.community = $4 AND e.hidden IS NULL AND e.kind = ${KIND_GIFT_WRAP} AND strpos(e.payload, $5) > 0`;
const PLACED = `SELECT * FROM events at
  WHERE at.keep = g.keep AND at.ingested_at = g.ingested_at AND at.seq = g.seq OFFSET 0`;
export const WRAPS_SQL = `
  SELECT g.created_at, g.seq, g.ingested_at, g.keep,
    EXISTS (SELECT 1 FROM (${PLACED}) e WHERE ${IS_WRAP}) AS found
  FROM (SELECT * FROM event_tags g WHERE ${TAGGED_BEFORE} ORDER BY g.created_at DESC, g.seq LIMIT ${PAGE_ROWS}) g
  ORDER BY g.created_at DESC, g.seq`;
export const HIDDEN_WRAPS_SQL = `
  SELECT e.created_at, e.seq, e.ingested_at, e.keep,
    e.created_at <= $3 AND strpos(e.payload, $4) > 0 AS found
  FROM events e WHERE e.community = $1 AND e.hidden IS NOT NULL AND e.kind = ${KIND_GIFT_WRAP} AND e.seq > $2
  ORDER BY e.seq LIMIT ${PAGE_ROWS}`;

export interface Page {
  readonly found: readonly RowRef[];
  /** Where the next page begins, or undefined at the end. */
  readonly next: { readonly createdAt: number; readonly seq: number } | undefined;
}

interface PageRow {
  created_at: number;
  seq: number;
  ingested_at: number;
  keep: number;
  found: boolean;
}

async function readPage(client: Client, text: string, values: unknown[]): Promise<Page> {
  const { rows } = await client.query<PageRow>({ text, values });
  const last = rows.length < PAGE_ROWS ? undefined : rows.at(-1);
  return {
    found: rows
      .filter((row) => row.found)
      .map(({ seq, ingested_at, keep }) => ({ seq, ingestedAt: ingested_at, keep })),
    next: last && { createdAt: last.created_at, seq: last.seq },
  };
}

/** As `["p","…"` stands in a payload exactly when such a tag is there (store/query.ts). */
const needle = ({ pubkey }: PendingMark) => `["p","${pubkey}"`;

type Cursor = Pick<ErasureProgress, 'createdAt' | 'seq'>;

export function pageOfWraps(client: Client, mark: PendingMark, after: Cursor): Promise<Page> {
  const values = [mark.recipient, after.createdAt, after.seq, mark.community, needle(mark)];
  return readPage(client, WRAPS_SQL, values);
}

export function pageOfHiddenWraps(client: Client, mark: PendingMark, after: Cursor): Promise<Page> {
  return readPage(client, HIDDEN_WRAPS_SQL, [mark.community, after.seq, mark.until, needle(mark)]);
}

const ASKED = 'unnest($1::bigint[], $2::bigint[], $3::smallint[]) AS asked (seq, ingested_at, keep)';
const placeValues = (places: readonly RowRef[]) => [
  int8Array(places.map((place) => place.seq)),
  int8Array(places.map((place) => place.ingestedAt)),
  int2Array(places.map((place) => place.keep)),
];
const SERVED_AT_SQL = bounded(
  `SELECT ${COLUMNS} FROM ${ASKED} ${eventAt('asked')} WHERE e.hidden IS NULL LIMIT $4`,
);

/** Those of the rows that are still served, as many as fill a batch. */
export function selectServedAt(
  client: Client,
  places: readonly RowRef[],
  limit: number,
): Promise<SweptRow[]> {
  return selectEvents(client, SERVED_AT_SQL, [...placeValues(places), limit]);
}

export const PURGE_AT_SQL = deleteHidden(
  `SELECT ${PLACE} FROM ${ASKED} JOIN events e ON e.keep = asked.keep AND e.ingested_at = asked.ingested_at
    AND e.seq = asked.seq WHERE ${IS_HIDDEN} FOR UPDATE OF e`,
  `${AS_VANISHED} = $4`,
);

export async function purgeHiddenAt(client: Client, places: readonly RowRef[], now: number): Promise<number> {
  if (places.length === 0) return 0;
  const values = [...placeValues(places), now];
  return (await client.query({ text: PURGE_AT_SQL, values })).rowCount ?? 0;
}

/** A mark whose `until` was moved meanwhile is not the one that was worked on: it begins again. */
const SAME_MARK = 'community = $1 AND pubkey = $2 AND until = $3 AND erased_at IS NULL';

export async function saveProgress(
  client: Client,
  mark: PendingMark,
  progress: ErasureProgress,
): Promise<void> {
  await client.query(`UPDATE vanish_marks SET progress = $4 WHERE ${SAME_MARK}`, [
    ...markValues(mark),
    JSON.stringify(progress),
  ]);
}

/** The mark stays and goes on refusing (I6); it need not hide any more. */
export async function markErased(client: Client, mark: PendingMark, now: number): Promise<void> {
  await client.query(`UPDATE vanish_marks SET erased_at = $4, progress = NULL WHERE ${SAME_MARK}`, [
    ...markValues(mark),
    now,
  ]);
}

/** What an erasure would take: the author's own, then gift wraps, served and hidden. */
export async function countOfVanished(client: Client, mark: PendingMark): Promise<KindCount[]> {
  const values = markValues(mark);
  const own = [
    ...(await countByKind(client, SERVED_OF_AUTHOR, values)),
    ...(await countByKind(client, HIDDEN_OF_AUTHOR, values)),
  ];
  const wraps = await countByKind(
    client,
    `FROM (SELECT * FROM event_tags g WHERE ${TAGGED_BEFORE} LIMIT ${COUNT_MAX}) g
      CROSS JOIN LATERAL (${PLACED}) e WHERE ${IS_WRAP} AND e.pubkey <> $6`,
    [mark.recipient, mark.until, 0, mark.community, needle(mark), bytes(mark.pubkey)],
  );
  const hiddenWraps = await countByKind(
    client,
    `FROM events e WHERE e.community = $1 AND e.hidden IS NOT NULL AND e.kind = ${KIND_GIFT_WRAP}
      AND e.created_at <= $3 AND strpos(e.payload, $4) > 0 AND e.pubkey <> $2`,
    [...values, needle(mark)],
  );
  return [...own, ...wraps, ...hiddenWraps];
}

// ── Dedupe rows ───────────────────────────────────────────────────────────────────────────────────────────────────

const FORGETTABLE = 'd.community = $1 AND d.gone_at IS NOT NULL AND d.gone_at <= $2 AND d.hidden = ANY ($3)';
export const FORGET_SQL = `
  WITH old AS MATERIALIZED (
    SELECT d.event_id FROM event_dedupe d WHERE ${FORGETTABLE} ORDER BY d.gone_at LIMIT $4)
  DELETE FROM event_dedupe d USING old
  WHERE d.community = $1 AND d.event_id = old.event_id AND d.gone_at IS NOT NULL`;

const codes = (reasons: readonly Hidden[]) => int2Array(reasons.map((reason) => HIDDEN_CODES[reason]));

export async function forgetDedupe(
  client: Client,
  community: number,
  goneBefore: number,
  reasons: readonly Hidden[],
  limit: number,
): Promise<number> {
  const values = [community, goneBefore, codes(reasons), limit];
  return (await client.query({ text: FORGET_SQL, values })).rowCount ?? 0;
}

export async function countForgettable(
  client: Client,
  community: number,
  goneBefore: number,
  reasons: readonly Hidden[],
): Promise<{ reason: Hidden; rows: number }[]> {
  const { rows } = await client.query<{ hidden: number; rows: number }>({
    text: `SELECT hidden, count(*) AS rows
      FROM (SELECT d.hidden FROM event_dedupe d WHERE ${FORGETTABLE} LIMIT ${COUNT_MAX}) r GROUP BY hidden`,
    values: [community, goneBefore, codes(reasons)],
  });
  return rows.map(({ hidden, rows: count }) => ({ reason: hiddenOf(hidden), rows: count }));
}

// ── Counts of deletions ───────────────────────────────────────────────────────────────────────────────────────────

/** The counts of days that are over, on every instance's clock: only today's are ever asked for. */
const PAST_QUOTAS = 'FROM deletion_quotas WHERE day < $1';

export async function forgetPastQuotas(client: Client, beforeDay: number, limit: number): Promise<number> {
  const { rowCount } = await client.query(
    `DELETE FROM deletion_quotas q USING (SELECT community, author, day ${PAST_QUOTAS} LIMIT $2) past
     WHERE q.community = past.community AND q.author = past.author AND q.day = past.day`,
    [beforeDay, limit],
  );
  return rowCount ?? 0;
}

export async function countPastQuotas(client: Client, beforeDay: number): Promise<number> {
  const { rows } = await client.query<{ rows: number }>(
    `SELECT count(*) AS rows FROM (SELECT 1 ${PAST_QUOTAS} LIMIT ${COUNT_MAX}) q`,
    [beforeDay],
  );
  return rows[0]!.rows;
}

// ── The live bus ──────────────────────────────────────────────────────────────────────────────────────────────────

export async function countBus(client: Client, sentBefore: number): Promise<number> {
  const { rows } = await client.query<{ rows: number }>(
    `SELECT count(*) AS rows FROM (SELECT 1 FROM live_bus WHERE sent_at < $1 LIMIT ${COUNT_MAX}) b`,
    [sentBefore],
  );
  return rows[0]!.rows;
}
