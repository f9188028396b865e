/**
 * Reads stored rows whether they are served or not, for operators: by id, and hidden ones of an author or by
 * why they are hidden. First places and sizes, then the rows of one page. A search among hidden rows looks at
 * a bounded number of them for one page (I14), along an index, because their tags are no longer indexed.
 * Those of one author are sorted for each page: an index with their time misleads the planner in the lane.
 */
import { hexArray, int2Array, int4Array, int8Array } from '../../../postgres/binary.js';
import { bytes, type Db } from '../../../postgres/values.js';
import { UNBOUND } from '../../../topics/rules.js';
import { factKey, type RowRef } from '../../rules/facts.js';
import { HIDDEN_CODES, hiddenOf } from '../../rules/hidden.js';
import type { EventRef } from '../../store.js';
import {
  HIDDEN_ROWS_MAX,
  type HiddenOf,
  type HiddenPlaces,
  type ListedPlace,
  type StoredRow,
} from '../../stored-events.js';
import { dedupeOf, eventAt } from '../places.js';
import { NOT_VANISHED } from './hidden-at-read.js';
import { Parameters, run } from './statement.js';

type PlaceTuple = [
  seq: number,
  ingestedAt: number,
  keep: number,
  at: number,
  id: string,
  bytes: number,
  matches: boolean,
];

const placeOf = ([seq, ingestedAt, keep, at, id, size]: PlaceTuple): ListedPlace => ({
  seq,
  ingestedAt,
  keep,
  at,
  id,
  bytes: size,
});

/** Of the ids that are stored, by the time of the event. */
export async function placesOfIds(db: Db, community: number, ids: readonly string[]): Promise<ListedPlace[]> {
  const { rows } = await run<PlaceTuple>(db, {
    text: `SELECT e.seq, e.ingested_at, e.keep, e.created_at, encode(e.id, 'hex'), octet_length(e.payload),
        true
      FROM unnest($2::bytea[]) AS asked (id)
      ${dedupeOf('$1::int', 'asked.id')} ${eventAt('d')}
      ORDER BY e.created_at DESC, e.id`,
    values: [community, hexArray(ids)],
  });
  return rows.map(placeOf);
}

export async function placesOfHidden(db: Db, asked: HiddenOf): Promise<HiddenPlaces> {
  const { by, after, limit } = asked;
  const params = new Parameters();
  const ofAuthor = 'author' in by;
  const time = ofAuthor ? 'e.created_at' : 'e.hidden_at';
  const where = [`e.community = ${params.add(asked.community, 'int')}`];
  if (ofAuthor) {
    where.push(`e.pubkey = ${params.add(bytes(by.author), 'bytea')}`, 'e.hidden IS NOT NULL');
    if (asked.since !== undefined) where.push(`e.created_at >= ${params.add(asked.since, 'bigint')}`);
    if (asked.until !== undefined) where.push(`e.created_at <= ${params.add(asked.until, 'bigint')}`);
  } else {
    // A constant, so that the planner can use the partial index of this reason.
    where.push(`e.hidden = ${HIDDEN_CODES[by.hidden]}`);
  }
  if (after !== undefined) {
    const at = params.add(after.at, 'bigint');
    const id = params.add(bytes(after.id), 'bytea');
    where.push(`${time} <= ${at}`, `(${time} < ${at} OR e.id > ${id})`);
  }
  const checks = checksOf(params, asked);
  const rowsMax = checks.length === 0 ? limit + 1 : HIDDEN_ROWS_MAX;
  const { rows } = await run<PlaceTuple>(db, {
    text: `SELECT e.seq, e.ingested_at, e.keep, ${time}, encode(e.id, 'hex'), octet_length(e.payload),
        ${checks.length === 0 ? 'true' : checks.join(' AND ')}
      FROM events e WHERE ${where.join(' AND ')}
      ORDER BY ${time} DESC, e.id LIMIT ${params.add(rowsMax, 'bigint')}`,
    values: params.values,
  });
  const found = rows.filter(([, , , , , , matches]) => matches).map(placeOf);
  const places = found.slice(0, limit);
  const last =
    found.length > limit ? places.at(-1) : rows.length === rowsMax ? rows.map(placeOf).at(-1) : undefined;
  return { places, next: last && { at: last.at, id: last.id } };
}

