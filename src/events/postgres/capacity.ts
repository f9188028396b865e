/**
 * The totals of topics, the capacity steps in force (events/rules/capacity.ts), and the selection of a purge
 * for space. The lane updates the totals in the transaction of each change; nothing is counted. I11: a purge
 * selects only the oldest regular events.
 */
import type { ClientBase, Pool } from 'pg';
import { int2Array, int4Array, int8Array, textArray } from '../../postgres/binary.js';
import { topicsOf, UNBOUND } from '../../topics/rules.js';
import {
  type Capacity,
  type Cause,
  excess,
  isCounted,
  type LagStep,
  type Limits,
  type Size,
  type Step,
} from '../rules/capacity.js';
import type { NostrEvent } from '../rules/event.js';
import type { PlacedEvent, RowRef } from '../rules/facts.js';
import { REGULAR_KEEPS } from '../rules/keep.js';
import { eventAt } from './places.js';
import type { TagHash } from './tag-hash.js';

type Db = ClientBase | Pool;

/** A community (its topic is empty) or one topic of it. */
export interface Scope {
  readonly community: number;
  readonly topic: string;
}
export const WHOLE = '';

// ── Totals of topics ───────────────────────────────────────────────────────────────────────────────────────

/** An event that enters or leaves the view. */
export interface TopicChange {
  readonly community: number;
  readonly event: NostrEvent;
  readonly payload: string;
}

// Summed in SQL: two topics may be equal there, because characters that text cannot store are replaced.
const CHANGES = `SELECT community, topic, count(*) AS events, sum(bytes) AS bytes,
    sum(request) AS requests, sum(bytes * request) AS request_bytes
  FROM unnest($1::int[], $2::bigint[], $3::int[], $4::text[]) AS c (community, bytes, request, topic)
  GROUP BY community, topic`;
const RAISE_SQL = `
  INSERT INTO topic_totals AS t (community, topic, events, bytes, requests, request_bytes)
  SELECT community, topic, events, bytes, requests, request_bytes FROM (${CHANGES}) c
  ON CONFLICT (community, topic) DO UPDATE
  SET events = t.events + excluded.events, bytes = t.bytes + excluded.bytes,
    requests = t.requests + excluded.requests, request_bytes = t.request_bytes + excluded.request_bytes`;
/**
 * The row of an empty topic is deleted; otherwise invented topics would stay for ever. Of requests that were
 * stored before there was a count of them, none may be in it: then they count as events until they leave.
 */
const LOWER_SQL = `
  MERGE INTO topic_totals t USING (${CHANGES}) c ON t.community = c.community AND t.topic = c.topic
  WHEN MATCHED AND t.events <= c.events THEN DELETE
  WHEN MATCHED THEN UPDATE SET events = t.events - c.events, bytes = t.bytes - c.bytes,
    requests = ${lowered('requests', 'events')}, request_bytes = ${lowered('request_bytes', 'bytes')}`;

/** A part of a total, after both are lowered: never below 0, and never more than the whole. */
export function lowered(part: string, whole: string): string {
  return `least(t.${whole} - c.${whole}, greatest(0, t.${part} - c.${part}))`;
}

export function raiseTopicTotals(client: ClientBase, changes: readonly TopicChange[]): Promise<void> {
  return changeTotals(client, 'raise-topics', RAISE_SQL, changes);
}

export function lowerTopicTotals(client: ClientBase, changes: readonly TopicChange[]): Promise<void> {
  return changeTotals(client, 'lower-topics', LOWER_SQL, changes);
}

async function changeTotals(
  client: ClientBase,
  name: string,
  text: string,
  changes: readonly TopicChange[],
): Promise<void> {
  const communities: number[] = [];
  const bytes: number[] = [];
  const requests: number[] = [];
  const topics: string[] = [];
  for (const { community, event, payload } of changes) {
    const names = topicsOf(event);
    if (names.length === 0) continue;
    const size = Buffer.byteLength(payload);
    for (const topic of names) {
      communities.push(community);
      bytes.push(size);
      requests.push(isCounted(event) ? 0 : 1);
      topics.push(topic);
    }
  }
  if (topics.length === 0) return;
  await client.query({
    name,
    text,
    values: [int4Array(communities), int8Array(bytes), int4Array(requests), textArray(topics)],
  });
}

const EMPTY: Size = { events: 0, bytes: 0 };

/** What a limit counts of a row of totals. */
const COUNTED = 'events - requests AS events, bytes - request_bytes AS bytes';

