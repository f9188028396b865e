/**
 * Reads everything that a copy of the events takes from PostgreSQL, page by page along primary keys: events
 * (served and hidden), ids of purged events, heads, tombstones and marks.
 */
import type { Client, ClientBase, Pool } from 'pg';
import { hexArray, int4Array } from '../../postgres/binary.js';
import { UNBOUND } from '../../topics/rules.js';
import { LANE_LOCK } from '../postgres/lane/lock.js';
import { dedupeOf } from '../postgres/places.js';
import type { CameBy, RowRef } from '../rules/facts.js';
import { HIDDEN_CODES, type Hidden, hiddenOf } from '../rules/hidden.js';
import type { EventRef } from '../store.js';

type Db = ClientBase | Pool;

/** The last key of a page, as texts; empty at the beginning. */
export type Place = readonly string[];
export interface SourcePage<T> {
  readonly rows: readonly T[];
  /** Undefined at the end. */
  readonly next: Place | undefined;
}

export interface EventRow {
  readonly community: number;
  readonly payload: string;
  /** When it came in. The row of a superseded version has the time when it was superseded. */
  readonly ingestedAt: number;
  readonly keep: number;
  readonly bound: readonly string[];
  readonly cameBy: CameBy | undefined;
  readonly hidden: Hidden | undefined;
  readonly hiddenAt: number | undefined;
}
/** What PostgreSQL has of an id, and where. */
export interface KnownRow extends EventRef {
  readonly place: RowRef;
  /** Undefined when only the id is left. */
  readonly event: EventRow | undefined;
  readonly gone: GoneRow | undefined;
}
/** The id of an event that was purged. */
export interface GoneRow {
  readonly community: number;
  readonly id: string;
  readonly author: string;
  readonly hidden: Hidden;
  readonly firstSeenAt: number;
  readonly goneAt: number;
}
export interface HeadRow {
  readonly community: number;
  readonly addressHash: string;
  readonly id: string;
  readonly createdAt: number;
  readonly pubkey: string;
}
export interface TombstoneRow {
  readonly community: number;
  readonly isAddress: boolean;
  readonly target: string;
  readonly author: string;
  readonly requestedAt: number;
  readonly requestId: string;
}
export interface MarkRow {
  readonly community: number;
  readonly pubkey: string;
  readonly until: number;
  readonly requestId: string | undefined;
  readonly isPending: boolean;
}

const EVENT_COLUMNS = `e.seq, e.community, e.payload, e.keep, e.bound, e.hidden, e.hidden_at,
  coalesce(CASE WHEN e.hidden = ${HIDDEN_CODES.superseded} THEN (SELECT d.first_seen_at FROM event_dedupe d
    WHERE d.community = e.community AND d.event_id = e.id) END, e.ingested_at) AS ingested_at`;
interface EventTuple {
  seq: number;
  community: number;
  payload: string;
  ingested_at: number;
  keep: number;
  bound: string[] | null;
  hidden: number | null;
  hidden_at: number | null;
}
/** Members that are being erased, or were: nothing of them is copied. */
const ERASED = `${HIDDEN_CODES.vanished}, ${HIDDEN_CODES.erased}`;

const rowOf = (row: EventTuple): EventRow => ({
  community: row.community,
  payload: row.payload,
  ingestedAt: row.ingested_at,
  keep: row.keep,
  bound: row.bound ?? UNBOUND,
  cameBy: undefined,
  hidden: row.hidden === null ? undefined : hiddenOf(row.hidden),
  hiddenAt: row.hidden_at ?? undefined,
});

export async function readEvents(db: Db, after: Place, limit: number): Promise<SourcePage<EventRow>> {
  const { rows } = await db.query<EventTuple>(
    `SELECT ${EVENT_COLUMNS} FROM events e
     WHERE e.seq > $1 AND (e.hidden IS NULL OR e.hidden NOT IN (${ERASED})) ORDER BY e.seq LIMIT $2`,
    [after[0] ?? '0', limit],
  );
  return pageOf(rows, limit, rowOf, ({ seq }) => [`${seq}`]);
}

