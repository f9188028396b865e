/**
 * Takes rows out of the view: out of every index at once, and out of the store for a purge. The dedupe row
 * stays with the reason, so that the event does not come back (I6). The caller holds the lane's lock and
 * writes the outbox rows.
 */
import type { ClientBase } from 'pg';
import { hexArray, int2Array, int4Array, int8Array } from '../../postgres/binary.js';
import { withdrawReports } from '../../reports/reports.sql.js';
import { KIND_REPORT, WITHDRAWS } from '../../reports/rules.js';
import { UNBOUND } from '../../topics/rules.js';
import { isCounted } from '../rules/capacity.js';
import { type NostrEvent, serializeEvent } from '../rules/event.js';
import type { PlacedEvent, RowRef } from '../rules/facts.js';
import { HIDDEN_CODES, hiddenOf } from '../rules/hidden.js';
import { Keep } from '../rules/keep.js';
import type { HiddenRow } from '../rules/writes.js';
import { lowered, lowerTopicTotals } from './capacity.js';
import { type TagHash, tagKeys } from './tag-hash.js';

const GONE = `
  WITH gone AS (
    SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::smallint[], $4::int[], $5::bytea[], $6::smallint[])
      AS g (seq, ingested_at, keep, community, event_id, hidden)
  )`;
/**
 * The partitions of a batch, from the parameter `first` on: the others are left out before the first row, and
 * not for each row (10 instead of 17 µs for a tag).
 */
const within = (table: string, first: number) =>
  `${table}.keep BETWEEN $${first}::smallint AND $${first + 1}::smallint
    AND ${table}.ingested_at BETWEEN $${first + 2}::bigint AND $${first + 3}::bigint`;
const boundsOf = (keeps: readonly number[], times: readonly number[]) => [
  ...[least(keeps), greatest(keeps)],
  ...[least(times), greatest(times)],
];
const least = (all: readonly number[]) => all.reduce((a, b) => Math.min(a, b));
const greatest = (all: readonly number[]) => all.reduce((a, b) => Math.max(a, b));

const SAME_PLACE = 'e.keep = g.keep AND e.ingested_at = g.ingested_at AND e.seq = g.seq';
const RETURNED = 'g.seq, g.ingested_at, g.keep, g.hidden AS why, e.community, e.payload, e.bound';
/**
 * A superseded version moves to the `history` bucket and to the current month there, because its days count
 * from now. A version that is deleted afterwards moves back; otherwise the drop of its month would cut its
 * audit time short.
 */
const IS_SUPERSEDED = `g.hidden = ${HIDDEN_CODES.superseded}`;
const NEW_PLACE = (row: string) => `keep = CASE WHEN ${IS_SUPERSEDED} THEN ${Keep.history}
        WHEN g.keep = ${Keep.history} THEN ${Keep.current} ELSE ${row}.keep END,
      ingested_at = CASE WHEN ${IS_SUPERSEDED} THEN $7::bigint ELSE ${row}.ingested_at END`;
/** Served or superseded. Written so that the planner does not choose the index on `hidden`. */
const IN_FORCE = `coalesce(e.hidden, ${HIDDEN_CODES.superseded}) = ${HIDDEN_CODES.superseded}`;
const WAS_HIDDEN = `CASE WHEN g.keep = ${Keep.history} THEN ${HIDDEN_CODES.superseded} END AS was_hidden`;

/**
 * The dedupe row stays as long as the row itself, and counts its days from the purge: no id is stored twice
 * (I3).
 */
const HIDE_SQL = `${GONE}, known AS (
    UPDATE event_dedupe d SET hidden = g.hidden, ${NEW_PLACE('d')}, gone_at = NULL FROM gone g
    WHERE d.community = g.community AND d.event_id = g.event_id
  )
  UPDATE events e SET ${NEW_PLACE('e')}, hidden = g.hidden, hidden_at = $7::bigint FROM gone g
  WHERE ${SAME_PLACE} AND ${IN_FORCE} RETURNING ${RETURNED}, ${WAS_HIDDEN}`;

const PURGE_SQL = `${GONE}, known AS (
    UPDATE event_dedupe d SET hidden = g.hidden, gone_at = $7::bigint FROM gone g
    WHERE d.community = g.community AND d.event_id = g.event_id
  )
  DELETE FROM events e USING gone g WHERE ${SAME_PLACE} RETURNING ${RETURNED}, e.hidden AS was_hidden`;