/** The size that its limits are compared with. */
export async function readSize(db: Db, { community, topic }: Scope): Promise<Size> {
  const { rows } =
    topic === WHOLE
      ? await db.query<Size>(`SELECT ${COUNTED} FROM community_totals WHERE community = $1`, [community])
      : await db.query<Size>(`SELECT ${COUNTED} FROM topic_totals WHERE community = $1 AND topic = $2`, [
          community,
          topic,
        ]);
  return rows[0] ?? EMPTY;
}

/** The bytes that each community keeps. */
export async function readKeptBytes(db: Db): Promise<ReadonlyMap<number, number>> {
  const { rows } = await db.query<{ community: number; bytes: number }>(
    'SELECT community, bytes FROM community_totals',
  );
  return new Map(rows.map(({ community, bytes }) => [community, bytes]));
}

// ── Steps ──────────────────────────────────────────────────────────────────────────────────────────────────

export interface StepRow extends Scope {
  readonly cause: Cause;
  readonly step: Step;
  /** Milliseconds. */
  readonly since: number;
  /** Of a topic: it holds only events that are never purged. */
  readonly full: boolean;
}

const STEP_COLUMNS = 'community, topic, cause, step, since, "full"';

export async function readSteps(db: Db): Promise<StepRow[]> {
  const { rows } = await db.query<StepRow>(
    `SELECT ${STEP_COLUMNS} FROM capacity_steps ORDER BY community, topic, cause DESC`,
  );
  return rows;
}

/** The steps in force for one community as a whole, by cause. */
export async function readCommunitySteps(db: Db, community: number): Promise<StepRow[]> {
  const { rows } = await db.query<StepRow>(
    `SELECT ${STEP_COLUMNS} FROM capacity_steps WHERE community = $1 AND topic = $2`,
    [community, WHOLE],
  );
  return rows;
}

/** By community. A community in step 0, with all its topics, is not listed. */
export async function readCapacities(db: Db): Promise<Map<number, Capacity>> {
  const capacities = new Map<
    number,
    { step: Step; topics: Map<string, Step>; full: Set<string>; lag: LagStep }
  >();
  for (const { community, topic, cause, step, full } of await readSteps(db)) {
    const capacity = capacities.get(community) ?? {
      step: 0,
      topics: new Map<string, Step>(),
      full: new Set<string>(),
      lag: 0,
    };
    if (cause === 'lag') capacity.lag = step as LagStep;
    else if (topic === WHOLE) capacity.step = step;
    else capacity.topics.set(topic, step);
    if (full) capacity.full.add(topic);
    capacities.set(community, capacity);
  }
  return capacities;
}

/** Raises the version that is polled, so that every instance reads the new step. */
export async function writeStep(
  db: Db,
  { community, topic }: Scope,
  { cause, step, since, full = false }: Pick<StepRow, 'cause' | 'step' | 'since'> & { full?: boolean },
): Promise<void> {
  const changed = 'WITH changed AS (UPDATE config_version SET version = version + 1)';
  if (step === 0) {
    await db.query(
      `${changed} DELETE FROM capacity_steps WHERE community = $1 AND topic = $2 AND cause = $3`,
      [community, topic, cause],
    );
    return;
  }
  await db.query(
    `${changed} INSERT INTO capacity_steps (community, topic, cause, step, since, "full")
     VALUES ($1, $2, $3, $4, $5, $6)
     ON CONFLICT (community, topic, cause) DO UPDATE
     SET step = excluded.step, since = excluded.since, "full" = excluded."full"`,
    [community, topic, cause, step, since, full],
  );
}

/**
 * How many purges for space the log has after a position, up to a number. A log that no longer reaches back
 * has them all.
 */
export async function countPurged(
  db: Db,
  community: number,
  after: number,
  countMax: number,
): Promise<number> {
  const { rows } = await db.query<{ count: number; is_kept: boolean }>(
    `SELECT s.outbox_floor <= $2 + 1 AS is_kept, (SELECT count(*)::int FROM (
       SELECT 1 FROM events_outbox o
       WHERE o.seq > $2 AND o.community = $1 AND o.op = 'delete' AND o.reason = 'capacity' LIMIT $3) found
     ) AS count
     FROM lane_state s`,
    [community, after, countMax],
  );
  return rows[0]?.is_kept ? rows[0].count : countMax;
}

// ── The oldest ─────────────────────────────────────────────────────────────────────────────────────────────

