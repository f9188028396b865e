/**
 * Writes to PostgreSQL what a copy takes from DynamoDB. Nothing is announced, and no total is changed: the
 * log and the totals are in PostgreSQL already. What is there and differs is replaced.
 */
import type { Client, ClientBase, Pool } from 'pg';
import { hexArray, int2Array, int4Array, int8Array, textArray } from '../../postgres/binary.js';
import { BEGIN_BRIEFLY, inTransaction } from '../../postgres/transaction.js';
import { removeTagsOf } from '../postgres/hide.js';
import { LANE_LOCK } from '../postgres/lane/lock.js';
import { ensurePartitionsOf } from '../postgres/partitions.js';
import { type TagHash, tagKeys } from '../postgres/tag-hash.js';
import type { NostrEvent } from '../rules/event.js';
import { expirationOf } from '../rules/expiration.js';
import { factKey } from '../rules/facts.js';
import { HIDDEN_CODES, type Hidden } from '../rules/hidden.js';
import { Keep } from '../rules/keep.js';
import type { EventRef } from '../store.js';
import type { HeadRow, KnownRow, MarkRow, TombstoneRow } from './source.sql.js';

// ── Offsets ────────────────────────────────────────────────────────────────────────────────────────────────

const WINDOW = 10_000;

/**
 * Offsets that neither the log nor an event has, the lowest first, from an offset on. They are those of
 * events that the log no longer has, so there are enough, except for events that were never announced.
 */
export async function freeOffsets(pool: Pool, from: number, count: number): Promise<number[]> {
  const { rows: heads } = await pool.query<{ head: number }>('SELECT last_seq AS head FROM lane_state');
  const free: number[] = [];
  for (let at = Math.max(from, 1); at <= heads[0]!.head && free.length < count; at += WINDOW) {
    const { rows } = await pool.query<{ seq: number }>(
      `SELECT generate_series($1::bigint, $2::bigint) AS seq
       EXCEPT SELECT seq FROM events_outbox WHERE seq BETWEEN $1 AND $2
       EXCEPT SELECT seq FROM events WHERE seq BETWEEN $1 AND $2
       ORDER BY seq LIMIT $3`,
      [at, Math.min(at + WINDOW - 1, heads[0]!.head), count - free.length],
    );
    free.push(...rows.map(({ seq }) => seq));
  }
  return free;
}

/** New offsets without a change, as a mark has one. The caller may hold the lane in another session. */
export async function takeOffsets(pool: Pool, count: number, isLaneHeld: boolean): Promise<number[]> {
  const head = await inTransaction(pool, BEGIN_BRIEFLY, async (tx) => {
    if (!isLaneHeld) await tx.query('SELECT pg_advisory_xact_lock($1)', [LANE_LOCK]);
    const { rows } = await tx.query<{ head: number }>(
      'UPDATE lane_state SET last_seq = last_seq + $1 RETURNING last_seq AS head',
      [count],
    );
    return rows[0]!.head;
  });
  return Array.from({ length: count }, (_, at) => (head as number) - count + 1 + at);
}

// ── Events ─────────────────────────────────────────────────────────────────────────────────────────────────

/** What is copied of an item of `Events` (events/dynamodb/items.ts). */
export interface CopiedItem {
  readonly community: number;
  readonly event_id: string;
  readonly pubkey: string;
  readonly kind: number;
  readonly created_at: number;
  readonly ingested_at: number;
  readonly keep: number;
  readonly payload?: string;
  readonly bound?: readonly string[];
  readonly hidden_as?: Hidden;
  readonly hidden_at?: number;
  readonly gone_at?: number;
}

export interface NewEvent {
  readonly item: CopiedItem;
  /** 0 for an event that was purged. */
  readonly seq: number;
  /** What is there of it. */
  readonly known: KnownRow | undefined;
}

/** A superseded version is in the month in which it was superseded, because its days count from then. */
function placeOf({ hidden_as, hidden_at, ingested_at, keep }: CopiedItem) {
  return hidden_as === 'superseded'
    ? { keep: Keep.history, ingestedAt: hidden_at ?? ingested_at }
    : { keep: keep as Keep, ingestedAt: ingested_at };
}

