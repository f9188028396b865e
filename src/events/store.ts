/**
 * The contract of the event store: what admission, relay, jobs, moderation and erasure need from it, and no
 * more. `events/postgres/store.ts` and `events/dynamodb/store.ts` implement it. The contract exposes no SQL,
 * connection or lock.
 *
 * What every store guarantees:
 * - `submit` decides and stores in one step, so that no interleaving of writers breaks I3–I6. `stored` means
 *   durable (I1).
 * - `submit` stores an event that moderation rules hold or hide out of view. The rules in force at that step
 *   decide (I16).
 * - Every change of the view by a write is in `changes` (I8). Readers get changes in the order of their
 *   positions.
 * - A `Position` has only an order: callers compare two of them and pass one back, and never calculate with
 *   one.
 * - No read finds events that were deleted, removed, erased or have vanished (I6), or that have expired by
 *   the time of the query (I7).
 *
 * What only the PostgreSQL store guarantees:
 * - One writer at a time over all instances (the lane). So a change is in `changes` in the same step,
 *   positions follow the order of commits, and a request with all its targets is one change. In DynamoDB the
 *   stream brings a change to `changes` a moment later, in the order of each event.
 * - `Ordered` and `mark` also write rows of the control plane, which is always PostgreSQL. In this store they
 *   share the transaction of the change. A store elsewhere makes the change between `due` and `note`, before
 *   the control plane commits. A crash in between repeats the change, so the change has to be idempotent.
 *
 * Maintenance of one store is not part of the contract, because another store has no use for it: purging
 * hidden rows, forgetting ids, dropping months and dry runs by SQL use the tables of PostgreSQL directly. Two
 * readers have a seam of their own, so that PostgreSQL keeps its joins: the events of changes
 * (`ChangedEvents` in outbox/changes.sql.ts) and search (`elsewhere` in search/search.sql.ts). Parts of the
 * control plane read events beside what is served through `stored` (events/stored-events.ts).
 */
import type { Deleter } from '../erasure/rules-deleter.js';
import type { ControlTx } from '../postgres/transaction.js';
import type { Bound } from '../sync/rules-negentropy.js';
import type { Limits, Size } from './rules/capacity.js';
import type { Decision } from './rules/decide.js';
import type { NostrEvent } from './rules/event.js';
import type { CameBy, PlacedEvent, RowRef, Submission } from './rules/facts.js';
import type { Filter } from './rules/filter.js';
import type { Announced, EventOutline } from './rules/hidden.js';
import type { QueryClass } from './rules/query-cost.js';
import type { Outcome, Refusal } from './rules/reply.js';
import type { HistoryRetention, Retention } from './rules/retention.js';
import type { VanishMark } from './rules/writes.js';
import type { StoredEvents } from './stored-events.js';

export interface EventStore
  extends EventWrites,
    EventReads,
    EventChanges,
    EventErasing,
    Partial<EventPreviews> {
  /** Events beside what is served, for operators, moderation, trust and gossip. */
  readonly stored: StoredEvents;
  /** Accepts nothing more and finishes what waits. */
  close(): Promise<void>;
}

export interface EventRef {
  readonly community: number;
  readonly id: string;
}

// ── Writing ────────────────────────────────────────────────────────────────────────────────────────────────

export interface EventWrites {
  /** Events that wait to be written. */
  readonly depth: number;
  /**
   * `from`: the line that it waits in, the widest part first (network, address, author); undefined for events
   * of the operator or of the node itself.
   */
  submit(submission: Submission, from?: readonly string[]): Promise<Outcome | Refusal>;
  /** Takes a bounded batch of events out of the view and announces it. Returns their number. */
  hide(hiding: Hiding): Promise<number>;
  /** One bounded step of the retention sweep. */
  sweep(step: SweepOf): Promise<Swept>;
  /** Deletes some of the superseded versions that a deletion by address has left for later. */
  deleteHistory(rowsMax: number): Promise<HistoryDeleted>;
  /**
   * Restores events that a moderator removed, unless another rule now keeps them out. Returns the result of
   * each, in the given order.
   */
  restore(which: readonly EventRef[] | Ordered<Restored>): Promise<Restored[]>;
  /**
   * Hides everything of some members at once, at read time, together with rows of the control plane that must
   * take effect at the same moment.
   */
  mark(work: Marking): Promise<void>;
  /** Adds to the counters of events that were sent again. */
  countSeen(seen: readonly SeenAgain[]): Promise<void>;
}

export interface Hiding {
  readonly hidden: Announced;
  /** The content is deleted at once. */
  readonly purge: boolean;
  /** With `purge`: the ids are forgotten as well, because a mark of an erasure refuses these events. */
  readonly forget?: boolean;
  readonly which: Selection | Ordered<boolean>;
}

