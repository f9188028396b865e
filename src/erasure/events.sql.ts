/**
 * Finds the events of an erased member or of a whole community, by an index and in bounded batches (I14).
 * Served events are only selected here: the lane purges and announces them (I8). Hidden events were announced
 * when they were hidden, and are deleted here.
 */
import type { Client } from 'pg';
import { dedupeOf } from '../events/postgres/places.js';
import { AT_PLACES, OF_AUTHOR, ofAuthor, placeValues, spared } from '../events/postgres/selections.js';
import { deleteHidden, IS_HIDDEN, PLACE } from '../events/postgres/sweeps.js';
import { KIND_GIFT_WRAP } from '../events/rules/deletion.js';
import type { RowRef } from '../events/rules/facts.js';
import { HIDDEN_CODES } from '../events/rules/hidden.js';
import type { Authored } from '../events/store.js';
import { isLabelOfErased } from '../labels/tables.sql.js';
import { hexArray, int4Array } from '../postgres/binary.js';
import { bytes } from '../postgres/values.js';

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
  client: Client,
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

/** As `["p","…"` stands in a payload exactly when such a tag is there (events/postgres/read/query.ts). */
const needle = ({ pubkey }: ErasedAuthor) => `["p","${pubkey}"`;

/** From the newest down. */
export function pageOfWraps(client: Client, author: ErasedAuthor, after: Cursor): Promise<Page> {
  const values = [author.recipient, after.createdAt, after.seq, author.community, needle(author)];
  return readPage(client, WRAPS_SQL, values);
}

/** From the first row up. */
export function pageOfHiddenWraps(client: Client, author: ErasedAuthor, after: Cursor): Promise<Page> {
  return readPage(client, HIDDEN_WRAPS_SQL, [author.community, after.seq, author.until, needle(author)]);
}

export const PURGE_AT_SQL = deleteHidden(
  `SELECT ${PLACE} FROM ${AT_PLACES}
    JOIN events e ON e.keep = asked.keep AND e.ingested_at = asked.ingested_at AND e.seq = asked.seq
    WHERE ${IS_HIDDEN} FOR UPDATE OF e`,
  `${AS_ERASED} = $4`,
);