/** The mark of the erasure keeps these events out, so their ids need not be kept. */
const FORGET_SQL = `${GONE}, known AS (
    DELETE FROM event_dedupe d USING gone g WHERE d.community = g.community AND d.event_id = g.event_id
  )
  DELETE FROM events e USING gone g WHERE ${SAME_PLACE} RETURNING g.seq, e.hidden AS was_hidden`;

/**
 * For events that the caller has read: one of them may have been hidden or purged meanwhile. Those that are
 * still served are deleted.
 */
const TAKE_SERVED_SQL = `
  DELETE FROM events e USING unnest($1::bigint[], $2::bigint[], $3::smallint[]) AS g (seq, ingested_at, keep)
  WHERE ${SAME_PLACE} AND ${within('e', 4)} AND e.hidden IS NULL RETURNING g.seq`;

const FORGET_IDS_SQL = `
  DELETE FROM event_dedupe d USING unnest($1::int[], $2::bytea[]) AS g (community, event_id)
  WHERE d.community = g.community AND d.event_id = g.event_id`;

interface GoneRow {
  seq: number;
  ingested_at: number;
  keep: number;
  why: number;
  community: number;
  payload: string;
  bound: string[] | null;
  was_hidden: number | null;
}

type LeftRow = Omit<GoneRow, 'was_hidden'> & { readonly event: NostrEvent };

/** The statements that follow from hidden rows are sent; their answers come later. */
export interface Hiding {
  readonly answered: Promise<unknown>;
}

/**
 * Sends the first statements at once. Resolves when the statements that follow from their answers are sent
 * too.
 */
export async function hideRows(
  client: ClientBase,
  rows: readonly HiddenRow[],
  now: number,
  tagHash: TagHash,
): Promise<Hiding> {
  const hidden = rows.filter((row) => !row.purge);
  const purged = rows.filter((row) => row.purge && row.forgotten === undefined);
  const forgotten = rows.filter((row) => row.forgotten !== undefined && !row.taken);
  const taken = rows.filter((row) => row.taken).map(leftRow);
  const [gone, known] = await Promise.all([
    Promise.all([
      hidden.length === 0 ? [] : take(client, HIDE_SQL, hidden, now),
      purged.length === 0 ? [] : take(client, PURGE_SQL, purged, now),
    ]),
    forgotten.length === 0 ? [] : forget(client, forgotten),
  ]);
  const left = gone
    .flat()
    // The tags and totals of a superseded version were removed before.
    .filter((row) => row.was_hidden === null)
    .map((row): LeftRow => ({ ...row, event: JSON.parse(row.payload) as NostrEvent }))
    .concat(known);
  const all = [...left, ...taken];
  const answered = Promise.all([
    removeTags(client, left, tagHash),
    lowerTotals(client, all),
    lowerTopicTotals(client, all),
    withdrawReports(client, all.filter(isWithdrawnReport)),
  ]);
  answered.catch(() => undefined);
  return { answered };
}

function isWithdrawnReport({ event, why }: LeftRow): boolean {
  return event.kind === KIND_REPORT && WITHDRAWS[hiddenOf(why)];
}

/**
 * Not prepared, so it is planned for the tables as they are now: the target of an UPDATE cannot be fenced.
 */
async function take(
  client: ClientBase,
  text: string,
  rows: readonly HiddenRow[],
  now: number,
): Promise<GoneRow[]> {
  return (await client.query<GoneRow>({ text, values: [...goneValues(rows), now] })).rows;
}

const placeValues = (rows: readonly { readonly row: RowRef }[]) => [
  int8Array(rows.map(({ row }) => row.seq)),
  int8Array(rows.map(({ row }) => row.ingestedAt)),
  int2Array(rows.map(({ row }) => row.keep)),
];
const goneValues = (rows: readonly HiddenRow[]) => [
  ...placeValues(rows),
  int4Array(rows.map((r) => r.community)),
  hexArray(rows.map((r) => r.id)),
  int2Array(rows.map((r) => HIDDEN_CODES[r.hidden])),
];

/** Those of these rows that were served. */
async function forget(client: ClientBase, rows: readonly HiddenRow[]): Promise<LeftRow[]> {
  const bySeq = new Map(rows.map((row) => [row.row.seq, row]));
  const { rows: deleted } = await client.query<Pick<GoneRow, 'seq' | 'was_hidden'>>({
    text: FORGET_SQL,
    values: goneValues(rows),
  });
  return deleted.filter((row) => row.was_hidden === null).map(({ seq }) => leftRow(bySeq.get(seq)!));
}

function leftRow({ community, hidden, row, forgotten }: HiddenRow): LeftRow {
  const { event, payload, bound } = forgotten!;
  return {
    seq: row.seq,
    ingested_at: row.ingestedAt,
    keep: row.keep,
    why: HIDDEN_CODES[hidden],
    community,
    payload: payload ?? serializeEvent(event),
    bound: [...bound],
    event,
  };
}

