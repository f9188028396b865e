/**
 * Reads changes with their events: rows of the outbox for consumers that follow it (I8), and the effective
 * events as upserts for consumers that rebuild (I9).
 */
import { printable } from '../events/postgres/batch.js';
import { readEventsById } from '../events/postgres/read/find.js';
import { NOT_VANISHED } from '../events/postgres/read/hidden-at-read.js';
import { addressOf } from '../events/rules/classify.js';
import type { NostrEvent } from '../events/rules/event.js';
import type { NewRow, OutboxReason, OutboxRow } from '../events/rules/writes.js';
import type { ChangesOfCommunity, EventRef, OutlinedChanges, ReadEvent } from '../events/store.js';
import type { Db } from '../postgres/values.js';
import { allTopics, UNBOUND } from '../topics/rules.js';
import { OutboxBehind, tagSet } from './outbox.sql.js';

export interface Change {
  readonly seq: number;
  readonly community: number;
  readonly op: 'upsert' | 'delete';
  /** Only for a delete. */
  readonly reason: OutboxReason | undefined;
  readonly id: string;
  readonly author: string;
  readonly kind: number;
  /** Seconds, as Nostr has them. */
  readonly createdAt: number;
  /** Milliseconds. */
  readonly ingestedAt: number;
  /** The topics that it names and those that it is bound to. */
  readonly topics: readonly string[];
  /** For a replaceable or addressable event: `kind:pubkey:d`, with control characters as JSON escapes. */
  readonly effectiveKey: string | undefined;
  /** For an upsert that is still effective: the event as JSON. */
  readonly payload: string | undefined;
  /** Topics that it is bound to without naming them. */
  readonly bound: readonly string[];
  /** For a delete, where they were asked for and are known: the keys of its tags. */
  readonly tags?: ReadonlySet<string>;
}

export interface ChangePage {
  readonly changes: readonly Change[];
  /**
   * Everything up to this offset is in this page or before it. It is higher than the offset of the last
   * change if no more changes follow.
   */
  readonly upTo: number;
  /** The head of the outbox in the same snapshot. */
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
  tags?: string | null,
];

export interface ChangesOf {
  readonly after: number;
  readonly limit: number;
  /** Only of this community. */
  readonly community?: number;
  /** Reads at most this many offsets, of any community; no limit by default. */
  readonly within?: number;
  /** Without their payloads. */
  readonly bare?: boolean;
  /**
   * Also rows that an erasure has scrubbed, without an id: a reader that meets one late has missed a
   * deletion.
   */
  readonly scrubbed?: boolean;
  /** With the keys of the tags of each delete. */
  readonly tags?: boolean;
}

