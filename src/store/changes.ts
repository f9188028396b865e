/**
 * Changes of the view with their events: the rows of the outbox for those who follow it (I8), and the view itself, for those who
 * begin anew, as the upserts that made it (I9).
 */
import type { ClientBase, Pool } from 'pg';
import { addressOf } from '../core/classify.js';
import type { NostrEvent } from '../core/event.js';
import type { OutboxReason } from '../core/plan.js';
import { allTopics, UNBOUND } from '../core/topic.js';
import { printable } from './batch.js';
import { OutboxBehind } from './outbox.js';
import { NOT_VANISHED, readEventsById } from './query.js';

type Db = ClientBase | Pool;

export interface Change {
  readonly seq: number;
  readonly community: number;
  readonly op: 'upsert' | 'delete';
  /** Of a delete. */
  readonly reason: OutboxReason | undefined;
  readonly id: string;
  readonly author: string;
  readonly kind: number;
  /** Seconds, as Nostr has them. */
  readonly createdAt: number;
  /** Milliseconds. */
  readonly ingestedAt: number;
  /** Those it names and those it is bound to. */
  readonly topics: readonly string[];
  /** Of a replaceable or addressable event: `kind:pubkey:d`, control characters as JSON escapes. */
  readonly effectiveKey: string | undefined;
  /** Of an upsert that is still effective: the event as JSON. */
  readonly payload: string | undefined;
  /** Topics that it is bound to without naming them. */
  readonly bound: readonly string[];
}

export interface ChangePage {
  readonly changes: readonly Change[];
  /** Everything up to here is in this page or before it: more than the last change's number when no more follow. */
  readonly upTo: number;
  /** The last number given out, of the same snapshot. */
  readonly lastSeq: number;
}

type Tuple = [
  floor: number,
  lastSeq: number,
  seq: number | null,
  community: number,
  op: 'upsert' | 'delete',
  reason: OutboxReason | null,
  id: string,
  author: string,
  kind: number,
  createdAt: number,
  ingestedAt: number,
  topics: string[],
  effectiveKey: string | null,
];

export interface ChangesOf {
  readonly after: number;
  readonly limit: number;
  /** Of one community only. */
  readonly community?: number;
  /** Looks at so many numbers at most, however few of them are of the community; at all unless told. */
  readonly within?: number;
  /** Without their payloads. */
  readonly bare?: boolean;
  /** Also what was scrubbed after an erasure, without an id: whoever comes to it late has missed a deletion. */
  readonly scrubbed?: boolean;
}

/** The next changes after a number, or an OutboxBehind when some of them are gone. */
export async function readChanges(db: Db, asked: ChangesOf): Promise<ChangePage> {
  const { after, limit, community, within = Number.MAX_SAFE_INTEGER, bare = false, scrubbed = false } = asked;
  const end = Math.min(Number.MAX_SAFE_INTEGER, after + within);
  const { rows } = await db.query<Tuple>({
    name: `changes${community === undefined ? '' : '-of'}${scrubbed ? '-scrubbed' : ''}`,
    text: `SELECT s.outbox_floor, s.last_seq, o.seq, o.community, CASE o.op WHEN 'scrubbed' THEN 'delete' ELSE o.op END,
        CASE o.op WHEN 'scrubbed' THEN 'erasure' ELSE o.reason END, encode(o.event_id, 'hex'), encode(o.author, 'hex'), o.kind,
        o.created_at, o.ingested_at, o.topics, o.effective_key
      FROM lane_state s LEFT JOIN (SELECT * FROM events_outbox
        WHERE seq > $1 AND seq <= $3 ${scrubbed ? '' : "AND op <> 'scrubbed'"} ${community === undefined ? '' : 'AND community = $4'} ORDER BY seq LIMIT $2) o ON true
      ORDER BY o.seq`,
    values: community === undefined ? [after, limit, end] : [after, limit, end, community],
    rowMode: 'array',
  });
  const [floor, lastSeq] = rows[0]!;
  if (after < floor - 1) throw new OutboxBehind(after, floor);
  const found = rows.flatMap((row) => (row[2] === null ? [] : [changeOf(row)]));
  const changes = bare ? found : await withPayloads(db, found);
  const upTo = found.length < limit ? Math.max(after, Math.min(end, lastSeq)) : found.at(-1)!.seq;
  return { changes, upTo, lastSeq };
}

function changeOf(row: Tuple): Change {
  const [, , seq, community, op, reason, id, author, kind, createdAt, ingestedAt, topics, effectiveKey] = row;
  return {
    seq: seq!,
    community,
    op,
    reason: reason ?? undefined,
    id,
    author,
    kind,
    createdAt,
    ingestedAt,
    topics,
    effectiveKey: effectiveKey ?? undefined,
    payload: undefined,
    bound: UNBOUND,
  };
}

/** As the events are now: one that is no longer effective has none, and a change after it says why. */
export async function withPayloads(db: Db, changes: readonly Change[]): Promise<Change[]> {
  const upserts = changes.filter(({ op }) => op === 'upsert');
  if (upserts.length === 0) return [...changes];
  const events = await readEventsById(db, upserts);
  return changes.map((change) => {
    const found = change.op === 'upsert' ? events.get(`${change.community}/${change.id}`) : undefined;
    return found === undefined ? change : { ...change, payload: found.payload, bound: found.bound };
  });
}

type ViewTuple = [
  seq: number,
  community: number,
  id: string,
  author: string,
  kind: number,
  createdAt: number,
  ingestedAt: number,
  payload: string,
  bound: string[] | null,
];

export interface ViewOf {
  /** By the number of an event's upsert: after this one, up to the other. */
  readonly after: number;
  readonly upTo: number;
  readonly limit: number;
  readonly community?: number;
}

/** The effective events in the order of their numbers, as upserts. */
export async function readView(db: Db, { after, upTo, limit, community }: ViewOf): Promise<Change[]> {
  const { rows } = await db.query<ViewTuple>({
    name: community === undefined ? 'view' : 'view-of',
    text: `SELECT e.seq, e.community, encode(e.id, 'hex'), encode(e.pubkey, 'hex'), e.kind, e.created_at, e.ingested_at, e.payload,
        e.bound
      FROM events e WHERE e.seq > $1 AND e.seq <= $2 AND e.hidden IS NULL
        ${community === undefined ? '' : 'AND e.community = $4'} AND ${NOT_VANISHED} ORDER BY e.seq LIMIT $3`,
    values: community === undefined ? [after, upTo, limit] : [after, upTo, limit, community],
    rowMode: 'array',
  });
  return rows.map(([seq, of, id, author, kind, createdAt, ingestedAt, payload, bound]) => {
    const event = JSON.parse(payload) as NostrEvent;
    return {
      seq,
      community: of,
      op: 'upsert',
      reason: undefined,
      id,
      author,
      kind,
      createdAt,
      ingestedAt,
      topics: allTopics(event, bound ?? UNBOUND),
      effectiveKey: printable(addressOf(event)),
      payload,
      bound: bound ?? UNBOUND,
    };
  });
}