export async function writeEvents(
  { pool, client, tagHash }: { readonly pool: Pool; readonly client: Client; readonly tagHash: TagHash },
  events: readonly NewEvent[],
): Promise<void> {
  if (events.length === 0) return;
  const stored = events.filter(({ item }) => item.payload !== undefined);
  await ensurePartitionsOf(
    client,
    stored.map(({ item }) => placeOf(item)),
  );
  await inTransaction(pool, BEGIN_BRIEFLY, async (tx) => {
    await removeRows(
      tx,
      events.flatMap(({ known }) => known ?? []),
      tagHash,
    );
    await writeIds(tx, events);
    await writeRows(tx, stored);
    await writeTags(tx, stored, tagHash);
    return true;
  });
}

const codeOf = ({ hidden_as }: CopiedItem) => (hidden_as === undefined ? 0 : HIDDEN_CODES[hidden_as]);

async function writeIds(tx: ClientBase, events: readonly NewEvent[]): Promise<void> {
  await tx.query(
    `INSERT INTO event_dedupe AS d
       (seq, ingested_at, first_seen_at, gone_at, community, keep, hidden, event_id, author)
     SELECT seq, ingested_at, first_seen_at, nullif(gone_at, 0), community, keep, nullif(hidden, 0), id,
       author
     FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::int[], $6::smallint[],
       $7::smallint[], $8::bytea[], $9::bytea[])
       AS n (seq, ingested_at, first_seen_at, gone_at, community, keep, hidden, id, author)
     ON CONFLICT (community, event_id) DO UPDATE
     SET seq = excluded.seq, ingested_at = excluded.ingested_at, first_seen_at = excluded.first_seen_at,
       gone_at = excluded.gone_at, keep = excluded.keep, hidden = excluded.hidden, author = excluded.author`,
    [
      int8Array(events.map(({ seq }) => seq)),
      int8Array(events.map(({ item }) => placeOf(item).ingestedAt)),
      int8Array(events.map(({ item }) => item.ingested_at)),
      int8Array(events.map(({ item }) => (item.payload === undefined ? item.gone_at! : 0))),
      int4Array(events.map(({ item }) => item.community)),
      int2Array(events.map(({ item }) => placeOf(item).keep)),
      int2Array(events.map(({ item }) => codeOf(item))),
      hexArray(events.map(({ item }) => item.event_id)),
      hexArray(events.map(({ item }) => item.pubkey)),
    ],
  );
}

async function writeRows(tx: ClientBase, events: readonly NewEvent[]): Promise<void> {
  const items = events.map(({ item }) => item);
  await tx.query(
    `INSERT INTO events (seq, ingested_at, created_at, community, kind, keep, hidden, hidden_at, expires_at,
       id, pubkey, payload, bound)
     SELECT seq, ingested_at, created_at, community, kind, keep, nullif(hidden, 0),
       CASE WHEN hidden <> 0 THEN hidden_at END, nullif(expires_at, 0), id, pubkey, payload,
       string_to_array(bound, E'\\n')
     FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::int[], $5::int[], $6::smallint[],
       $7::smallint[], $8::bigint[], $9::bigint[], $10::bytea[], $11::bytea[], $12::text[], $13::text[])
       AS n (seq, ingested_at, created_at, community, kind, keep, hidden, hidden_at, expires_at, id, pubkey,
         payload, bound)`,
    [
      int8Array(events.map(({ seq }) => seq)),
      int8Array(items.map((item) => placeOf(item).ingestedAt)),
      int8Array(items.map(({ created_at }) => created_at)),
      int4Array(items.map(({ community }) => community)),
      int4Array(items.map(({ kind }) => kind)),
      int2Array(items.map((item) => placeOf(item).keep)),
      int2Array(items.map(codeOf)),
      int8Array(items.map(({ hidden_at, ingested_at }) => hidden_at ?? ingested_at)),
      int8Array(items.map((item) => expirationOf(eventIn(item)) ?? 0)),
      hexArray(items.map(({ event_id }) => event_id)),
      hexArray(items.map(({ pubkey }) => pubkey)),
      textArray(items.map(({ payload }) => payload)),
      textArray(items.map(({ bound }) => bound?.join('\n'))),
    ],
  );
}

const eventIn = ({ payload }: Pick<CopiedItem, 'payload'>) => JSON.parse(payload!) as NostrEvent;