/** Deletes those of these events that are still served, and returns them. Under the lane's lock. */
export async function takeServed(
  client: ClientBase,
  events: readonly PlacedEvent[],
): Promise<readonly PlacedEvent[]> {
  if (events.length === 0) return events;
  const { rows } = await client.query<{ seq: number }>({
    text: TAKE_SERVED_SQL,
    values: [
      ...placeValues(events),
      ...boundsOf(
        events.map(({ row }) => row.keep),
        events.map(({ row }) => row.ingestedAt),
      ),
    ],
  });
  if (rows.length === events.length) return events;
  const taken = new Set(rows.map(({ seq }) => seq));
  return events.filter(({ row }) => taken.has(row.seq));
}

/** Deletes the ids of events that a mark hides, and keeps out, and returns how many. Outside the lane. */
export async function forgetIds(client: ClientBase, events: readonly PlacedEvent[]): Promise<number> {
  const { rowCount } = await client.query({
    text: FORGET_IDS_SQL,
    values: [
      int4Array(events.map(({ community }) => community)),
      hexArray(events.map(({ event }) => event.id)),
    ],
  });
  return rowCount ?? 0;
}

/**
 * Deletes the tags of events that a mark hides: no query needs them any more. Outside the lane, and before
 * their events are deleted: nothing else finds the tags afterwards.
 */
export function removeTagsOf(
  client: ClientBase,
  events: readonly PlacedEvent[],
  tagHash: TagHash,
): Promise<void> {
  const rows = events.map(({ community, event, row, bound }) => ({
    ...{ community, event, bound },
    ...{ seq: row.seq, ingested_at: row.ingestedAt, keep: row.keep },
  }));
  return removeTags(client, rows, tagHash);
}

/**
 * Tag rows have no index by event. Their keys are computed again from the event, as when they were written.
 */
const UNTAG_SQL = `
  DELETE FROM event_tags t
  USING unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::smallint[])
    AS g (tag, created_at, seq, ingested_at, keep)
  WHERE t.tag = g.tag AND t.created_at = g.created_at AND t.seq = g.seq
    AND t.ingested_at = g.ingested_at AND t.keep = g.keep AND ${within('t', 6)}`;

type Tagged = Pick<LeftRow, 'community' | 'event' | 'seq' | 'ingested_at' | 'keep'> & {
  readonly bound: readonly string[] | null;
};

/** The lists are filled directly: an object for each tag takes longer than the hash of the tag. */
async function removeTags(client: ClientBase, rows: readonly Tagged[], tagHash: TagHash): Promise<void> {
  const tags: bigint[] = [];
  const tagged: Tagged[] = [];
  for (const row of rows)
    for (const tag of tagKeys(row.community, row.event, tagHash, row.bound ?? UNBOUND)) {
      tags.push(tag);
      tagged.push(row);
    }
  if (tags.length === 0) return;
  await client.query({
    text: UNTAG_SQL,
    values: [
      int8Array(tags),
      int8Array(tagged.map(({ event }) => event.created_at)),
      int8Array(tagged.map(({ seq }) => seq)),
      int8Array(tagged.map(({ ingested_at }) => ingested_at)),
      int2Array(tagged.map(({ keep }) => keep)),
      ...boundsOf(
        rows.map(({ keep }) => keep),
        rows.map(({ ingested_at }) => ingested_at),
      ),
    ],
  });
}

const LOWER_TOTALS_SQL = `
  UPDATE community_totals t SET events = t.events - c.events, bytes = t.bytes - c.bytes,
    requests = ${lowered('requests', 'events')}, request_bytes = ${lowered('request_bytes', 'bytes')}
  FROM (SELECT community, count(*) AS events, sum(bytes) AS bytes,
      sum(request) AS requests, sum(bytes * request) AS request_bytes
    FROM unnest($1::int[], $2::bigint[], $3::int[]) AS g (community, bytes, request) GROUP BY community) c
  WHERE t.community = c.community`;

async function lowerTotals(client: ClientBase, rows: readonly LeftRow[]): Promise<void> {
  if (rows.length === 0) return;
  await client.query({
    name: 'lower-totals',
    text: LOWER_TOTALS_SQL,
    values: [
      int4Array(rows.map((row) => row.community)),
      int8Array(rows.map((row) => Buffer.byteLength(row.payload))),
      int4Array(rows.map(({ event }) => (isCounted(event) ? 0 : 1))),
    ],
  });
}
