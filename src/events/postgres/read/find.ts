/**
 * Reads events in two steps. The first returns the rows' places and sizes, the second their payloads in
 * bounded portions (I14). So an answer of 5,000 large events is never in memory as a whole, and payloads that
 * are in memory are not read again. A short answer to a narrow filter comes with its payloads in one step.
 */
import type { ClientBase, Pool } from 'pg';
import { hexArray, int2Array, int4Array, int8Array } from '../../../postgres/binary.js';
import { UNBOUND } from '../../../topics/rules.js';
import type { RowRef } from '../../rules/facts.js';
import type { Filter } from '../../rules/filter.js';
import type { EventRef, FoundEvent, NewestPage, NewestPlace, Query, ReadEvent } from '../../store.js';
import { dedupeOf, eventAt } from '../places.js';
import type { TagHash } from '../tag-hash.js';
import { NOT_VANISHED } from './hidden-at-read.js';
import { COLUMNS, NEWEST_FIRST, SERVED_KEEPS, type SelectOf, selectRows } from './query.js';
import { Parameters, run, type Statement } from './statement.js';
import { windowsOf } from './windows.js';

/** Up to this many rows an answer may come with its payloads. */
const ONE_STEP_ROWS_MAX = 150;
const PAYLOAD_TOO = `${COLUMNS}, e.payload`;

/** A query that may also search the words of one generation of search documents, and continue a page. */
export type PostgresQuery = Query & Pick<SelectOf, 'generation' | 'after'>;

/** Where a query runs, and how its tags are hashed. */
export interface Tables {
  readonly pool: Pool | ClientBase;
  readonly tagHash: TagHash;
}

export function findStatement(query: PostgresQuery, tagHash: TagHash): Statement {
  const params = new Parameters();
  const inOneStep = query.limit <= ONE_STEP_ROWS_MAX && isNarrow(query.filter);
  const rows = selectRows(query, tagHash, params, inOneStep ? PAYLOAD_TOO : COLUMNS);
  const last = inOneStep ? 'payload' : 'NULL';
  const text = `SELECT seq, ingested_at, keep, created_at, kind, expires_at, encode(id, 'hex'), bytes, bound,
      ${last}
    FROM (${rows}) r ${NEWEST_FIRST}`;
  return { text, values: params.values };
}

/** One index scan, or single places: only payloads of the answer are read. */
function isNarrow({ ids, authors, kinds, tags }: Filter): boolean {
  if (ids !== undefined) return ids.size <= ONE_STEP_ROWS_MAX;
  return [authors, kinds, ...tags.map(({ values }) => values)].every((values) => (values?.size ?? 1) === 1);
}

/** The places of the newest events that match, newest first. */
export async function findEvents({ pool, tagHash }: Tables, query: PostgresQuery): Promise<FoundEvent[]> {
  const { filter, limit, now } = query;
  let rows: FoundTuple[] = [];
  const windows = windowsOf(filter, Math.floor(now / 1_000));
  const last = windows.length - 1;
  // After an empty window the next one would hold little, so it is skipped.
  for (
    let at = 0;
    at <= last;
    at = at === last ? last + 1 : Math.min(last, at + (rows.length === 0 ? 2 : 1))
  ) {
    const window = windows[at]!;
    const statement = findStatement(window === filter ? query : { ...query, filter: window }, tagHash);
    ({ rows } = await run<FoundTuple>(pool, statement, filter.tags.length <= 2));
    if (rows.length >= limit) break;
  }
  return rows.map(([seq, ingestedAt, keep, createdAt, kind, expiresAt, id, bytes, bound, payload]) => ({
    seq,
    ingestedAt,
    keep,
    createdAt,
    kind,
    expiresAt: expiresAt ?? undefined,
    id,
    bytes,
    bound: bound ?? UNBOUND,
    payload: payload ?? undefined,
  }));
}
type FoundTuple = [
  seq: number,
  ingestedAt: number,
  keep: number,
  createdAt: number,
  kind: number,
  expiresAt: number | null,
  id: string,
  bytes: number,
  bound: string[] | null,
  payload: string | null,
];

