/**
 * Superseded versions, and their deletion by address. They are found by author and kind, newest first. The
 * lane deletes those that one bounded query finds, and leaves the rest of a long history to a job.
 */
import { createHash } from 'node:crypto';
import type { Client, ClientBase, Pool } from 'pg';
import { hexArray, int4Array, int8Array } from '../../postgres/binary.js';
import { allTopics, UNBOUND } from '../../topics/rules.js';
import type { Superseded } from '../rules/batch/history.js';
import { addressOf, kindOf } from '../rules/classify.js';
import type { NostrEvent } from '../rules/event.js';
import type { PlacedEvent } from '../rules/facts.js';
import { HIDDEN_CODES } from '../rules/hidden.js';
import { Keep } from '../rules/keep.js';
import type { Tombstone } from '../rules/writes.js';

/** The most that one query of the lane reads. */
export const HISTORY_ROWS_MAX = 500;
const HISTORY_BYTES_MAX = 4 * 1_048_576;

/** The key of an address in `event_heads` and `deletion_tombstones`: `d` may be of any length and content. */
export function addressHash(address: string): string {
  return createHash('sha256').update(address).digest('hex');
}

export interface PlacedRow {
  readonly community: number;
  readonly seq: number;
  readonly ingested_at: number;
  readonly keep: number;
  readonly payload: string;
  readonly bound: readonly string[] | null;
}

export function supersededOf({ community, seq, ingested_at, keep, payload, bound }: PlacedRow): Superseded {
  const event = JSON.parse(payload) as NostrEvent;
  const { id, created_at, pubkey } = event;
  const row = { seq, ingestedAt: ingested_at, keep };
  const topics = allTopics(event, bound ?? UNBOUND);
  return { community, id, created_at, pubkey, address: addressOf(event)!, topics, row };
}

// ── In the lane ────────────────────────────────────────────────────────────────────────────────────────────

export interface HistoryQuery {
  readonly community: number;
  readonly author: string;
  readonly kind: number;
  /** Seconds; only versions up to it. */
  readonly until: number;
}

const SUPERSEDED = `at.keep = ${Keep.history} AND at.hidden = ${HIDDEN_CODES.superseded}`;
const COLUMNS = 'community, seq, ingested_at, keep, created_at, payload, bound';
/**
 * PostgreSQL knows the size of a long text without reading it. `found` is the number of rows before the byte
 * limit.
 */
const bounded = (rows: string) => `SELECT * FROM (
    SELECT r.*, count(*) OVER () AS found,
      sum(octet_length(payload)) OVER (ROWS UNBOUNDED PRECEDING) - octet_length(payload) AS bytes_before
    FROM (${rows}) r) b
  WHERE bytes_before < ${HISTORY_BYTES_MAX}`;

const HISTORY_SQL = bounded(`
  SELECT e.*
  FROM unnest($1::int[], $2::bytea[], $3::int[], $4::bigint[]) AS asked (community, author, kind, until)
  CROSS JOIN LATERAL (
    SELECT ${COLUMNS} FROM events at
    WHERE ${SUPERSEDED} AND at.community = asked.community
      AND at.pubkey = asked.author AND at.kind = asked.kind
      AND at.created_at <= asked.until
    ORDER BY at.created_at DESC, at.seq DESC LIMIT ${HISTORY_ROWS_MAX + 1}) e
  LIMIT ${HISTORY_ROWS_MAX + 1}`);

/** The superseded versions of these authors and kinds; `whole` when these are all of them. */
export async function readHistory(
  client: ClientBase,
  queries: readonly HistoryQuery[],
): Promise<{ versions: Superseded[]; whole: boolean }> {
  if (queries.length === 0) return { versions: [], whole: true };
  const { rows } = await client.query<PlacedRow & { found: number }>({
    name: 'facts-history',
    text: HISTORY_SQL,
    values: [
      int4Array(queries.map((q) => q.community)),
      hexArray(queries.map((q) => q.author)),
      int4Array(queries.map((q) => q.kind)),
      int8Array(queries.map((q) => q.until)),
    ],
  });
  const found = rows[0]?.found ?? 0;
  return { versions: rows.map(supersededOf), whole: found === rows.length && found <= HISTORY_ROWS_MAX };
}

const LEAVE_SQL = `
  INSERT INTO history_deletions AS h (community, kind, requested_at, created_at, seq, address_hash, author)
  SELECT DISTINCT ON (community, address_hash)
    community, kind, requested_at, requested_at, ${Number.MAX_SAFE_INTEGER}, address_hash, author
  FROM unnest($1::int[], $2::int[], $3::bigint[], $4::bytea[], $5::bytea[])
    AS n (community, kind, requested_at, address_hash, author)
  ORDER BY community, address_hash, requested_at DESC
  ON CONFLICT (community, address_hash) DO UPDATE
  SET requested_at = excluded.requested_at, created_at = excluded.created_at, seq = excluded.seq
  WHERE excluded.requested_at > h.requested_at`;