/**
 * Which served events (or superseded ones, where stated) a batch takes. `limit` bounds its rows; the store
 * bounds its bytes.
 */
export type Selection =
  | { readonly by: 'ids'; readonly refs: readonly EventRef[] }
  /** Events past their expiration. */
  | { readonly by: 'expiration'; readonly limit: number }
  /** Versions of a community that were superseded longer ago than its rules keep them. */
  | {
      readonly by: 'history';
      readonly rules: HistoryRetention & { readonly id: number };
      readonly limit: number;
    }
  /** Deletion requests older than these days, with their tombstones. */
  | { readonly by: 'requests'; readonly community: number; readonly keepDays: number; readonly limit: number }
  /** The oldest events at these places, until the community or its topic is below where a purge ends. */
  | {
      readonly by: 'excess';
      readonly scope: { readonly community: number; readonly topic: string };
      readonly limits: Limits;
      readonly places: readonly RowRef[];
    }
  /** Where events have no places: the oldest regular events of this scope, until they free this size. */
  | {
      readonly by: 'oldest';
      readonly scope: { readonly community: number; readonly topic: string };
      readonly need: Size;
      readonly limit: number;
    }
  | { readonly by: 'author'; readonly author: Authored; readonly limit: number }
  | { readonly by: 'community'; readonly community: number; readonly limit: number }
  | { readonly by: 'places'; readonly places: readonly RowRef[]; readonly limit: number }
  /**
   * Events that the caller has read, and whose tags it has deleted: a mark hides them already. The caller
   * also deletes their ids. Only with `purge` and `forget`.
   */
  | { readonly by: 'read'; readonly events: readonly PlacedEvent[] };

/** The events that an author has signed up to a time. */
export interface Authored {
  readonly community: number;
  readonly pubkey: string;
  /** Seconds. */
  readonly until: number;
  /** The request to vanish itself is kept for the operator. */
  readonly sparesRequest: boolean;
}

/**
 * Events that orders of the control plane name. `due` reads the orders that are not carried out yet. `note`
 * writes the result of each, in their order. Both run in one transaction, so that an order is carried out
 * once.
 */
export interface Ordered<Result> {
  due(tx: ControlTx, now: number): Promise<readonly EventRef[]>;
  note(tx: ControlTx, results: readonly Result[], now: number): Promise<void>;
}

/**
 * `stored`: it is served again. Otherwise the reason why not. `unknown`: there is no removed event with this
 * id, or no longer.
 */
export type Restored = Decision | 'unknown';

/** Without a mark, nothing is hidden. */
export type Marking = (tx: ControlTx, now: number) => Promise<readonly VanishMark[]>;

export interface SweepOf {
  /** The `next` of the step before; 0 at the start. */
  readonly after: Position;
  readonly rules: ReadonlyMap<number, Retention>;
}

export interface Swept {
  readonly hidden: number;
  /** Kept, and moved to the bucket of the current rules. */
  readonly moved: number;
  /** The start of the next step; undefined when the end was reached. */
  readonly next: Position | undefined;
}

export interface HistoryDeleted {
  readonly versions: number;
  /** False when no deletion was left to carry out. */
  readonly found: boolean;
}

export interface SeenAgain extends EventRef {
  readonly times: number;
  readonly lastSeenAt: number;
}

// ── Previews ───────────────────────────────────────────────────────────────────────────────────────────────

/**
 * What jobs would take now, for dry runs. A store whose events are rows of PostgreSQL has none: there the
 * jobs count with SQL.
 */
export interface EventPreviews {
  /** Changes nothing. At most `PREVIEWED_MAX` events. */
  preview(which: Previewed): Promise<readonly PreviewedEvent[]>;
}

/** `sweep`: past their retention. `left`: what deletions have left for later. */
export type Previewed =
  | Selection
  | { readonly by: 'sweep'; readonly rules: ReadonlyMap<number, Retention> }
  | { readonly by: 'left' };

export interface PreviewedEvent {
  readonly community: number;
  readonly event: NostrEvent;
}

/** Each event costs a read. */
export const PREVIEWED_MAX = 10_000;

// ── Reading ────────────────────────────────────────────────────────────────────────────────────────────────