const REGULAR = REGULAR_KEEPS.join(', ');
/** One scan along `seq` over the partitions of regular events. */
export const OLDEST_SQL = `
  SELECT e.seq, e.ingested_at, e.keep FROM events e
  WHERE e.keep IN (${REGULAR}) AND e.community = $1 AND e.hidden IS NULL AND e.seq > $3 AND e.seq <= $4
  ORDER BY e.seq LIMIT $2`;
/** The most offsets that one scan passes: most of them may belong to other communities, or be purged. */
export const WALK_SEQS_MAX = 200_000;
/**
 * Reads all tag rows of the topic: as many as the topic has events, which its limit bounds, plus the events
 * that are only bound to it and do not count for its size. Their events are read in order, until there are
 * enough.
 */
export const OLDEST_OF_TOPIC_SQL = `
  SELECT g.seq, g.ingested_at, g.keep
  FROM (SELECT * FROM event_tags t WHERE t.tag = $1 AND t.keep IN (${REGULAR}) ORDER BY t.seq OFFSET 0) g
  ${eventAt('g')}
  WHERE e.bound IS NULL OR NOT $3::text = ANY (e.bound)
  ORDER BY g.seq LIMIT $2`;

interface PlaceRow {
  seq: number;
  ingested_at: number;
  keep: number;
}

const placeOf = ({ seq, ingested_at, keep }: PlaceRow): RowRef => ({ seq, ingestedAt: ingested_at, keep });

/**
 * The places of the oldest regular events of a community after an offset. It runs outside the lane, because a
 * scan may pass many other rows. The lane then reads these places only.
 */
export async function oldestPlaces(
  client: ClientBase,
  community: number,
  after: number,
  head: number,
  limit: number,
): Promise<{ places: RowRef[] /** The scan has passed everything up to here. */; passed: number }> {
  const upTo = Math.min(head, after + WALK_SEQS_MAX);
  const { rows } = await client.query<PlaceRow>(OLDEST_SQL, [community, limit, after, upTo]);
  return { places: rows.map(placeOf), passed: rows.length < limit ? upTo : rows.at(-1)!.seq };
}

export async function oldestPlacesOfTopic(
  client: ClientBase,
  { community, topic }: Scope,
  limit: number,
  tagHash: TagHash,
): Promise<RowRef[]> {
  const values = [tagHash(community, 't', topic), limit, topic];
  return (await client.query<PlaceRow>(OLDEST_OF_TOPIC_SQL, values)).rows.map(placeOf);
}

const AT_PLACES_SQL = `
  SELECT e.community, e.seq, e.ingested_at, e.keep, e.payload, e.bound
  FROM unnest($1::bigint[], $2::bigint[], $3::smallint[]) AS asked (seq, ingested_at, keep)
  ${eventAt('asked')}
  WHERE e.hidden IS NULL AND e.community = $4`;

type Taken = PlacedEvent & { readonly bytes: number };
type TakenRow = PlaceRow & { community: number; payload: string; bound: string[] | null };

/**
 * The oldest events at these places that must be purged until the size is below where a purge ends. Inside
 * the lane's transaction.
 */
export async function selectExcess(
  client: ClientBase,
  scope: Scope,
  limits: Limits,
  places: readonly RowRef[],
): Promise<Taken[]> {
  return (await takeOldest(client, scope, excess(await readSize(client, scope), limits), places)).rows;
}

/**
 * The oldest events at these places that free the needed size, and the size that is still to be freed after
 * them.
 */
export async function takeOldest(
  client: ClientBase,
  scope: Scope,
  need: Size,
  places: readonly RowRef[],
): Promise<{ rows: Taken[]; left: Size }> {
  let { events, bytes } = need;
  const taken: Taken[] = [];
  if (events <= 0 && bytes <= 0) return { rows: taken, left: need };
  const { rows } = await client.query<TakenRow>(AT_PLACES_SQL, [
    int8Array(places.map((place) => place.seq)),
    int8Array(places.map((place) => place.ingestedAt)),
    int2Array(places.map((place) => place.keep)),
    scope.community,
  ]);
  for (const { community, seq, ingested_at, keep, payload, bound } of rows.sort((a, b) => a.seq - b.seq)) {
    if (events <= 0 && bytes <= 0) break;
    const event = JSON.parse(payload) as NostrEvent;
    // Two tags may share a hash.
    if (scope.topic !== WHOLE && !topicsOf(event).includes(scope.topic)) continue;
    const size = Buffer.byteLength(payload);
    const row = { seq, ingestedAt: ingested_at, keep };
    taken.push({ community, event, bound: bound ?? UNBOUND, row, bytes: size });
    events -= 1;
    bytes -= size;
  }
  return { rows: taken, left: { events, bytes } };
}