/** Conditions that the index does not guarantee. */
function checksOf(params: Parameters, { by, kinds, since, until, tags }: HiddenOf): string[] {
  const checks = tags.map(([name, value]) => {
    const needle = params.add(`["${name}",${JSON.stringify(value)}`, 'text');
    const isBound = name === 't' ? ` OR ${params.add(value, 'text')} = ANY (e.bound)` : '';
    return `(strpos(e.payload, ${needle}) > 0${isBound})`;
  });
  if (kinds !== undefined) checks.push(`e.kind = ANY (${params.add(int4Array(kinds), 'int[]')})`);
  if ('author' in by) {
    if (by.hidden !== undefined) checks.push(`e.hidden = ${HIDDEN_CODES[by.hidden]}`);
    return checks;
  }
  if (since !== undefined) checks.push(`e.created_at >= ${params.add(since, 'bigint')}`);
  if (until !== undefined) checks.push(`e.created_at <= ${params.add(until, 'bigint')}`);
  return checks;
}

type StoredTuple = [
  id: string,
  pubkey: string,
  kind: number,
  createdAt: number,
  expiresAt: number | null,
  ingestedAt: number,
  hiddenAt: number | null,
  hidden: number | null,
  isVanished: boolean,
  bound: string[] | null,
  payload: string,
];

const COLUMNS = `encode(e.id, 'hex'), encode(e.pubkey, 'hex'), e.kind, e.created_at, e.expires_at,
        e.ingested_at, e.hidden_at, e.hidden, NOT ${NOT_VANISHED}, e.bound, e.payload`;

const rowOf = ([
  id,
  pubkey,
  kind,
  createdAt,
  expiresAt,
  ingestedAt,
  hiddenAt,
  hidden,
  isVanished,
  bound,
  payload,
]: StoredTuple): StoredRow => ({
  id,
  pubkey,
  kind,
  createdAt,
  expiresAt,
  ingestedAt,
  hiddenAt,
  hidden: hidden === null ? undefined : hiddenOf(hidden),
  isVanished,
  bound: bound ?? UNBOUND,
  payload,
});

/** The rows at these places, in their order, without those that were purged meanwhile. */
export async function readStored(db: Db, places: readonly RowRef[]): Promise<StoredRow[]> {
  if (places.length === 0) return [];
  const { rows } = await run<StoredTuple>(db, {
    text: `SELECT ${COLUMNS}
      FROM unnest($1::bigint[], $2::bigint[], $3::smallint[])
        WITH ORDINALITY AS asked (seq, ingested_at, keep, place)
      ${eventAt('asked')}
      ORDER BY asked.place`,
    values: [
      int8Array(places.map(({ seq }) => seq)),
      int8Array(places.map(({ ingestedAt }) => ingestedAt)),
      int2Array(places.map(({ keep }) => keep)),
    ],
  });
  return rows.map(rowOf);
}

/** Stored rows in any state, by `factKey`. */
export async function readStoredById(db: Db, refs: readonly EventRef[]): Promise<Map<string, StoredRow>> {
  if (refs.length === 0) return new Map();
  const { rows } = await run<[number, ...StoredTuple]>(db, {
    text: `SELECT asked.community, ${COLUMNS}
      FROM unnest($1::int[], $2::bytea[]) AS asked (community, event_id)
      ${dedupeOf('asked.community', 'asked.event_id')} ${eventAt('d')}`,
    values: [int4Array(refs.map(({ community }) => community)), hexArray(refs.map(({ id }) => id))],
  });
  return new Map(
    rows.map(([community, ...tuple]) => {
      const row = rowOf(tuple);
      return [factKey(community, row.id), row];
    }),
  );
}