export interface EventReads {
  /** The newest events that match, newest first. `as`: the query class, which has its own sessions. */
  find(query: Query, as: QueryClass): Promise<FoundEvent[]>;
  /** How many different events match any of the filters, counted up to `max + 1`. */
  count(query: CountQuery, inSlot: InSlot): Promise<number>;
  /** Payloads in the order of the rows; undefined where a row is no longer effective, or has moved. */
  payloads(rows: readonly RowRef[], as: QueryClass): Promise<(string | undefined)[]>;
  /** Effective events by `factKey`. Without a class, the node itself reads. */
  byIds(refs: readonly EventRef[], as?: QueryClass): Promise<Map<string, ReadEvent>>;
  /**
   * A page of the events of a community after a place, newest first, to fill a memory. It includes events
   * that have expired or are past their retention.
   */
  newest(community: number, after: NewestPlace): Promise<NewestPage>;
  /**
   * A page of the events that match, as records of negentropy (sync/rules-negentropy.ts): time and id, in
   * rising order.
   */
  records(query: RecordsQuery, as: QueryClass): Promise<RecordsFound>;
  /** Ids that were seen before, whether their events are served now or not. Erased ones are not known. */
  known(community: number, ids: readonly string[]): Promise<ReadonlySet<string>>;
  /** By its id alone. False for events covered by a request to vanish, which may not be erased yet. */
  isServed(community: number, event: NostrEvent): Promise<boolean>;
}

export interface Query {
  readonly community: number;
  readonly filter: Filter;
  readonly limit: number;
  /** Milliseconds: events that have expired by then, or are past their days, are not found. */
  readonly now: number;
  /** The retention rules of the community; without rules no event is past its days. */
  readonly rules?: Retention | undefined;
}

export interface CountQuery extends Pick<Query, 'community' | 'now' | 'rules'> {
  readonly filters: readonly Filter[];
  readonly max: number;
}

/** Runs the query of one filter when its client has a slot, in a query class. */
export type InSlot = <T>(filter: Filter, query: (as: QueryClass) => Promise<T>) => Promise<T>;

export interface FoundEvent extends RowRef {
  readonly createdAt: number;
  readonly kind: number;
  readonly expiresAt: number | undefined;
  readonly id: string;
  readonly bytes: number;
  /** Topics that it is bound to in addition to those it names. */
  readonly bound: readonly string[];
  /** Set where the store has read it in the same step. */
  readonly payload: string | undefined;
}

export interface ReadEvent {
  /** The position of its upsert. */
  readonly seq: Position;
  readonly ingestedAt: number;
  readonly payload: string;
  readonly bound: readonly string[];
}

export interface RecordsQuery extends Query {
  /** Events that became visible later are not found, so that pages of one walk fit together. */
  readonly upTo: Position;
  readonly lower: Bound;
  readonly upper: Bound;
  /** How many seconds one page may span, where that matters; from the page before. */
  readonly spanSeconds?: number | undefined;
}

export interface RecordsFound {
  /** 40 bytes each, see `RECORD_BYTES`. */
  readonly records: Uint8Array;
  /** Where the next page begins; undefined at the end. */
  readonly next: Bound | undefined;
  readonly spanSeconds: number;
}

/** The last event that was read. An empty id stands before all events of its second. */
export interface NewestPlace {
  readonly createdAt: number;
  readonly id: string;
}

export interface NewestPage {
  readonly events: readonly (ReadEvent & NewestPlace)[];
  /** There are no older ones. */
  readonly isLast: boolean;
}

// ── Following ──────────────────────────────────────────────────────────────────────────────────────────────

export type Position = number;

export interface EventChanges {
  /** The last position assigned. */
  head(): Promise<Position>;
  /**
   * The next changes of the view. Throws an OutboxBehind when some of them are no longer kept. With outlines:
   * each delete says what it hides.
   */
  changes(after: Position, limit: number, withOutlines?: boolean): Promise<ChangesPage>;
  /**
   * The next changes of one community, each with its outline, for a client that returns. Throws an
   * OutboxBehind when some of them are no longer kept, or were erased. `as`: the query class.
   */
  changesOf(query: ChangesOfCommunity, as: QueryClass): Promise<OutlinedChanges>;
  /**
   * Ties a position to this history of the store: after a restored backup positions repeat, anchors do not.
   */
  anchor(position: Position, as: QueryClass): Promise<AnchorRead>;
  /** The key of a tag in the outline of an event. */
  tagKey(community: number, letter: string, value: string): string;
  /** The same for ephemeral events, which have positions of their own and are kept for some minutes. */
  broadcastHead(): Promise<Position>;
  broadcasts(after: Position, limit: number): Promise<Broadcast[]>;
}

export interface ChangesPage {
  readonly changes: readonly ViewChange[];
  /** The last position assigned when they were read. */
  readonly head: Position;
}

export type ViewChange = NamedChange | UnnamedChange;

export interface NamedChange extends EventRef {
  readonly op: 'upsert' | 'delete';
  readonly seq: Position;
  readonly ingestedAt: number;
  /** Of a delete, where outlines were asked for. */
  readonly outline?: EventOutline;
  /** Of an upsert that was not posted here; missing where the store does not know. */
  readonly cameBy?: CameBy | undefined;
}