/** The rows of these events, served or hidden; those that have none are missing. */
export async function readEventsOf(db: Db, refs: readonly EventRef[]): Promise<EventRow[]> {
  const { rows } = await db.query<EventTuple>(
    `SELECT ${EVENT_COLUMNS}
     FROM unnest($1::int[], $2::bytea[]) AS asked (community, id)
     JOIN event_dedupe d ON d.community = asked.community AND d.event_id = asked.id
     JOIN events e ON e.seq = d.seq AND e.ingested_at = d.ingested_at AND e.keep = d.keep
     WHERE e.hidden IS NULL OR e.hidden NOT IN (${ERASED})`,
    [int4Array(refs.map(({ community }) => community)), hexArray(refs.map(({ id }) => id))],
  );
  return rows.map(rowOf);
}

/** The ids that are known here, with their rows. */
export async function readKnownRows(db: Db, refs: readonly EventRef[]): Promise<KnownRow[]> {
  const { rows } = await db.query<{
    community: number;
    id: string;
    author: string;
    seq: number;
    ingested_at: number;
    keep: number;
    first_seen_at: number;
    gone_at: number | null;
    hidden: number | null;
    hidden_at: number | null;
    payload: string | null;
    bound: string[] | null;
  }>(
    `SELECT d.community, encode(d.event_id, 'hex') AS id, encode(d.author, 'hex') AS author, d.seq,
       d.ingested_at, d.keep, d.first_seen_at, d.gone_at, d.hidden, e.hidden_at, e.payload, e.bound
     FROM unnest($1::int[], $2::bytea[]) AS asked (community, id)
     ${dedupeOf('asked.community', 'asked.id')}
     LEFT JOIN LATERAL (SELECT * FROM events at
       WHERE at.keep = d.keep AND at.ingested_at = d.ingested_at AND at.seq = d.seq OFFSET 0) e ON true`,
    [int4Array(refs.map(({ community }) => community)), hexArray(refs.map(({ id }) => id))],
  );
  return rows.map((row) => {
    const { community, id, author, seq, keep, payload, hidden, gone_at, first_seen_at } = row;
    const isSuperseded = hidden === HIDDEN_CODES.superseded;
    const ingested_at = isSuperseded ? first_seen_at : row.ingested_at;
    return {
      community,
      id,
      place: { seq, ingestedAt: row.ingested_at, keep },
      event: payload === null ? undefined : rowOf({ ...row, payload, ingested_at }),
      gone:
        gone_at === null || hidden === null
          ? undefined
          : { community, id, author, hidden: hiddenOf(hidden), firstSeenAt: first_seen_at, goneAt: gone_at },
    };
  });
}

export async function readGone(db: Db, after: Place, limit: number): Promise<SourcePage<GoneRow>> {
  const { rows } = await db.query<{
    community: number;
    id: string;
    author: string;
    hidden: number;
    first_seen_at: number;
    gone_at: number;
  }>(
    `SELECT community, encode(event_id, 'hex') AS id, encode(author, 'hex') AS author, hidden,
       first_seen_at, gone_at
     FROM event_dedupe
     WHERE (community, event_id) > ($1::int, decode($2, 'hex')) AND gone_at IS NOT NULL
       AND hidden NOT IN (${ERASED})
     ORDER BY community, event_id LIMIT $3`,
    [after[0] ?? '-1', after[1] ?? '', limit],
  );
  const goneOf = ({ community, id, author, hidden, first_seen_at, gone_at }: (typeof rows)[number]) => ({
    community,
    id,
    author,
    hidden: hiddenOf(hidden),
    firstSeenAt: first_seen_at,
    goneAt: gone_at,
  });
  return pageOf(rows, limit, goneOf, ({ community, id }) => [`${community}`, id]);
}

export async function readHeads(db: Db, after: Place, limit: number): Promise<SourcePage<HeadRow>> {
  const { rows } = await db.query<HeadRow>(
    `SELECT community, encode(address_hash, 'hex') AS "addressHash", encode(event_id, 'hex') AS id,
       created_at AS "createdAt", encode(pubkey, 'hex') AS pubkey
     FROM event_heads WHERE (community, address_hash) > ($1::int, decode($2, 'hex'))
     ORDER BY community, address_hash LIMIT $3`,
    [after[0] ?? '-1', after[1] ?? '', limit],
  );
  return pageOf(rows, limit, same, ({ community, addressHash }) => [`${community}`, addressHash]);
}

