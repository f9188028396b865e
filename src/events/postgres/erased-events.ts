/**
 * Finds the events of an erased member or of a whole community, by an index and in bounded batches (I14).
 * Served events are only selected here: the lane purges and announces them (I8). Hidden events were announced
 * when they were hidden, and are deleted here.
 */
import type { ClientBase } from 'pg';
import { hexArray, int4Array } from '../../postgres/binary.js';
import { bytes, type Db } from '../../postgres/values.js';
import { KIND_GIFT_WRAP } from '../rules/deletion.js';
import type { RowRef } from '../rules/facts.js';
import { HIDDEN_CODES } from '../rules/hidden.js';
import type { Authored, FenceOf, Owned } from '../store.js';
import { dedupeOf } from './places.js';
import { AT_PLACES, OF_AUTHOR, ofAuthor, placeValues, spared } from './selections.js';
import { deleteHidden, IS_HIDDEN, PLACE } from './sweeps.js';

/** Rows that one statement examines; most of them may not match. */
const PAGE_ROWS = 1_000;

/** The author, and the key of ["p", pubkey] in event_tags: 64 bits, so it is a text here. */
export interface ErasedAuthor extends Authored {
  readonly recipient: string;
}

const AS_ERASED = `hidden = ${HIDDEN_CODES.erased}, gone_at`;
export const HIDDEN_OF_SQL = deleteHidden(
  `SELECT ${PLACE} FROM events e WHERE e.hidden IS NOT NULL AND ${OF_AUTHOR} AND ${spared('e.kind')}
    LIMIT $5 FOR UPDATE`,
  `${AS_ERASED} = $6`,
);

export async function purgeHiddenOf(
  client: ClientBase,
  author: ErasedAuthor,
  now: number,
  limit: number,
): Promise<number> {
  const values = [...ofAuthor(author), limit, now];
  return (await client.query({ text: HIDDEN_OF_SQL, values })).rowCount ?? 0;
}

// ── Gift wraps to them ─────────────────────────────────────────────────────────────────────────────────────

/** Most `p` tags of a recipient are on events that are no gift wraps, so they are read page by page. */
const TAGGED_BEFORE = `g.tag = $1::bigint AND g.created_at <= $2 AND (g.created_at < $2 OR g.seq > $3)`;
const IS_WRAP = `e.community = $4 AND e.hidden IS NULL AND e.kind = ${KIND_GIFT_WRAP}
  AND strpos(e.payload, $5) > 0`;
const PLACED = `SELECT * FROM events at
  WHERE at.keep = g.keep AND at.ingested_at = g.ingested_at AND at.seq = g.seq OFFSET 0`;
