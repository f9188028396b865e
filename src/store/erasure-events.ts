/**
 * The events of one who is erased, or of a whole community: found by an index, in bounded batches. What is served is only selected here:
 * the lane hides, purges and announces it (I8). What is hidden already was announced then, and is deleted here.
 */
import type { Client } from 'pg';
import { KIND_VANISH } from '../core/classify.js';
import { KIND_GIFT_WRAP } from '../core/deletion.js';
import { HIDDEN_CODES } from '../core/hidden.js';
import type { RowRef } from '../core/plan.js';
import { hexArray, int2Array, int4Array, int8Array } from './binary.js';
import { bytes } from './config-change.js';
import { isLabelOfErased } from './erasure-rows.js';
import { dedupeOf, eventAt } from './query.js';
import { bounded, COLUMNS, deleteHidden, IS_HIDDEN, PLACE, type SweptRow, selectEvents } from './sweeps.js';

/** Rows that a search looks through in one statement, most of which may not be what it looks for. */
const PAGE_ROWS = 1_000;

export interface Authored {
  readonly community: number;
  readonly pubkey: string;
  /** Seconds. */
  readonly until: number;
  /** The key of ["p", pubkey] in event_tags: 64 bits, and so a text here. */
  readonly recipient: string;
  /** The request to vanish itself stays for the operator. */
  readonly sparesRequest: boolean;
}

const OF_AUTHOR = 'e.community = $1 AND e.pubkey = $2 AND e.created_at <= $3';
const spared = (column: string) => `(NOT $4 OR ${column} <> ${KIND_VANISH})`;
const ofAuthor = ({ community, pubkey, until, sparesRequest }: Authored) => [
  community,
  bytes(pubkey),
  until,
  sparesRequest,
];

export const SERVED_OF_SQL = bounded(
  `SELECT ${COLUMNS} FROM events e WHERE e.hidden IS NULL AND ${OF_AUTHOR} AND ${spared('e.kind')} ORDER BY e.created_at DESC LIMIT $5`,
);
const AS_ERASED = `hidden = ${HIDDEN_CODES.erased}, gone_at`;
export const HIDDEN_OF_SQL = deleteHidden(
  `SELECT ${PLACE} FROM events e WHERE e.hidden IS NOT NULL AND ${OF_AUTHOR} AND ${spared('e.kind')} LIMIT $5 FOR UPDATE`,
  `${AS_ERASED} = $6`,
);

export function selectServedOf(client: Client, author: Authored, limit: number): Promise<SweptRow[]> {
  return selectEvents(client, SERVED_OF_SQL, [...ofAuthor(author), limit]);
}

export async function purgeHiddenOf(
  client: Client,
  author: Authored,
  now: number,
  limit: number,
): Promise<number> {
  const values = [...ofAuthor(author), limit, now];
  return (await client.query({ text: HIDDEN_OF_SQL, values })).rowCount ?? 0;
}

// ── Gift wraps to them ────────────────────────────────────────────────────────────────────────────────────────────

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

export interface Cursor {
  readonly createdAt: number;
  readonly seq: number;
}