const PAYLOAD_SQL = `
  SELECT asked.place::int, e.payload
  FROM unnest($1::bigint[], $2::bigint[], $3::smallint[])
    WITH ORDINALITY AS asked (seq, ingested_at, keep, place)
  ${eventAt('asked')}
  WHERE e.hidden IS NULL`;

/** Payloads in the order of the rows; undefined where a row is no longer effective. */
export async function readPayloads(
  pool: Pool | ClientBase,
  rows: readonly RowRef[],
): Promise<(string | undefined)[]> {
  const payloads = new Array<string | undefined>(rows.length).fill(undefined);
  const result = await run<[number, string]>(pool, {
    text: PAYLOAD_SQL,
    values: [
      int8Array(rows.map((r) => r.seq)),
      int8Array(rows.map((r) => r.ingestedAt)),
      int2Array(rows.map((r) => r.keep)),
    ],
  });
  for (const [place, payload] of result.rows) payloads[place - 1] = payload;
  return payloads;
}

/** Effective events by id, for readers of the outbox. */
export async function readEventsById(
  pool: Pool | ClientBase,
  refs: readonly EventRef[],
): Promise<Map<string, ReadEvent>> {
  const { rows } = await run<[number, string, number, number, string, string[] | null]>(pool, {
    text: `SELECT d.community, encode(d.event_id, 'hex'), e.seq, e.ingested_at, e.payload, e.bound
      FROM unnest($1::int[], $2::bytea[]) AS asked (community, event_id)
      ${dedupeOf('asked.community', 'asked.event_id')}
      ${eventAt('d')}
      WHERE e.hidden IS NULL AND ${NOT_VANISHED}`,
    values: [int4Array(refs.map((ref) => ref.community)), hexArray(refs.map((ref) => ref.id))],
  });
  return new Map(
    rows.map(([community, id, seq, ingestedAt, payload, bound]) => [
      `${community}/${id}`,
      { seq, ingestedAt, payload, bound: bound ?? UNBOUND },
    ]),
  );
}

// ── To fill a memory ───────────────────────────────────────────────────────────────────────────────────────

/** So many events, or fewer when they are large: a page ends with the event that goes beyond the bytes. */
const PAGE_ROWS = 250;
const PAGE_BYTES = 1_048_576;

const NEWEST_SQL = `
  SELECT r.seq, r.ingested_at, r.created_at, encode(r.id, 'hex'), r.payload, r.bound, r.found FROM (
    SELECT p.*, count(*) OVER () AS found,
      sum(octet_length(p.payload)) OVER (ORDER BY p.created_at DESC, p.id ROWS UNBOUNDED PRECEDING)
        - octet_length(p.payload) AS before
    FROM (
      SELECT e.seq, e.ingested_at, e.created_at, e.id, e.payload, e.bound FROM events e
      WHERE e.community = $1::int AND e.hidden IS NULL AND e.keep IN (${SERVED_KEEPS.join(', ')})
        AND ${NOT_VANISHED} AND e.created_at <= $2::bigint AND (e.created_at < $2::bigint OR e.id > $3::bytea)
      ORDER BY e.created_at DESC, e.id LIMIT ${PAGE_ROWS}) p) r
  WHERE r.before < ${PAGE_BYTES} ORDER BY r.created_at DESC, r.id`;

type NewestTuple = [
  seq: number,
  ingestedAt: number,
  createdAt: number,
  id: string,
  payload: string,
  bound: string[] | null,
  found: number,
];

/**
 * Whatever is not hidden, also past its days or its expiration: those are decided when it is asked
 * (relay/window/conditions.ts).
 */
export async function readNewest(pool: Pool, community: number, after: NewestPlace): Promise<NewestPage> {
  const { rows } = await run<NewestTuple>(pool, {
    text: NEWEST_SQL,
    values: [community, after.createdAt, Buffer.from(after.id, 'hex')],
  });
  return {
    events: rows.map(([seq, ingestedAt, createdAt, id, payload, bound]) => ({
      seq,
      ingestedAt,
      createdAt,
      id,
      payload,
      bound: bound ?? UNBOUND,
    })),
    isLast: rows.length < PAGE_ROWS && rows.length === (rows[0]?.[6] ?? 0),
  };
}