export const WRAPS_SQL = `
  SELECT g.created_at, g.seq, g.ingested_at, g.keep,
    EXISTS (SELECT 1 FROM (${PLACED}) e WHERE ${IS_WRAP}) AS found
  FROM (SELECT * FROM event_tags g WHERE ${TAGGED_BEFORE}
    ORDER BY g.created_at DESC, g.seq LIMIT ${PAGE_ROWS}) g
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

async function readPage(client: ClientBase, text: string, values: unknown[]): Promise<Page> {
  const { rows } = await client.query<PageRow>({ text, values });
  const last = rows.length < PAGE_ROWS ? undefined : rows.at(-1);
  return {
    found: rows
      .filter((row) => row.found)
      .map(({ seq, ingested_at, keep }) => ({ seq, ingestedAt: ingested_at, keep })),
    next: last && { createdAt: last.created_at, seq: last.seq },
  };
}

/** As `["p","…"` stands in a payload exactly when such a tag is there (events/postgres/read/query.ts). */
const needle = ({ pubkey }: ErasedAuthor) => `["p","${pubkey}"`;

/** From the newest down. */
export function pageOfWraps(client: ClientBase, author: ErasedAuthor, after: Cursor): Promise<Page> {
  const values = [author.recipient, after.createdAt, after.seq, author.community, needle(author)];
  return readPage(client, WRAPS_SQL, values);
}

/** From the first row up. */
export function pageOfHiddenWraps(client: ClientBase, author: ErasedAuthor, after: Cursor): Promise<Page> {
  return readPage(client, HIDDEN_WRAPS_SQL, [author.community, after.seq, author.until, needle(author)]);
}

export const PURGE_AT_SQL = deleteHidden(
  `SELECT ${PLACE} FROM ${AT_PLACES}
    JOIN events e ON e.keep = asked.keep AND e.ingested_at = asked.ingested_at AND e.seq = asked.seq
    WHERE ${IS_HIDDEN} FOR UPDATE OF e`,
  `${AS_ERASED} = $4`,
);

export async function purgeHiddenAt(
  client: ClientBase,
  places: readonly RowRef[],
  now: number,
): Promise<number> {
  if (places.length === 0) return 0;
  const values = [...placeValues(places), now];
  return (await client.query({ text: PURGE_AT_SQL, values })).rowCount ?? 0;
}

/** Those of these events that are hidden. */
const PURGE_BY_ID_SQL = deleteHidden(
  `SELECT ${PLACE} FROM unnest($1::int[], $2::bytea[]) AS asked (community, event_id)
    ${dedupeOf('asked.community', 'asked.event_id')}
    JOIN events e ON e.keep = d.keep AND e.ingested_at = d.ingested_at AND e.seq = d.seq
    WHERE ${IS_HIDDEN} FOR UPDATE OF e`,
  `${AS_ERASED} = $3`,
);

export async function purgeHiddenById(
  client: Db,
  refs: readonly { readonly community: number; readonly id: string }[],
  now: number,
): Promise<void> {
  await client.query({
    text: PURGE_BY_ID_SQL,
    values: [int4Array(refs.map(({ community }) => community)), hexArray(refs.map(({ id }) => id)), now],
  });
}

// ── Events that the node has signed about them ────────────────────────────────────────────────────────────

/**
 * Labels and assertions are signed by keys of the node, and name whom they are about. The node signs new ones
 * about a member who vanishes and comes back.
 */
const BY_NODE = `e.community = $1
  AND e.pubkey = ANY (ARRAY(SELECT k.pubkey FROM node_keys k WHERE k.community = $1))
  AND e.created_at <= $3 AND strpos(e.payload, $2) > 0`;
const NODE_SERVED_SQL = `SELECT e.seq, e.ingested_at, e.keep FROM events e
  WHERE e.hidden IS NULL AND ${BY_NODE} LIMIT $4`;
const NODE_HIDDEN_SQL = deleteHidden(
  `SELECT ${PLACE} FROM events e WHERE e.hidden IS NOT NULL AND ${BY_NODE} LIMIT $4 FOR UPDATE`,
  `${AS_ERASED} = $5`,
);
const ofNode = ({ community, pubkey, until }: ErasedAuthor) => [community, pubkey, until];

/** Their places. Searched outside the lane, because the node may have signed many about others. */
export async function findNodesWords(
  client: ClientBase,
  about: ErasedAuthor,
  limit: number,
): Promise<RowRef[]> {
  const { rows } = await client.query<{ seq: number; ingested_at: number; keep: number }>({
    text: NODE_SERVED_SQL,
    values: [...ofNode(about), limit],
  });
  return rows.map(({ seq, ingested_at, keep }) => ({ seq, ingestedAt: ingested_at, keep }));
}

export async function purgeNodesHiddenWords(
  client: ClientBase,
  about: ErasedAuthor,
  now: number,
  limit: number,
): Promise<number> {
  const values = [...ofNode(about), limit, now];
  return (await client.query({ text: NODE_HIDDEN_SQL, values })).rowCount ?? 0;
}

// ── Counting ───────────────────────────────────────────────────────────────────────────────────────────────

const count = async (client: ClientBase, text: string, values: unknown[]): Promise<number> => {
  const { rows } = await client.query<{ count: number }>({ text, values });
  return rows[0]!.count;
};

export async function countEventsOf(client: ClientBase, author: ErasedAuthor): Promise<number> {
  const own = `SELECT count(*) AS count FROM events e WHERE e.hidden IS NULL AND ${OF_AUTHOR}
    AND ${spared('e.kind')}`;
  const wraps = `SELECT count(*) AS count FROM (SELECT * FROM event_tags g WHERE ${TAGGED_BEFORE} OFFSET 0) g
    CROSS JOIN LATERAL (${PLACED}) e WHERE ${IS_WRAP} AND e.pubkey <> $6`;
  const hiddenWraps = `SELECT count(*) AS count FROM events e WHERE e.community = $1 AND e.hidden IS NOT NULL
    AND e.kind = ${KIND_GIFT_WRAP} AND e.created_at <= $3 AND strpos(e.payload, $4) > 0 AND e.pubkey <> $2`;
  const byNode = `SELECT count(*) AS count FROM events e WHERE e.hidden IS NULL AND ${BY_NODE}`;
  const hidden = (served: string) => served.replace('hidden IS NULL', 'hidden IS NOT NULL');
  const { community, pubkey, until, recipient, sparesRequest } = author;
  const key = bytes(pubkey);
  const counts = [
    await count(client, own, ofAuthor(author)),
    await count(client, hidden(own), ofAuthor(author)),
    await count(client, wraps, [recipient, until, 0, community, needle(author), key]),
    await count(client, hiddenWraps, [community, key, until, needle(author)]),
    sparesRequest ? 0 : await count(client, byNode, ofNode(author)),
    sparesRequest ? 0 : await count(client, hidden(byNode), ofNode(author)),
  ];
  return counts.reduce((sum, some) => sum + some, 0);
}

// ── A community ────────────────────────────────────────────────────────────────────────────────────────────

const HIDDEN_IN_SQL = deleteHidden(
  `SELECT ${PLACE} FROM events e WHERE e.community = $1 AND e.hidden IS NOT NULL LIMIT $2 FOR UPDATE`,
  `${AS_ERASED} = $3`,
);

export async function purgeHiddenIn(
  client: ClientBase,
  community: number,
  now: number,
  limit: number,
): Promise<number> {
  return (await client.query({ text: HIDDEN_IN_SQL, values: [community, limit, now] })).rowCount ?? 0;
}

export async function countEventsIn(client: ClientBase, community: number): Promise<number> {
  return (
    (await count(client, 'SELECT count(*) AS count FROM events WHERE community = $1 AND hidden IS NULL', [
      community,
    ])) +
    (await count(client, 'SELECT count(*) AS count FROM events WHERE community = $1 AND hidden IS NOT NULL', [
      community,
    ]))
  );
}

// ── The fence ──────────────────────────────────────────────────────────────────────────────────────────────

/** A tombstone without a time of its target: the target has not arrived, or was purged long ago. */
const NEWEST_OF_SQL = `SELECT coalesce(greatest(
  (SELECT max(e.created_at) FROM events e
   WHERE e.community = $1 AND e.pubkey = $2 AND e.hidden IS NULL),
  (SELECT max(e.created_at) FROM events e WHERE e.community = $1 AND e.pubkey = $2 AND e.hidden IS NOT NULL),
  (SELECT max(h.created_at) FROM event_heads h WHERE h.community = $1 AND h.pubkey = $2
    AND h.created_at >= 0),
  (SELECT max(CASE WHEN t.is_address OR t.applied_at IS NOT NULL THEN t.requested_at ELSE $3::bigint + $4 END)
    FROM deletion_tombstones t
   WHERE t.community = $1 AND t.author = $2 AND t.requested_at >= greatest(0, $3 - $4))), 0) AS newest`;
const NEWEST_IN_SQL = `SELECT coalesce(max(e.created_at), 0) AS newest FROM events e
  WHERE e.community = $1 AND e.hidden IS NULL`;

export async function readNewestOf(
  db: Db,
  { community, pubkey }: Owned,
  { at, aheadSeconds }: FenceOf,
): Promise<number> {
  const { rows } = await (pubkey === undefined
    ? db.query<{ newest: number }>(NEWEST_IN_SQL, [community])
    : db.query<{ newest: number }>(NEWEST_OF_SQL, [community, bytes(pubkey), at, aheadSeconds]));
  return rows[0]!.newest;
}
