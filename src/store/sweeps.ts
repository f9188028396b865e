/**
 * What the jobs ask and change. Every sweep walks an index that was made for it and takes a bounded batch. What is served is
 * only selected here: the lane hides and announces it (I8). What is hidden already was announced when it was hidden, and
 * nothing brings it back, so it is deleted here, in one short statement of its own outside the lane.
 * I11: tombstones, vanish marks, heads and the dedupe rows of what is there are never touched.
 */
import type { Client } from 'pg';
import type { NostrEvent } from '../core/event.js';
import { HIDDEN_CODES, type Hidden, hiddenOf } from '../core/hidden.js';
import { Keep } from '../core/keep.js';
import type { StoredEvent } from '../core/plan.js';
import { topicsOf, UNBOUND } from '../core/topic.js';
import { int2Array } from './binary.js';
import { IS_LEFT, type WouldGo } from './would-go.js';

/** A batch holds whole events: beside their number, their bytes are bounded. */
const BATCH_BYTES_MAX = 4 * 1_048_576;
/** A dry run counts up to here. */
export const COUNT_MAX = 1_000_000;

export type SweptRow = StoredEvent & { readonly community: number };

/** Takes rows until they fill a batch, the first always. The size of a long text is known without reading it. */
export function bounded(rows: string): string {
  return `SELECT community, seq, ingested_at, keep, payload, bound FROM (
      SELECT r.*, sum(octet_length(payload)) OVER (ROWS UNBOUNDED PRECEDING) - octet_length(payload) AS bytes_before
      FROM (${rows}) r) b
    WHERE bytes_before < ${BATCH_BYTES_MAX}`;
}

export const COLUMNS = 'e.community, e.seq, e.ingested_at, e.keep, e.payload, e.bound';

interface EventRow {
  community: number;
  seq: number;
  ingested_at: number;
  keep: number;
  payload: string;
  bound: string[] | null;
}

export async function selectEvents(client: Client, text: string, values: unknown[]): Promise<SweptRow[]> {
  const { rows } = await client.query<EventRow>({ text, values });
  return rows.map(({ community, seq, ingested_at, keep, payload, bound }) => ({
    community,
    row: { seq, ingestedAt: ingested_at, keep },
    event: JSON.parse(payload) as NostrEvent,
    bound: bound ?? UNBOUND,
  }));
}

// ── Counting for a dry run ────────────────────────────────────────────────────────────────────────────────────────

/** Topics are in the events themselves, so a dry run reads them, in portions. */
const PORTION_ROWS = 500;

export interface KindCount {
  readonly kind: number;
  readonly rows: number;
  /** Rows whose topics were read, and how many of those rows each topic holds. */
  readonly looked: number;
  readonly topics: ReadonlyMap<string, number>;
}

/** Rows to count: `from` names them as `e`: FROM … WHERE …. */
export interface Counted {
  readonly from: string;
  readonly values: unknown[];
  readonly served: boolean;
}

/** Of the rows that no job before has taken, up to COUNT_MAX; from now on this one has. */
export async function countByKind(client: Client, counted: Counted, gone: WouldGo): Promise<KindCount[]> {
  const { from, values, served } = counted;
  const counts = new Map<
    number,
    { kind: number; rows: number; looked: number; topics: Map<string, number> }
  >();
  await client.query('BEGIN');
  try {
    await client.query(
      `DECLARE looked NO SCROLL CURSOR FOR SELECT e.seq, e.community, e.payload ${from} AND ${IS_LEFT} LIMIT ${COUNT_MAX}`,
      values,
    );
    for (let rows = PORTION_ROWS; rows === PORTION_ROWS; ) {
      const portion = await client.query<{ seq: number; community: number; payload: string }>(
        `FETCH ${PORTION_ROWS} FROM looked`,
      );
      const going = portion.rows.map(({ seq, community, payload }) => ({
        community,
        row: { seq },
        event: JSON.parse(payload) as NostrEvent,
        bytes: Buffer.byteLength(payload),
      }));
      for (const { event } of going) noteEvent(counts, event);
      await gone.take(going, { served });
      rows = portion.rows.length;
    }
  } finally {
    await client.query('COMMIT');
  }
  return [...counts.values()];
}

function noteEvent(
  counts: Map<number, { kind: number; rows: number; looked: number; topics: Map<string, number> }>,
  event: NostrEvent,
): void {
  const { kind } = event;
  const ofKind = counts.get(kind) ?? { kind, rows: 0, looked: 0, topics: new Map<string, number>() };
  counts.set(kind, ofKind);
  ofKind.rows += 1;
  ofKind.looked += 1;
  for (const topic of topicsOf(event)) ofKind.topics.set(topic, (ofKind.topics.get(topic) ?? 0) + 1);
}

// ── Expiry ────────────────────────────────────────────────────────────────────────────────────────────────────────