export async function purgeHiddenAt(client: Client, places: readonly RowRef[], now: number): Promise<number> {
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
  client: Client,
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
const BY_NODE = `e.community = $1 AND e.pubkey IN (SELECT k.pubkey FROM node_keys k WHERE k.community = $1)
  AND e.created_at <= $3 AND strpos(e.payload, $2) > 0`;
const NODE_SERVED_SQL = `SELECT e.seq, e.ingested_at, e.keep FROM events e
  WHERE e.hidden IS NULL AND ${BY_NODE} LIMIT $4`;
const NODE_HIDDEN_SQL = deleteHidden(
  `SELECT ${PLACE} FROM events e WHERE e.hidden IS NOT NULL AND ${BY_NODE} LIMIT $4 FOR UPDATE`,
  `${AS_ERASED} = $5`,
);
const ofNode = ({ community, pubkey, until }: ErasedAuthor) => [community, pubkey, until];

/** Their places. Searched outside the lane, because the node may have signed many about others. */
export async function findNodesWords(client: Client, about: ErasedAuthor, limit: number): Promise<RowRef[]> {
  const { rows } = await client.query<{ seq: number; ingested_at: number; keep: number }>({
    text: NODE_SERVED_SQL,
    values: [...ofNode(about), limit],
  });
  return rows.map(({ seq, ingested_at, keep }) => ({ seq, ingestedAt: ingested_at, keep }));
}

export async function purgeNodesHiddenWords(
  client: Client,
  about: ErasedAuthor,
  now: number,
  limit: number,
): Promise<number> {
  const values = [...ofNode(about), limit, now];
  return (await client.query({ text: NODE_HIDDEN_SQL, values })).rowCount ?? 0;
}

// ── Counting ───────────────────────────────────────────────────────────────────────────────────────────────

const count = async (client: Client, text: string, values: unknown[]): Promise<number> => {
  const { rows } = await client.query<{ count: number }>({ text, values });
  return rows[0]!.count;
};

export async function countEventsOf(client: Client, author: ErasedAuthor): Promise<number> {
  const own = `SELECT count(*) AS count FROM events e WHERE e.hidden IS NULL AND ${OF_AUTHOR}
    AND ${spared('e.kind')}`;
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

// ── A community ────────────────────────────────────────────────────────────────────────────────────────────

const HIDDEN_IN_SQL = deleteHidden(
  `SELECT ${PLACE} FROM events e WHERE e.community = $1 AND e.hidden IS NOT NULL LIMIT $2 FOR UPDATE`,
  `${AS_ERASED} = $3`,
);

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

// ── The outbox ─────────────────────────────────────────────────────────────────────────────────────────────

export interface BehindConsumer {
  readonly consumer: string;
  /** The offset of its live generation, and of the one that is being rebuilt. */
  readonly reached: readonly number[];
}

/** Consumers that have not reached this offset yet, including a generation that is being rebuilt. */
export async function consumersBehind(client: Client, seq: number): Promise<BehindConsumer[]> {
  const { rows } = await client.query<{ consumer: string; live: number; rebuilt: number }>({
    name: 'consumers-behind',
    text: `SELECT o.consumer, o.last_seq AS live, coalesce(r.last_seq, r.scanned_seq, 0) AS rebuilt
      FROM consumer_offsets o LEFT JOIN consumer_rebuilds r USING (consumer)
      WHERE r.reason IS DISTINCT FROM '${MISSED}' AND (o.last_seq < $1
        OR (r.started_at IS NOT NULL AND coalesce(r.last_seq, r.pinned_seq, 0) < $1)) ORDER BY 1`,
    values: [seq],
  });
  return rows.map(({ consumer, live, rebuilt }) => ({ consumer, reached: [live, rebuilt] }));
}

const MISSED = 'rows were scrubbed after an erasure before it had read them';

/** A consumer that has read nothing for so long gets an error and rebuilds when it comes back. */
export async function leaveBehind(client: Client, consumers: readonly string[], now: number): Promise<void> {
  await client.query(
    `INSERT INTO consumer_rebuilds (consumer, generation, reason, requested_at, updated_at)
     SELECT consumer, generation + 1, $2, $3, $3 FROM consumer_offsets WHERE consumer = ANY ($1)
     ON CONFLICT (consumer) DO UPDATE SET reason = excluded.reason, started_at = NULL, pinned_seq = NULL,
       scanned_seq = 0, scanned_place = NULL, last_seq = NULL`,
    [consumers, MISSED, now],
  );
}

/** The highest offset of the outbox that names the subject, or undefined when none does. */
export async function lastOutboxSeq(
  client: Client,
  community: number,
  author: { readonly pubkey: string; readonly until: number } | undefined,
): Promise<number | undefined> {
  const { rows } = await client.query<{ seq: number | null }>({
    text: `SELECT max(seq) AS seq FROM events_outbox
      WHERE community = $1 AND op <> 'scrubbed' ${ofOutbox(author)}`,
    values: outboxValues(community, author),
  });
  return rows[0]!.seq ?? undefined;
}

type OutboxAuthor = { readonly pubkey: string; readonly until: number } | undefined;
/** Rows of their events, and of events that the node has signed about them or about an event of theirs. */
const ofOutbox = (author: OutboxAuthor) =>
  author === undefined
    ? ''
    : `AND ingested_at >= 0 AND created_at <= $3 AND (author = $2
        OR (author IN (SELECT k.pubkey FROM node_keys k WHERE k.community = $1)
        AND (strpos(effective_key, $4) > 0 OR ${isLabelOfErased('events_outbox')})))`;
const outboxValues = (community: number, author: OutboxAuthor): unknown[] =>
  author === undefined ? [community] : [community, bytes(author.pubkey), author.until, author.pubkey];

/**
 * Of each run of offsets the last one stays, and names nobody: whoever comes to it later learns that
 * something was erased here, and no more. The others are deleted.
 */
export async function scrubOutbox(
  client: Client,
  community: number,
  author: OutboxAuthor,
  limit: number,
): Promise<number> {
  const { rows } = await client.query<{ rows: number }>({
    text: `WITH found AS MATERIALIZED (
        SELECT seq, lead(seq) OVER (ORDER BY seq) IS DISTINCT FROM seq + 1 AS is_last
        FROM (SELECT seq FROM events_outbox
          WHERE community = $1 AND op <> 'scrubbed' ${ofOutbox(author)} LIMIT ${limit}) f
      ), deleted AS (
        DELETE FROM events_outbox o WHERE o.seq = ANY (ARRAY(SELECT seq FROM found WHERE NOT is_last))
      ), scrubbed AS (
        UPDATE events_outbox o SET op = 'scrubbed', reason = NULL, event_id = '', author = '', topics = '{}',
          effective_key = NULL, tags = NULL
        WHERE o.seq = ANY (ARRAY(SELECT seq FROM found WHERE is_last))
      )
      SELECT count(*) AS rows FROM found`,
    values: outboxValues(community, author),
  });
  return rows[0]!.rows;
}

export function countOutbox(client: Client, community: number, author: OutboxAuthor): Promise<number> {
  return count(
    client,
    `SELECT count(*) AS count FROM events_outbox
     WHERE community = $1 AND op <> 'scrubbed' ${ofOutbox(author)}`,
    outboxValues(community, author),
  );
}