/** Leaves the versions that the lane did not read to the job. */
export async function leaveHistory(client: ClientBase, tombstones: readonly Tombstone[]): Promise<void> {
  const left = tombstones.flatMap(({ community, target, author, requestedAt, historyLeft }) =>
    historyLeft && target.type === 'address'
      ? [{ community, author, requestedAt, address: target.address }]
      : [],
  );
  if (left.length === 0) return;
  await client.query({
    name: 'leave-history',
    text: LEAVE_SQL,
    values: [
      int4Array(left.map((l) => l.community)),
      int4Array(left.map((l) => kindOf(l.address))),
      int8Array(left.map((l) => l.requestedAt)),
      hexArray(left.map((l) => addressHash(l.address))),
      hexArray(left.map((l) => l.author)),
    ],
  });
}

// ── In the job ─────────────────────────────────────────────────────────────────────────────────────────────

/**
 * A deletion with superseded versions that are still to be deleted. The job has passed everything newer than
 * (createdAt, seq).
 */
export interface HistoryDeletion {
  readonly community: number;
  readonly kind: number;
  readonly author: string;
  readonly addressHash: string;
  readonly requestedAt: number;
  readonly createdAt: number;
  readonly seq: number;
}

export async function pendingHistory(client: Client | Pool, limit: number): Promise<HistoryDeletion[]> {
  const { rows } = await client.query<HistoryDeletion>(
    `SELECT community, kind, requested_at AS "requestedAt", created_at AS "createdAt", seq,
       encode(author, 'hex') AS author, encode(address_hash, 'hex') AS "addressHash"
     FROM history_deletions ORDER BY community, address_hash LIMIT $1`,
    [limit],
  );
  return rows;
}

/** Those of the addresses that have an unfinished deletion, with its request time. */
export async function readHistoryDeletions(
  pool: Pool,
  community: number,
  hashes: readonly string[],
): Promise<Map<string, number>> {
  const { rows } = await pool.query<{ hash: string; requested_at: number }>(
    `SELECT encode(address_hash, 'hex') AS hash, requested_at FROM history_deletions
     WHERE community = $1 AND address_hash = ANY ($2::bytea[])`,
    [community, hexArray(hashes)],
  );
  return new Map(rows.map(({ hash, requested_at }) => [hash, requested_at]));
}

export const HISTORY_PAGE_SQL = bounded(`
  SELECT ${COLUMNS} FROM events at
  WHERE ${SUPERSEDED} AND at.community = $1 AND at.pubkey = $2 AND at.kind = $3
    AND (at.created_at, at.seq) < ($4::bigint, $5::bigint)
  ORDER BY at.created_at DESC, at.seq DESC LIMIT $6`);

export interface HistoryPage {
  /** Versions of the address. */
  readonly rows: readonly PlacedEvent[];
  /** Where the next page begins, or undefined at the end. */
  readonly next: Pick<HistoryDeletion, 'createdAt' | 'seq'> | undefined;
}

export async function pageOfHistory(
  client: ClientBase,
  deletion: HistoryDeletion,
  limit: number,
): Promise<HistoryPage> {
  const { community, author, kind, createdAt, seq } = deletion;
  const values = [community, Buffer.from(author, 'hex'), kind, createdAt, seq, limit];
  const found = await client.query<PlacedRow & { created_at: number }>(HISTORY_PAGE_SQL, values);
  const last = found.rows.at(-1);
  const rows = found.rows
    .map(({ ingested_at, keep, payload, bound, seq: at }) => ({
      community,
      row: { seq: at, ingestedAt: ingested_at, keep },
      event: JSON.parse(payload) as NostrEvent,
      bound: bound ?? UNBOUND,
    }))
    .filter(({ event }) => addressHash(addressOf(event)!) === deletion.addressHash);
  return { rows, next: last && { createdAt: last.created_at, seq: last.seq } };
}

/** A deletion that was requested again in the meantime starts from the beginning. */
const SAME = 'community = $1 AND address_hash = $2 AND requested_at = $3';
const sameValues = ({ community, addressHash: hash, requestedAt }: HistoryDeletion) => [
  community,
  Buffer.from(hash, 'hex'),
  requestedAt,
];

export async function passHistory(
  client: Client | Pool,
  deletion: HistoryDeletion,
  next: HistoryPage['next'],
): Promise<void> {
  const values = sameValues(deletion);
  if (next === undefined) await client.query(`DELETE FROM history_deletions WHERE ${SAME}`, values);
  else
    await client.query(`UPDATE history_deletions SET created_at = $4, seq = $5 WHERE ${SAME}`, [
      ...values,
      next.createdAt,
      next.seq,
    ]);
}
