/**
 * The queries and changes of the jobs. Every sweep uses an index made for it and takes a bounded batch.
 * Served rows are only selected here: the lane hides and announces them (I8). Hidden rows were announced when
 * they were hidden, and nothing restores them, so they are deleted here, in a short statement outside the
 * lane. I11: tombstones, vanish marks, heads, and dedupe rows of stored events are never touched.
 */
import type { ClientBase } from 'pg';
import { int2Array } from '../../postgres/binary.js';
import type { Db } from '../../postgres/values.js';
import { topicsOf, UNBOUND } from '../../topics/rules.js';
import type { NostrEvent } from '../rules/event.js';
import type { PlacedEvent } from '../rules/facts.js';
import { HIDDEN_CODES, type Hidden, hiddenOf } from '../rules/hidden.js';
import { Keep } from '../rules/keep.js';
import { type DryRunState, IS_LEFT } from './dry-run.js';

/** A batch holds whole events, so it is bounded in bytes as well as in rows. */
const BATCH_BYTES_MAX = 4 * 1_048_576;
/** A dry run counts up to this many rows. */
export const COUNT_MAX = 1_000_000;

/**
 * Takes rows until they fill a batch, at least one. PostgreSQL knows the size of a long text without reading
 * it.
 */
export function bounded(rows: string): string {
  return `SELECT community, seq, ingested_at, keep, payload, bound FROM (
      SELECT r.*,
        sum(octet_length(payload)) OVER (ROWS UNBOUNDED PRECEDING) - octet_length(payload) AS bytes_before
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

export async function selectEvents(
  client: ClientBase,
  text: string,
  values: unknown[],
): Promise<PlacedEvent[]> {
  const { rows } = await client.query<EventRow>({ text, values });
  return rows.map(({ community, seq, ingested_at, keep, payload, bound }) => ({
    community,
    row: { seq, ingestedAt: ingested_at, keep },
    event: JSON.parse(payload) as NostrEvent,
    payload,
    bound: bound ?? UNBOUND,
  }));
}

// ── Counting for a dry run ─────────────────────────────────────────────────────────────────────────────────

/** The topics are in the payloads, so a dry run reads the payloads in portions. */
const PORTION_ROWS = 500;

export interface KindCount {
  readonly kind: number;
  readonly rows: number;
  /** The number of rows with topics read, and how many of them each topic has. */
  readonly looked: number;
  readonly topics: ReadonlyMap<string, number>;
}

/** Rows to count. `from` selects them as `e`: FROM … WHERE …. */
export interface Counted {
  readonly from: string;
  readonly values: unknown[];
  readonly served: boolean;
}

/** Counts the rows that no earlier job of the dry run has taken, up to COUNT_MAX, and marks them as taken. */
export async function countByKind(
  client: ClientBase,
  counted: Counted,
  state: DryRunState,
): Promise<KindCount[]> {
  const { from, values, served } = counted;
  const counts = new Map<
    number,
    { kind: number; rows: number; looked: number; topics: Map<string, number> }
  >();
  await client.query('BEGIN');
  try {
    await client.query(
      `DECLARE looked NO SCROLL CURSOR FOR
       SELECT e.seq, e.community, e.payload ${from} AND ${IS_LEFT} LIMIT ${COUNT_MAX}`,
      values,
    );
    for (let rows = PORTION_ROWS; rows === PORTION_ROWS; ) {
      const portion = await client.query<{ seq: number; community: number; payload: string }>(
        `FETCH ${PORTION_ROWS} FROM looked`,
      );
      const taken = portion.rows.map(({ seq, community, payload }) => ({
        community,
        row: { seq },
        event: JSON.parse(payload) as NostrEvent,
        bytes: Buffer.byteLength(payload),
      }));
      for (const { event } of taken) noteEvent(counts, event);
      await state.take(taken, { served });
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

// ── Expiry ─────────────────────────────────────────────────────────────────────────────────────────────────

const EXPIRED = 'FROM events e WHERE e.hidden IS NULL AND e.expires_at IS NOT NULL AND e.expires_at <= $1';
export const EXPIRED_SQL = bounded(`SELECT ${COLUMNS} ${EXPIRED} ORDER BY e.expires_at LIMIT $2`);

export function selectExpired(client: ClientBase, nowSeconds: number, limit: number): Promise<PlacedEvent[]> {
  return selectEvents(client, EXPIRED_SQL, [nowSeconds, limit]);
}

export function countExpired(
  client: ClientBase,
  nowSeconds: number,
  state: DryRunState,
): Promise<KindCount[]> {
  return countByKind(client, { from: EXPIRED, values: [nowSeconds], served: true }, state);
}

// ── History ────────────────────────────────────────────────────────────────────────────────────────────────

/** Superseded versions, by the time when they were superseded. */
const OLD_HISTORY = `FROM events e WHERE e.keep = ${Keep.history} AND e.community = $1 AND e.ingested_at < $2
    AND e.hidden = ${HIDDEN_CODES.superseded}`;
export const OLD_HISTORY_SQL = bounded(`SELECT ${COLUMNS} ${OLD_HISTORY} ORDER BY e.ingested_at LIMIT $3`);

export function selectOldHistory(
  client: ClientBase,
  community: number,
  supersededBefore: number,
  limit: number,
): Promise<PlacedEvent[]> {
  return selectEvents(client, OLD_HISTORY_SQL, [community, supersededBefore, limit]);
}

export function countOldHistory(
  client: ClientBase,
  community: number,
  supersededBefore: number,
  state: DryRunState,
): Promise<KindCount[]> {
  const counted = { from: OLD_HISTORY, values: [community, supersededBefore], served: false };
  return countByKind(client, counted, state);
}

// ── Hidden rows: deleted with their content; their dedupe rows keep the time of the purge ──────────────────

/** For a known place. Written so that the planner does not choose an index of hidden rows. */
export const IS_HIDDEN = 'coalesce(e.hidden, 0) <> 0';

/**
 * `rows` selects the places and ids, and locks them first: a row that another transaction has just taken is
 * left to that transaction.
 */
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
/**
 * A held event waits for its moderator without a limit. A removed event can be restored for some days after
 * the decision.
 */
const REMOVED = `${hiddenAs('removed')}
    AND NOT EXISTS (SELECT 1 FROM moderation_cases c
      WHERE c.community = e.community AND c.target_event = e.id AND c.status = 'held')
    AND NOT EXISTS (SELECT 1 FROM moderation_actions a
      WHERE a.community = e.community AND a.target_event = e.id
      AND a.action = 'remove' AND a.at > $2)`;
const purgeSql = (from: string) =>
  deleteHidden(`SELECT ${PLACE} ${from} ORDER BY e.hidden_at LIMIT $3 FOR UPDATE`, 'gone_at = $4');
export const PURGE_DELETED_SQL = purgeSql(AUDITED);
export const PURGE_REMOVED_SQL = purgeSql(REMOVED);

type Purge = (
  client: Db,
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

/** Purges deleted events after the audit time. The tombstone and the dedupe row keep them out (I6). */
export const purgeDeleted = purgeBy(PURGE_DELETED_SQL);
/**
 * Purges events that a moderator removed and nobody restored in time. The dedupe row keeps them out for ever.
 */
export const purgeRemoved = purgeBy(PURGE_REMOVED_SQL);

type Count = (
  client: ClientBase,
  community: number,
  hiddenBefore: number,
  state: DryRunState,
) => Promise<KindCount[]>;
const countBy =
  (from: string): Count =>
  (client, community, hiddenBefore, state) =>
    countByKind(client, { from, values: [community, hiddenBefore], served: false }, state);

export const countRemoved = countBy(REMOVED);
export const countDeleted = countBy(AUDITED);

// ── Dedupe rows ────────────────────────────────────────────────────────────────────────────────────────────

const FORGETTABLE = 'd.community = $1 AND d.gone_at IS NOT NULL AND d.gone_at <= $2 AND d.hidden = ANY ($3)';
/**
 * An id is not forgotten while its event row exists: the event, sent again, would get a second row (I3).
 * Fenced, so that the index on the place is used.
 */
const IS_THERE = `EXISTS (SELECT 1 FROM events e
      WHERE e.keep = d.keep AND e.ingested_at = d.ingested_at AND e.seq = d.seq OFFSET 0)`;
export const FORGET_SQL = `
  WITH old AS MATERIALIZED (
    SELECT d.event_id FROM event_dedupe d WHERE ${FORGETTABLE} AND NOT ${IS_THERE}
    ORDER BY d.gone_at LIMIT $4)
  DELETE FROM event_dedupe d USING old
  WHERE d.community = $1 AND d.event_id = old.event_id AND d.gone_at IS NOT NULL`;

const codes = (reasons: readonly Hidden[]) => int2Array(reasons.map((reason) => HIDDEN_CODES[reason]));

export async function forgetDedupe(
  client: ClientBase,
  community: number,
  goneBefore: number,
  reasons: readonly Hidden[],
  limit: number,
): Promise<number> {
  const values = [community, goneBefore, codes(reasons), limit];
  return (await client.query({ text: FORGET_SQL, values })).rowCount ?? 0;
}

const ERASED = `e.community = $1 AND e.hidden IN (${HIDDEN_CODES.vanished}, ${HIDDEN_CODES.erased})
  AND e.gone_at IS NOT NULL`;

/**
 * Forgets the ids of gift wraps to erased or vanished members, and of the node's own events about them. The
 * marks keep these events out.
 */
export async function forgetErased(client: ClientBase, community: number, limit: number): Promise<number> {
  const { rowCount } = await client.query(
    `DELETE FROM event_dedupe d
     WHERE d.ctid = ANY (ARRAY(SELECT e.ctid FROM event_dedupe e WHERE ${ERASED} LIMIT $2))`,
    [community, limit],
  );
  return rowCount ?? 0;
}

/** How many ids `forgetErased` would forget, by reason. */
export async function countErased(
  client: ClientBase,
  community: number,
): Promise<{ reason: Hidden; rows: number }[]> {
  const { rows } = await client.query<{ hidden: number; rows: number }>({
    text: `SELECT hidden, count(*) AS rows
      FROM (SELECT e.hidden FROM event_dedupe e WHERE ${ERASED} LIMIT ${COUNT_MAX}) r GROUP BY hidden`,
    values: [community],
  });
  return rows.map(({ hidden, rows: count }) => ({ reason: hiddenOf(hidden), rows: count }));
}

export async function countForgettable(
  client: ClientBase,
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

// ── Counts of deletions ────────────────────────────────────────────────────────────────────────────────────

/**
 * The counts of past days. `beforeDay` lies before today on the clock of every instance; only today's counts
 * are used.
 */
const PAST_QUOTAS = 'FROM deletion_quotas WHERE day < $1';

export async function forgetPastQuotas(
  client: ClientBase,
  beforeDay: number,
  limit: number,
): Promise<number> {
  const { rowCount } = await client.query(
    `DELETE FROM deletion_quotas q USING (SELECT community, author, day ${PAST_QUOTAS} LIMIT $2) past
     WHERE q.community = past.community AND q.author = past.author AND q.day = past.day`,
    [beforeDay, limit],
  );
  return rowCount ?? 0;
}

export async function countPastQuotas(client: ClientBase, beforeDay: number): Promise<number> {
  const { rows } = await client.query<{ rows: number }>(
    `SELECT count(*) AS rows FROM (SELECT 1 ${PAST_QUOTAS} LIMIT ${COUNT_MAX}) q`,
    [beforeDay],
  );
  return rows[0]!.rows;
}

// ── The live bus ───────────────────────────────────────────────────────────────────────────────────────────

export async function countBus(client: ClientBase, sentBefore: number): Promise<number> {
  const { rows } = await client.query<{ rows: number }>(
    `SELECT count(*) AS rows FROM (SELECT 1 FROM live_bus WHERE sent_at < $1 LIMIT ${COUNT_MAX}) b`,
    [sentBefore],
  );
  return rows[0]!.rows;
}