export async function readTombstones(db: Db, after: Place, limit: number): Promise<SourcePage<TombstoneRow>> {
  const { rows } = await db.query<TombstoneRow>(
    `SELECT community, is_address AS "isAddress", encode(target, 'hex') AS target,
       encode(author, 'hex') AS author, requested_at AS "requestedAt",
       encode(deletion_event, 'hex') AS "requestId"
     FROM deletion_tombstones
     WHERE (community, target, author) > ($1::int, decode($2, 'hex'), decode($3, 'hex'))
     ORDER BY community, target, author LIMIT $4`,
    [after[0] ?? '-1', after[1] ?? '', after[2] ?? '', limit],
  );
  const placeOf = ({ community, target, author }: TombstoneRow) => [`${community}`, target, author];
  return pageOf(rows, limit, same, placeOf);
}

export async function readMarks(db: Db, after: Place, limit: number): Promise<SourcePage<MarkRow>> {
  const { rows } = await db.query<MarkRow>(
    `SELECT community, encode(pubkey, 'hex') AS pubkey, until, encode(request, 'hex') AS "requestId",
       erased_at IS NULL AS "isPending"
     FROM vanish_marks WHERE (community, pubkey) > ($1::int, decode($2, 'hex'))
     ORDER BY community, pubkey LIMIT $3`,
    [after[0] ?? '-1', after[1] ?? '', limit],
  );
  return pageOf(rows, limit, same, ({ community, pubkey }) => [`${community}`, pubkey]);
}

const same = <T>(row: T) => row;

function pageOf<Row, T>(
  rows: readonly Row[],
  limit: number,
  show: (row: Row) => T,
  placeOf: (row: Row) => Place,
): SourcePage<T> {
  const next = rows.length < limit ? undefined : placeOf(rows.at(-1)!);
  return { rows: rows.map(show), next };
}

// ── What changed meanwhile ─────────────────────────────────────────────────────────────────────────────────

/** The events that entered or left the view after an offset. */
export async function readChangedSince(
  db: Db,
  op: 'upsert' | 'delete',
  after: number,
  limit: number,
): Promise<{
  readonly refs: readonly (EventRef & { readonly seq: number })[];
  readonly next: number | undefined;
}> {
  const { rows } = await db.query<{ seq: number; community: number; id: string }>(
    `SELECT seq, community, encode(event_id, 'hex') AS id FROM events_outbox
     WHERE seq > $1 AND op = $3 ORDER BY seq LIMIT $2`,
    [after, limit, op],
  );
  return { refs: rows, next: rows.length < limit ? undefined : rows.at(-1)!.seq };
}

export async function readLog(db: Db): Promise<{ readonly floor: number; readonly head: number }> {
  const { rows } = await db.query<{ floor: number; head: number }>(
    'SELECT outbox_floor AS floor, last_seq AS head FROM lane_state',
  );
  return rows[0]!;
}

/** Deletions of long histories that a job has not finished. */
export async function countHistoryDeletions(db: Db): Promise<number> {
  const { rows } = await db.query<{ count: number }>('SELECT count(*)::int AS count FROM history_deletions');
  return rows[0]!.count;
}

/** Sessions of our programs on this database that began before the first one of this command. */
export async function countOthers(first: Client): Promise<number> {
  const { rows } = await first.query<{ count: number }>(
    `SELECT count(*)::int AS count FROM pg_stat_activity a, pg_stat_activity own
     WHERE own.pid = pg_backend_pid() AND a.datname = own.datname AND a.application_name = 'minato'
       AND a.backend_start < own.backend_start - interval '1 second'`,
  );
  return rows[0]!.count;
}

/** No event is written to PostgreSQL until this session ends. */
export async function holdLane(client: Client): Promise<void> {
  await client.query('SELECT pg_advisory_lock($1)', [LANE_LOCK]);
}

/** Deletes the events from PostgreSQL, after they were moved. */
export async function truncateEvents(db: Db): Promise<void> {
  await db.query(
    `TRUNCATE events, event_tags, event_dedupe, event_heads, deletion_tombstones, deletion_quotas,
       history_deletions`,
  );
}