/** Only served events have tags. */
async function writeTags(tx: ClientBase, events: readonly NewEvent[], tagHash: TagHash): Promise<void> {
  const tags = events
    .filter(({ item }) => item.hidden_as === undefined)
    .flatMap(({ item, seq }) =>
      tagKeys(item.community, eventIn(item), tagHash, item.bound).map((tag) => ({ tag, item, seq })),
    );
  if (tags.length === 0) return;
  await tx.query(
    `INSERT INTO event_tags (tag, created_at, seq, ingested_at, community, keep)
     SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::int[], $6::smallint[])`,
    [
      int8Array(tags.map(({ tag }) => tag)),
      int8Array(tags.map(({ item }) => item.created_at)),
      int8Array(tags.map(({ seq }) => seq)),
      int8Array(tags.map(({ item }) => item.ingested_at)),
      int4Array(tags.map(({ item }) => item.community)),
      int2Array(tags.map(({ item }) => item.keep)),
    ],
  );
}

async function removeRows(tx: ClientBase, rows: readonly KnownRow[], tagHash: TagHash): Promise<void> {
  const placed = rows.flatMap(({ community, place, event }) =>
    event === undefined ? [] : [{ community, row: place, event: eventIn(event), bound: event.bound }],
  );
  if (placed.length === 0) return;
  await removeTagsOf(tx, placed, tagHash);
  await tx.query(
    `DELETE FROM events e USING unnest($1::bigint[], $2::bigint[], $3::smallint[])
       AS g (seq, ingested_at, keep)
     WHERE e.seq = g.seq AND e.ingested_at = g.ingested_at AND e.keep = g.keep`,
    [
      int8Array(placed.map(({ row }) => row.seq)),
      int8Array(placed.map(({ row }) => row.ingestedAt)),
      int2Array(placed.map(({ row }) => row.keep)),
    ],
  );
}

/** Deletes events that DynamoDB no longer has, with their ids. */
export async function removeEvents(pool: Pool, rows: readonly KnownRow[], tagHash: TagHash): Promise<void> {
  if (rows.length === 0) return;
  await inTransaction(pool, BEGIN_BRIEFLY, async (tx) => {
    await removeRows(tx, rows, tagHash);
    await tx.query(
      `DELETE FROM event_dedupe d USING unnest($1::int[], $2::bytea[]) AS g (community, id)
       WHERE d.community = g.community AND d.event_id = g.id`,
      refValues(rows),
    );
    return true;
  });
}

const refValues = (refs: readonly EventRef[]) => [
  int4Array(refs.map(({ community }) => community)),
  hexArray(refs.map(({ id }) => id)),
];

/** Each event once; the last of several. */
export function unique<T extends { readonly item: CopiedItem }>(events: readonly T[]): T[] {
  return [...new Map(events.map((one) => [factKey(one.item.community, one.item.event_id), one])).values()];
}

// ── Heads, tombstones, marks: each returns how many rows differed ──────────────────────────────────────────

/** Of a version that was deleted, DynamoDB keeps neither. */
export const KIND_UNKNOWN = -1;

export interface NewHead extends HeadRow {
  readonly kind: number;
  readonly topics: readonly string[];
}

export async function writeHeads(pool: Pool, heads: readonly NewHead[]): Promise<number> {
  const { rowCount } = await pool.query(
    `INSERT INTO event_heads AS h (community, kind, created_at, address_hash, pubkey, event_id, topics)
     SELECT community, kind, created_at, address_hash, pubkey, event_id, string_to_array(topics, E'\\n')
     FROM unnest($1::int[], $2::int[], $3::bigint[], $4::bytea[], $5::bytea[], $6::bytea[], $7::text[])
       AS n (community, kind, created_at, address_hash, pubkey, event_id, topics)
     ON CONFLICT (community, address_hash) DO UPDATE
     SET kind = CASE excluded.kind WHEN ${KIND_UNKNOWN} THEN h.kind ELSE excluded.kind END,
       created_at = excluded.created_at, pubkey = excluded.pubkey, event_id = excluded.event_id,
       topics = excluded.topics
     WHERE (h.event_id, h.created_at, h.pubkey)
       IS DISTINCT FROM (excluded.event_id, excluded.created_at, excluded.pubkey)`,
    [
      int4Array(heads.map(({ community }) => community)),
      int4Array(heads.map(({ kind }) => kind)),
      int8Array(heads.map(({ createdAt }) => createdAt)),
      hexArray(heads.map(({ addressHash }) => addressHash)),
      hexArray(heads.map(({ pubkey }) => pubkey)),
      hexArray(heads.map(({ id }) => id)),
      textArray(heads.map(({ topics }) => topics.join('\n'))),
    ],
  );
  return rowCount ?? 0;
}