export interface ChangesOfCommunity {
  readonly community: number;
  readonly after: Position;
  /** Nothing after this position. */
  readonly upTo?: Position;
  readonly limit: number;
}

export interface OutlinedChange extends NamedChange {
  readonly outline: EventOutline;
}

export interface OutlinedChanges {
  readonly changes: readonly OutlinedChange[];
  /** Everything up to this position is in this page or before it. */
  readonly upTo: Position;
  /** The last position assigned when they were read. */
  readonly head: Position;
}

/** A change that is kept, by its position and its time; time 0 where no change up to the position is kept. */
export interface Anchor {
  readonly seq: Position;
  readonly at: number;
}

export interface AnchorRead {
  /** The last change up to the position; where none is kept, the position (at most the head) with time 0. */
  readonly anchor: Anchor;
  /** The first position whose change is kept, and the last one assigned. */
  readonly floor: Position;
  readonly head: Position;
}

/** Events were hidden that no change names. */
export interface UnnamedChange {
  readonly op: 'unnamed';
  readonly seq: Position;
  /**
   * Marks that hold now, with those of this change among them: they hide what they name. Undefined when
   * nobody can say what was hidden: whoever remembers events forgets all of them.
   */
  readonly marks: readonly PendingMark[] | undefined;
}

/**
 * Hides the events of a public key up to a time, in seconds, and gift wraps to it, until they are erased.
 */
export type PendingMark = Pick<VanishMark, 'community' | 'pubkey' | 'until'>;

export interface Broadcast {
  readonly position: Position;
  readonly community: number;
  readonly payload: string;
  readonly cameBy?: CameBy | undefined;
}

/**
 * The reader is further behind than the kept changes. The changes that it missed are deleted, so it must
 * rebuild.
 */
export class OutboxBehind extends Error {
  constructor(
    readonly after: Position,
    readonly floor: Position,
  ) {
    super(`the outbox begins at ${floor}, but the reader has only read up to ${after}: it must be rebuilt`);
  }
}

// ── Erasing ────────────────────────────────────────────────────────────────────────────────────────────────

/**
 * What erasures and files of personal data need (I12). The tables of PostgreSQL are declared
 * (postgres/table.ts), and the control plane counts, deletes and reads them by their declarations. So the
 * store there adds only what needs the lane.
 */
export interface EventErasing {
  /**
   * In the order in which they delete. Events that were served are announced. In DynamoDB each table has one;
   * rows that a copy has left in PostgreSQL are deleted as well.
   */
  deleters(session: ErasingSession): readonly Deleter[];
  /** Deletes these events, served or hidden, and announces those that were served. */
  purge(refs: readonly EventRef[], hidden: 'vanished' | 'erased'): Promise<void>;
  /**
   * Those of these events whose content is here, served or hidden. Undefined where the control plane joins
   * the tables of events.
   */
  held?(refs: readonly EventRef[]): Promise<ReadonlySet<string>>;
  /**
   * Those of these public keys that it holds nothing of but a request to vanish, beside what tables of
   * PostgreSQL say.
   */
  strangersAmong<Key extends Owner>(keys: readonly Key[]): Promise<readonly Key[]>;
  /**
   * The latest `created_at` that it has seen of a member, or that a community serves; 0 without any. The time
   * of an event that was deleted before it arrived is unknown: while such a request is recent, the latest
   * time that may have been signed by now counts.
   */
  newestOf(owned: Owned, fence: FenceOf): Promise<number>;
  /**
   * The events that a mark hides are erased. A mark that is not forgotten still refuses. In PostgreSQL the
   * control plane ends it with its own rows.
   */
  endMark(mark: PendingMark, how: { readonly forget: boolean }): Promise<void>;
  /**
   * Waits some seconds until every change that was made before the call is in `changes`. False when one may
   * still be missing.
   */
  settled(): Promise<boolean>;
  /** Lines of a file of personal data, beside those of the tables of PostgreSQL. */
  personal(file: string, owner: Owner): AsyncIterable<object>;
}

export interface Owner {
  readonly community: number;
  readonly pubkey: string;
}

/** Without a key, the whole community. */
export type Owned = Pick<Owner, 'community'> & Partial<Owner>;

export interface FenceOf {
  /** Seconds: when the fence began. */
  readonly at: number;
  /** How far ahead of the clock an event may be signed. */
  readonly aheadSeconds: number;
}

export interface ErasingSession {
  /** A session of the control plane, outside the lane, whose statements may take long. */
  readonly client: ControlTx;
  readonly now: () => number;
  /** Rows of one batch. */
  readonly rows: number;
}