export interface Page {
  readonly found: readonly RowRef[];
  /** Where the next page begins, or undefined at the end. */
  readonly next: Cursor | undefined;
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
const needle = ({ pubkey }: Authored) => `["p","${pubkey}"`;

/** From the newest down. */
export function pageOfWraps(client: Client, author: Authored, after: Cursor): Promise<Page> {
  const values = [author.recipient, after.createdAt, after.seq, author.community, needle(author)];
  return readPage(client, WRAPS_SQL, values);
}

/** From the first row up. */
export function pageOfHiddenWraps(client: Client, author: Authored, after: Cursor): Promise<Page> {
  return readPage(client, HIDDEN_WRAPS_SQL, [author.community, after.seq, author.until, needle(author)]);
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
  `${AS_ERASED} = $4`,
);

export async function purgeHiddenAt(client: Client, places: readonly RowRef[], now: number): Promise<number> {
  if (places.length === 0) return 0;
  const values = [...placeValues(places), now];
  return (await client.query({ text: PURGE_AT_SQL, values })).rowCount ?? 0;
}

/** Those of these events that are hidden, with what the node had told by them. */
const PURGE_BY_ID_SQL = deleteHidden(
  `SELECT ${PLACE} FROM unnest($1::int[], $2::bytea[]) AS asked (community, event_id) ${dedupeOf('asked.community', 'asked.event_id')}
    JOIN events e ON e.keep = d.keep AND e.ingested_at = d.ingested_at AND e.seq = d.seq WHERE ${IS_HIDDEN} FOR UPDATE OF e`,
  `${AS_ERASED} = $3`,
);

export async function purgeHiddenById(
  client: Client,
  refs: readonly { readonly community: number; readonly id: string }[],
  now: number,
): Promise<void> {
  await client.query({
    text: PURGE_BY_ID_SQL,
    values: [int4Array(refs.map(({ community }) => community)), hexArray(refs.map(({ id }) => id)), now],
  });
}

// ── What the node itself has said about them ──────────────────────────────────────────────────────────────────────

/** Labels and assertions are signed by keys of the node, and name whom they are about. One who vanishes and comes back is told of anew. */
const BY_NODE = `e.community = $1 AND e.pubkey IN (SELECT k.pubkey FROM node_keys k WHERE k.community = $1)
  AND e.created_at <= $3 AND strpos(e.payload, $2) > 0`;
const NODE_SERVED_SQL = `SELECT e.seq, e.ingested_at, e.keep FROM events e WHERE e.hidden IS NULL AND ${BY_NODE} LIMIT $4`;
const NODE_HIDDEN_SQL = deleteHidden(
  `SELECT ${PLACE} FROM events e WHERE e.hidden IS NOT NULL AND ${BY_NODE} LIMIT $4 FOR UPDATE`,
  `${AS_ERASED} = $5`,
);
const ofNode = ({ community, pubkey, until }: Authored) => [community, pubkey, until];

/** Where they lie. Looked for outside the lane: the node may have said much about others. */
export async function findNodesWords(client: Client, about: Authored, limit: number): Promise<RowRef[]> {
  const { rows } = await client.query<{ seq: number; ingested_at: number; keep: number }>({
    text: NODE_SERVED_SQL,
    values: [...ofNode(about), limit],
  });
  return rows.map(({ seq, ingested_at, keep }) => ({ seq, ingestedAt: ingested_at, keep }));
}

export async function purgeNodesHiddenWords(
  client: Client,
  about: Authored,
  now: number,
  limit: number,
): Promise<number> {
  const values = [...ofNode(about), limit, now];
  return (await client.query({ text: NODE_HIDDEN_SQL, values })).rowCount ?? 0;
}

// ── Counting ──────────────────────────────────────────────────────────────────────────────────────────────────────

const count = async (client: Client, text: string, values: unknown[]): Promise<number> => {
  const { rows } = await client.query<{ count: number }>({ text, values });
  return rows[0]!.count;
};

export async function countEventsOf(client: Client, author: Authored): Promise<number> {
  const own = `SELECT count(*) AS count FROM events e WHERE e.hidden IS NULL AND ${OF_AUTHOR} AND ${spared('e.kind')}`;
  const wraps = `SELECT count(*) AS count FROM (SELECT * FROM event_tags g WHERE ${TAGGED_BEFORE} OFFSET 0) g
    CROSS JOIN LATERAL (${PLACED}) e WHERE ${IS_WRAP} AND e.pubkey <> $6`;
  const hiddenWraps = `SELECT count(*) AS count FROM events e WHERE e.community = $1 AND e.hidden IS NOT NULL
    AND e.kind = ${KIND_GIFT_WRAP} AND e.created_at <= $3 AND strpos(e.payload, $4) > 0 AND e.pubkey <> $2`;
  const { community, pubkey, until, recipient } = author;
  const key = bytes(pubkey);
  const counts = [
    await count(client, own, ofAuthor(author)),
    await count(client, own.replace('hidden IS NULL', 'hidden IS NOT NULL'), ofAuthor(author)),
    await count(client, wraps, [recipient, until, 0, community, needle(author), key]),
    await count(client, hiddenWraps, [community, key, until, needle(author)]),
    author.sparesRequest
      ? 0
      : await count(client, `SELECT count(*) AS count FROM events e WHERE ${BY_NODE}`, ofNode(author)),
  ];
  return counts.reduce((sum, some) => sum + some, 0);
}

// ── A community ───────────────────────────────────────────────────────────────────────────────────────────────────

const SERVED_IN_SQL = bounded(
  `SELECT ${COLUMNS} FROM events e WHERE e.community = $1 AND e.hidden IS NULL ORDER BY e.created_at DESC LIMIT $2`,
);
const HIDDEN_IN_SQL = deleteHidden(
  `SELECT ${PLACE} FROM events e WHERE e.community = $1 AND e.hidden IS NOT NULL LIMIT $2 FOR UPDATE`,
  `${AS_ERASED} = $3`,
);

export function selectServedIn(client: Client, community: number, limit: number): Promise<SweptRow[]> {
  return selectEvents(client, SERVED_IN_SQL, [community, limit]);
}

export async function purgeHiddenIn(
  client: Client,
  community: number,
  now: number,
  limit: number,
): Promise<number> {
  return (await client.query({ text: HIDDEN_IN_SQL, values: [community, limit, now] })).rowCount ?? 0;
}

export async function countEventsIn(client: Client, community: number): Promise<number> {
  return (
    (await count(client, 'SELECT count(*) AS count FROM events WHERE community = $1 AND hidden IS NULL', [
      community,
    ])) +
    (await count(client, 'SELECT count(*) AS count FROM events WHERE community = $1 AND hidden IS NOT NULL', [
      community,
    ]))
  );
}

// ── The outbox ────────────────────────────────────────────────────────────────────────────────────────────────────

/** Consumers that have not come to this number yet, a generation in the making included. */
export async function consumersBehind(client: Client, seq: number): Promise<string[]> {
  const { rows } = await client.query<{ consumer: string }>(
    `SELECT o.consumer FROM consumer_offsets o LEFT JOIN consumer_rebuilds r USING (consumer)
     WHERE r.reason IS DISTINCT FROM '${MISSED}' AND (o.last_seq < $1 OR (r.started_at IS NOT NULL AND coalesce(r.last_seq, r.pinned_seq, 0) < $1)) ORDER BY 1`,
    [seq],
  );
  return rows.map(({ consumer }) => consumer);
}

const MISSED = 'rows were scrubbed after an erasure before it had read them';

/** Whoever has not read in all this time begins anew, when it comes: it is told, and skips nothing silently. */
export async function leaveBehind(client: Client, consumers: readonly string[], now: number): Promise<void> {
  await client.query(
    `INSERT INTO consumer_rebuilds (consumer, generation, reason, requested_at, updated_at)
     SELECT consumer, generation + 1, $2, $3, $3 FROM consumer_offsets WHERE consumer = ANY ($1)
     ON CONFLICT (consumer) DO UPDATE SET reason = excluded.reason, started_at = NULL, pinned_seq = NULL, scanned_seq = 0, last_seq = NULL`,
    [consumers, MISSED, now],
  );
}

/** The highest number of the outbox that names the subject, or undefined when none does. */
export async function lastOutboxSeq(
  client: Client,
  community: number,
  author: { readonly pubkey: string; readonly until: number } | undefined,
): Promise<number | undefined> {
  const { rows } = await client.query<{ seq: number | null }>({
    text: `SELECT max(seq) AS seq FROM events_outbox WHERE community = $1 AND op <> 'scrubbed' ${ofOutbox(author)}`,
    values: outboxValues(community, author),
  });
  return rows[0]!.seq ?? undefined;
}

type OutboxAuthor = { readonly pubkey: string; readonly until: number } | undefined;
/** Their own, and what the node has said under an address that names them, or an event of theirs. */
const ofOutbox = (author: OutboxAuthor) =>
  author === undefined
    ? ''
    : `AND ingested_at >= 0 AND created_at <= $3 AND (author = $2 OR (author IN (SELECT k.pubkey FROM node_keys k WHERE k.community = $1)
        AND (strpos(effective_key, $4) > 0 OR ${isLabelOfErased('events_outbox')})))`;
const outboxValues = (community: number, author: OutboxAuthor): unknown[] =>
  author === undefined ? [community] : [community, bytes(author.pubkey), author.until, author.pubkey];

/** The numbers stay: who reads them later learns that something was erased here, and no more. */
export async function scrubOutbox(
  client: Client,
  community: number,
  author: OutboxAuthor,
  limit: number,
): Promise<number> {
  const { rowCount } = await client.query({
    text: `UPDATE events_outbox o SET op = 'scrubbed', reason = NULL, event_id = '', author = '', topics = '{}', effective_key = NULL
      WHERE o.seq = ANY (ARRAY(SELECT seq FROM events_outbox
        WHERE community = $1 AND op <> 'scrubbed' ${ofOutbox(author)} LIMIT ${limit}))`,
    values: outboxValues(community, author),
  });
  return rowCount ?? 0;
}

export function countOutbox(client: Client, community: number, author: OutboxAuthor): Promise<number> {
  return count(
    client,
    `SELECT count(*) AS count FROM events_outbox WHERE community = $1 AND op <> 'scrubbed' ${ofOutbox(author)}`,
    outboxValues(community, author),
  );
}