export async function removeHeads(pool: Pool, heads: readonly HeadRow[]): Promise<void> {
  await pool.query(
    `DELETE FROM event_heads h USING unnest($1::int[], $2::bytea[]) AS g (community, address_hash)
     WHERE h.community = g.community AND h.address_hash = g.address_hash`,
    [
      int4Array(heads.map(({ community }) => community)),
      hexArray(heads.map(({ addressHash }) => addressHash)),
    ],
  );
}

export async function writeTombstones(pool: Pool, tombstones: readonly TombstoneRow[]): Promise<number> {
  const { rowCount } = await pool.query(
    `INSERT INTO deletion_tombstones AS t
       (community, is_address, requested_at, target, author, deletion_event)
     SELECT community, is_address::boolean, requested_at, target, author, deletion_event
     FROM unnest($1::int[], $2::int[], $3::bigint[], $4::bytea[], $5::bytea[], $6::bytea[])
       AS n (community, is_address, requested_at, target, author, deletion_event)
     ON CONFLICT (community, target, author) DO UPDATE
     SET is_address = excluded.is_address, requested_at = excluded.requested_at,
       deletion_event = excluded.deletion_event
     WHERE (t.is_address, t.requested_at, t.deletion_event)
       IS DISTINCT FROM (excluded.is_address, excluded.requested_at, excluded.deletion_event)`,
    [
      int4Array(tombstones.map(({ community }) => community)),
      int4Array(tombstones.map(({ isAddress }) => Number(isAddress))),
      int8Array(tombstones.map(({ requestedAt }) => requestedAt)),
      hexArray(tombstones.map(({ target }) => target)),
      hexArray(tombstones.map(({ author }) => author)),
      hexArray(tombstones.map(({ requestId }) => requestId)),
    ],
  );
  return rowCount ?? 0;
}

export async function removeTombstones(pool: Pool, tombstones: readonly TombstoneRow[]): Promise<void> {
  await pool.query(
    `DELETE FROM deletion_tombstones t USING unnest($1::int[], $2::bytea[], $3::bytea[])
       AS g (community, target, author)
     WHERE t.community = g.community AND t.target = g.target AND t.author = g.author`,
    [
      int4Array(tombstones.map(({ community }) => community)),
      hexArray(tombstones.map(({ target }) => target)),
      hexArray(tombstones.map(({ author }) => author)),
    ],
  );
}

/** The control plane has marks in PostgreSQL whatever the store. */
export async function writeMarks(
  pool: Pool,
  marks: readonly MarkRow[],
  { tagHash, now }: { readonly tagHash: TagHash; readonly now: number },
): Promise<number> {
  const { rowCount } = await pool.query(
    `INSERT INTO vanish_marks AS v (community, until, recipient_tag, pubkey, request, erased_at)
     SELECT community, until, recipient_tag, pubkey, nullif(request, ''::bytea),
       CASE pending WHEN 0 THEN $7::bigint END
     FROM unnest($1::int[], $2::bigint[], $3::bigint[], $4::bytea[], $5::bytea[], $6::int[])
       AS n (community, until, recipient_tag, pubkey, request, pending)
     ON CONFLICT (community, pubkey) DO UPDATE
     SET until = excluded.until, request = excluded.request, erased_at = excluded.erased_at
     WHERE (v.until, v.request, v.erased_at IS NULL)
       IS DISTINCT FROM (excluded.until, excluded.request, excluded.erased_at IS NULL)`,
    [
      int4Array(marks.map(({ community }) => community)),
      int8Array(marks.map(({ until }) => until)),
      int8Array(marks.map(({ community, pubkey }) => tagHash(community, 'p', pubkey))),
      hexArray(marks.map(({ pubkey }) => pubkey)),
      hexArray(marks.map(({ requestId }) => requestId ?? '')),
      int4Array(marks.map(({ isPending }) => Number(isPending))),
      now,
    ],
  );
  return rowCount ?? 0;
}

// ── After the switch ───────────────────────────────────────────────────────────────────────────────────────

/** Jobs continue at positions of the store that they have read: times in one, offsets in the other. */
export async function resetSweeps(pool: Pool): Promise<void> {
  await pool.query(
    `UPDATE node_state SET value = '0'
     WHERE key = 'retention_cursor' OR starts_with(key, 'capacity_cursor_')`,
  );
}

/** Forgets the shards of a stream whose table was deleted. */
export async function forgetStream(pool: Pool): Promise<void> {
  await pool.query('DELETE FROM stream_shards');
}