const EXPIRED = 'FROM events e WHERE e.hidden IS NULL AND e.expires_at IS NOT NULL AND e.expires_at <= $1';
export const EXPIRED_SQL = bounded(`SELECT ${COLUMNS} ${EXPIRED} ORDER BY e.expires_at LIMIT $2`);

export function selectExpired(client: Client, nowSeconds: number, limit: number): Promise<SweptRow[]> {
  return selectEvents(client, EXPIRED_SQL, [nowSeconds, limit]);
}

export function countExpired(client: Client, nowSeconds: number, gone: WouldGo): Promise<KindCount[]> {
  return countByKind(client, { from: EXPIRED, values: [nowSeconds], served: true }, gone);
}

// ── History ───────────────────────────────────────────────────────────────────────────────────────────────────────

/** Superseded versions, by when they were superseded. */
const OLD_HISTORY = `FROM events e WHERE e.keep = ${Keep.history} AND e.community = $1 AND e.ingested_at < $2
    AND e.hidden = ${HIDDEN_CODES.superseded}`;
export const OLD_HISTORY_SQL = bounded(`SELECT ${COLUMNS} ${OLD_HISTORY} ORDER BY e.ingested_at LIMIT $3`);

export function selectOldHistory(
  client: Client,
  community: number,
  supersededBefore: number,
  limit: number,
): Promise<SweptRow[]> {
  return selectEvents(client, OLD_HISTORY_SQL, [community, supersededBefore, limit]);
}

export function countOldHistory(
  client: Client,
  community: number,
  supersededBefore: number,
  gone: WouldGo,
): Promise<KindCount[]> {
  const counted = { from: OLD_HISTORY, values: [community, supersededBefore], served: false };
  return countByKind(client, counted, gone);
}

// ── Hidden rows: deleted with their content; their dedupe rows stay and say when ──────────────────────────────────

/** Where the place is known: said so that no index of hidden rows looks like a way in to the planner. */
export const IS_HIDDEN = 'coalesce(e.hidden, 0) <> 0';

/** `rows` gives the places and ids; locked first, so that a row that another transaction just took is left to it. */
export function deleteHidden(rows: string, dedupe: string): string {
  return `WITH gone AS MATERIALIZED (${rows}), known AS (
      UPDATE event_dedupe d SET ${dedupe} FROM gone g WHERE d.community = g.community AND d.event_id = g.id
    )
    DELETE FROM events e USING gone g
    WHERE e.keep = g.keep AND e.ingested_at = g.ingested_at AND e.seq = g.seq AND ${IS_HIDDEN}`;
}

export const PLACE = 'e.community, e.seq, e.ingested_at, e.keep, e.id';
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

type Count = (client: Client, community: number, hiddenBefore: number, gone: WouldGo) => Promise<KindCount[]>;
const countBy =
  (from: string): Count =>
  (client, community, hiddenBefore, gone) =>
    countByKind(client, { from, values: [community, hiddenBefore], served: false }, gone);

export const countRemoved = countBy(REMOVED);
export const countDeleted = countBy(AUDITED);

// ── Dedupe rows ───────────────────────────────────────────────────────────────────────────────────────────────────

const FORGETTABLE = 'd.community = $1 AND d.gone_at IS NOT NULL AND d.gone_at <= $2 AND d.hidden = ANY ($3)';
/** While its row is there, no id is forgotten: sent again, it would get a second one (I3). Fenced, so that the place is the way in. */
const IS_THERE = `EXISTS (SELECT 1 FROM events e
      WHERE e.keep = d.keep AND e.ingested_at = d.ingested_at AND e.seq = d.seq OFFSET 0)`;
export const FORGET_SQL = `
  WITH old AS MATERIALIZED (
    SELECT d.event_id FROM event_dedupe d WHERE ${FORGETTABLE} AND NOT ${IS_THERE} ORDER BY d.gone_at LIMIT $4)
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

const ERASED = `e.community = $1 AND e.hidden IN (${HIDDEN_CODES.vanished}, ${HIDDEN_CODES.erased}) AND e.gone_at IS NOT NULL`;

/** Gift wraps, and what the node itself had said, of those who were erased or have vanished: the marks keep them away. */
export async function forgetErased(client: Client, community: number, limit: number): Promise<number> {
  const { rowCount } = await client.query(
    `DELETE FROM event_dedupe d WHERE d.ctid = ANY (ARRAY(SELECT e.ctid FROM event_dedupe e WHERE ${ERASED} LIMIT $2))`,
    [community, limit],
  );
  return rowCount ?? 0;
}

/** By reason, how many that would forget. */
export async function countErased(
  client: Client,
  community: number,
): Promise<{ reason: Hidden; rows: number }[]> {
  const { rows } = await client.query<{ hidden: number; rows: number }>({
    text: `SELECT hidden, count(*) AS rows FROM (SELECT e.hidden FROM event_dedupe e WHERE ${ERASED} LIMIT ${COUNT_MAX}) r
      GROUP BY hidden`,
    values: [community],
  });
  return rows.map(({ hidden, rows: count }) => ({ reason: hiddenOf(hidden), rows: count }));
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