/** The next changes after an offset. Throws OutboxBehind if some of them were trimmed. */
export async function readChanges(db: Db, query: ChangesOf): Promise<ChangePage> {
  const { after, limit, community, within = Number.MAX_SAFE_INTEGER } = query;
  const { bare = false, scrubbed = false, tags = false } = query;
  const end = Math.min(Number.MAX_SAFE_INTEGER, after + within);
  const { rows } = await db.query<Tuple>({
    name: ['changes', community !== undefined && 'of', scrubbed && 'scrubbed', tags && 'tags']
      .filter(Boolean)
      .join('-'),
    text: `SELECT s.outbox_floor, s.last_seq, o.seq, o.community,
        CASE o.op WHEN 'scrubbed' THEN 'delete' ELSE o.op END,
        CASE o.op WHEN 'scrubbed' THEN 'erasure' ELSE o.reason END,
        encode(o.event_id, 'hex'), encode(o.author, 'hex'), o.kind,
        o.created_at, o.ingested_at, o.topics, o.effective_key${tags ? ", array_to_string(o.tags, ',')" : ''}
      FROM lane_state s LEFT JOIN (SELECT * FROM events_outbox
        WHERE seq > $1 AND seq <= $3 ${scrubbed ? '' : "AND op <> 'scrubbed'"}
          ${community === undefined ? '' : 'AND community = $4'}
        ORDER BY seq LIMIT $2) o ON true
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
  const [
    ,
    ,
    seq,
    community,
    op,
    reason,
    id,
    author,
    kind,
    createdAt,
    ingestedAt,
    topics,
    effectiveKey,
    keys,
  ] = row;
  const tags = op === 'delete' ? tagSet(keys) : undefined;
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
    ...(tags === undefined ? {} : { tags }),
  };
}

/** Offsets that one statement reads, of any community. */
const OFFSETS_PER_READ = 50_000;

/** Of one community, each with its outline, for a client that returns. */
export async function readChangesOf(
  db: Db,
  { community, after, upTo = Number.MAX_SAFE_INTEGER, limit }: ChangesOfCommunity,
): Promise<OutlinedChanges> {
  const within = Math.max(0, Math.min(OFFSETS_PER_READ, upTo - after));
  const page = await readChanges(db, {
    community,
    after,
    limit,
    within,
    bare: true,
    scrubbed: true,
    tags: true,
  });
  const changes = page.changes.map((change) => {
    const { seq, op, id, ingestedAt, author, kind, createdAt, topics, tags } = change;
    // Something was erased here, and nobody can say any more what.
    if (id === '') throw new OutboxBehind(after, seq + 1);
    const outline = { id, author, kind, createdAt, topics, tags };
    return { community, seq, op, id, ingestedAt, outline };
  });
  return { changes, upTo: page.upTo, head: page.lastSeq };
}

/**
 * Adds the events as they are now. An event that is no longer effective is left out; a later change says why.
 */
export async function withPayloads(db: Db, changes: readonly Change[]): Promise<Change[]> {
  const upserts = changes.filter(({ op }) => op === 'upsert');
  if (upserts.length === 0) return [...changes];
  return withEvents(changes, await readEventsById(db, upserts));
}

/** `events`: by `factKey`. */
export function withEvents(changes: readonly Change[], events: ReadonlyMap<string, ReadEvent>): Change[] {
  return changes.map((change) => {
    const found = change.op === 'upsert' ? events.get(`${change.community}/${change.id}`) : undefined;
    return found === undefined ? change : { ...change, payload: found.payload, bound: found.bound };
  });
}

const parsed = new WeakMap<Change, NostrEvent>();

/** The event of a change that has its payload. It is parsed once for all consumers. */
export function eventOf(change: Change): NostrEvent | undefined {
  const known = parsed.get(change);
  if (known !== undefined || change.payload === undefined) return known;
  const event = JSON.parse(change.payload) as NostrEvent;
  parsed.set(change, event);
  return event;
}

/** The change of a row that this process has just committed, with its event if it is effective. */
export function committedChange(
  { seq, community, op, reason, event, topics, effectiveKey, ingestedAt }: OutboxRow,
  row: Pick<NewRow, 'submission' | 'bound'> | undefined,
): Change {
  const change: Change = {
    seq,
    community,
    op,
    reason,
    id: event.id,
    author: event.pubkey,
    kind: event.kind,
    createdAt: event.created_at,
    ingestedAt,
    topics,
    effectiveKey: printable(effectiveKey),
    payload: row?.submission.payload,
    bound: row?.bound ?? UNBOUND,
  };
  if (row !== undefined) parsed.set(change, row.submission.event);
  return change;
}

export interface Since {
  readonly floor: number;
  readonly lastSeq: number;
  /** Rows after the offset. */
  readonly rows: number;
  /** The ids of events that one of these rows hides. */
  readonly deleted: readonly string[];
}

/** A summary of at most `atMost` rows after an offset. */
export async function readSince(db: Db, after: number, atMost: number): Promise<Since> {
  const { rows } = await db.query<Since>({
    name: 'changes-since',
    text: `SELECT s.outbox_floor AS floor, s.last_seq AS "lastSeq", o.rows,
        coalesce(o.deleted, '{}') AS deleted
      FROM lane_state s CROSS JOIN (
        SELECT count(*) AS rows, array_agg(encode(event_id, 'hex')) FILTER (WHERE op <> 'upsert') AS deleted
        FROM events_outbox WHERE seq > $1 AND seq <= $1 + $2::bigint) o`,
    values: [after, atMost],
  });
  return rows[0]!;
}

type ViewTuple = [
  seq: number,
  community: number,
  id: string,
  ingestedAt: number,
  payload: string,
  bound: string[] | null,
];

export interface ViewOf {
  /** The range of the offsets of the upserts: after this one, up to and including `upTo`. */
  readonly after: number;
  /** The `place` of the page before, where it has one. */
  readonly place?: string | undefined;
  readonly upTo: number;
  readonly limit: number;
  readonly community?: number;
  /** Reads at most this many offsets; no limit by default. */
  readonly within?: number;
}

export interface ViewPage {
  readonly changes: readonly Change[];
  /** The offset after this page. Only the store that gave it can continue there. */
  readonly upTo: number;
  readonly place?: string;
  /** Everything that is effective is in this page or before it. */
  readonly isDone: boolean;
}

/** Where the events of changes are: in this database, or in a store beside it. */
export interface ChangedEvents {
  /**
   * Adds the events as they are now. An event that is no longer effective is left out; a later change says
   * why.
   */
  withPayloads(db: Db, changes: readonly Change[]): Promise<Change[]>;
  /** The event of this change as an upsert, if it is still effective at that offset. */
  at(db: Db, change: Change): Promise<readonly Change[]>;
  /** A page of the effective events as upserts, in the order of the store. */
  view(db: Db, of: ViewOf): Promise<ViewPage>;
}

export const IN_DATABASE: ChangedEvents = {
  withPayloads,
  at: (db, { seq, community }) => readView(db, { after: seq - 1, upTo: seq, limit: 1, community }),
  view: async (db, { within = Number.MAX_SAFE_INTEGER, ...of }) => {
    const end = Math.min(of.upTo, of.after + within);
    const changes = await readView(db, { ...of, upTo: end });
    const upTo = changes.length < of.limit ? Math.max(of.after, end) : changes.at(-1)!.seq;
    return { changes, upTo, isDone: upTo >= of.upTo };
  },
};

/** The effective events in the order of their offsets, as upserts. */
export async function readView(
  db: Db,
  { after, upTo, limit, community }: Omit<ViewOf, 'place' | 'within'>,
): Promise<Change[]> {
  const { rows } = await db.query<ViewTuple>({
    name: community === undefined ? 'view' : 'view-of',
    text: `SELECT e.seq, e.community, encode(e.id, 'hex'), e.ingested_at, e.payload, e.bound
      FROM events e WHERE e.seq > $1 AND e.seq <= $2 AND e.hidden IS NULL
        ${community === undefined ? '' : 'AND e.community = $4'} AND ${NOT_VANISHED} ORDER BY e.seq LIMIT $3`,
    values: community === undefined ? [after, upTo, limit] : [after, upTo, limit, community],
    rowMode: 'array',
  });
  return eventsAsUpserts(
    rows.map(([seq, of, id, ingestedAt, payload, bound]) => ({
      seq,
      community: of,
      id,
      ingestedAt,
      payload,
      bound: bound ?? UNBOUND,
    })),
  );
}

export function eventsAsUpserts(events: readonly (ReadEvent & EventRef)[]): Change[] {
  return events.map(({ seq, community, id, ingestedAt, payload, bound }) => {
    const event = JSON.parse(payload) as NostrEvent;
    const change: Change = {
      seq,
      community,
      op: 'upsert',
      reason: undefined,
      id,
      author: event.pubkey,
      kind: event.kind,
      createdAt: event.created_at,
      ingestedAt,
      topics: allTopics(event, bound),
      effectiveKey: printable(addressOf(event)),
      payload,
      bound,
    };
    parsed.set(change, event);
    return change;
  });
}
