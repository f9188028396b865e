/**
 * Live delivery: reads the outbox in order and hands each new event to the subscriptions that match. So every
 * path of writing is seen, also from another instance. NOTIFY is only a wake-up; polling is the truth.
 *
 * The outbox says what and in which order; the bytes of events written by this process are still in memory.
 * A commit of this process that only adds events, right after what was passed, is passed without reading the
 * outbox: it has no more than that.
 *
 * A position is passed when memory has its event: who subscribes then counts it as stored. Its readers get it
 * after that, however many they are (live/deliveries.ts).
 */
import { LRUCache } from 'lru-cache';
import type { RecentIds } from '../events/recent-ids.js';
import { covers } from '../events/rules/deletion.js';
import type { NostrEvent } from '../events/rules/event.js';
import { expirationOf } from '../events/rules/expiration.js';
import { factKey } from '../events/rules/facts.js';
import { asKept, type Retention } from '../events/rules/retention.js';
import type { BatchWrites } from '../events/rules/writes.js';
import {
  type EventStore,
  type NamedChange,
  OutboxBehind,
  type PendingMark,
  type Position,
  type ReadEvent,
  type UnnamedChange,
} from '../events/store.js';
import { BUS_NOTICE, type Wakeups } from '../events/wakeups.js';
import type { Log } from '../node/log.js';
import type { Metrics } from '../node/metrics.js';
import { asMatched, impliedTopics, type MatchedEvent, type TopicSettings, UNBOUND } from '../topics/rules.js';
import { Deliveries, type News } from './live/deliveries.js';
import { HiddenAhead } from './live/hidden-ahead.js';
import { type WaitingEvent, WaitingEvents } from './live/waiting.js';
import type { Memory } from './memory.js';
import type { GoneReader } from './rules-gone.js';
import { FollowerIndex, SubscriptionIndex } from './subscription-index.js';

const POLL_MS = 1_000;
const READ_MAX = 500;
/** Bytes of parsed events of this process on their way from commit to delivery. */
const COMMITTED_BYTES_MAX = 16 * 1_048_576;
/** Commits on the same way. With more, the outbox is read: a commit has at most 500 events. */
const PLAIN_MAX = 16;
/** The frame of a GONE. */
const GONE_BYTES = 100;

export interface LiveEvent {
  /** Its position in the outbox; undefined for an ephemeral event, which has none. */
  readonly seq: number | undefined;
  /** Milliseconds; 0 for an ephemeral event. */
  readonly ingestedAt: number;
  readonly event: NostrEvent;
  readonly payload: Buffer;
  /** As filters see it. */
  readonly matched: MatchedEvent;
  /** It is held by whoever sends it later. */
  readonly waits: WaitingEvent;
  /** It was hidden, or has expired: it is not sent any more (I6, I7). */
  isOver(): boolean;
}

export interface LiveReader {
  /** What it took of the event loop, in ms: nothing if it waits, or is not for this reader. */
  deliver(live: LiveEvent): number;
}

/** A subscription with a cursor, which also gets deletions. */
export interface LiveFollower {
  readonly reader: GoneReader | undefined;
  /** As `deliver`. */
  announce(deletion: LiveDeletion): number;
  /** Deletions have passed that nobody can name. */
  lose(): void;
}

export type LiveDeletion = Pick<NamedChange, 'seq' | 'id' | 'ingestedAt'>;

type Arrived = Omit<LiveEvent, 'waits' | 'isOver'>;

export interface FanoutOptions {
  readonly events: Pick<EventStore, 'head' | 'changes' | 'byIds' | 'broadcastHead' | 'broadcasts'>;
  readonly wakeups: Wakeups;
  readonly memory: Memory;
  readonly recent: RecentIds;
  readonly metrics: Metrics;
  readonly log: Log;
  readonly now: () => number;
  /** Of a community that is there. */
  readonly rulesOf: (community: number) => (Retention & { readonly settings: TopicSettings }) | undefined;
}

export class Fanout {
  private readonly indexes = new Map<number, SubscriptionIndex<LiveReader>>();
  private readonly followerIndexes = new Map<number, FollowerIndex<LiveFollower>>();
  /** By community. */
  private readonly waitingEvents = new Map<number, WaitingEvents>();
  private readonly deliveries: Deliveries;
  /** While there are any, deletes are read with their outlines. */
  private followers = 0;
  private readonly committed = new LRUCache<number, Parsed>({
    maxSize: COMMITTED_BYTES_MAX,
    sizeCalculation: ({ payload }) => payload.length,
  });
  private readonly stopping = new AbortController();
  private awake: (() => void) | undefined;
  /** Those who wait until everything committed so far has been passed. */
  private waiting: Waiting[] = [];
  private wanted = true;
  private busWanted = true;
  /** Something may have been committed since the outbox was last read. */
  private isHinted = true;
  private loop: Promise<void> = Promise.resolve();
  private busPosition = 0;
  private position = 0;
  private committedSeq = 0;
  /** Commits of this process that are passed without reading the outbox, in order. */
  private plain: BatchWrites[] = [];
  private readonly hidden = new HiddenAhead();

  constructor(private readonly options: FanoutOptions) {
    this.deliveries = new Deliveries(options.log);
  }

  async start(): Promise<void> {
    const { events } = this.options;
    this.options.recent.alsoServed = (community, id) => this.serves(community, id);
    this.position = await events.head();
    this.busPosition = await events.broadcastHead();
    this.options.wakeups.add({
      // Ephemeral batches commit without waiting for the disk: after a crash the bus may have fallen behind
      // this reader.
      opening: async () => {
        const busHead = await events.broadcastHead();
        this.busPosition = Math.min(this.busPosition, busHead);
      },
      // What this process has committed is passed on by `onCommit`.
      wake: (notice, isOwn) => isOwn || this.wake(notice === undefined || notice === BUS_NOTICE),
    });
    this.loop = this.readLoop();
  }

  /**
   * The last position that a query starting now is sure to see: passed by the fan-out, or committed by this
   * process, whose client may have had its OK already. A subscription counts as live what comes after it.
   */
  get head(): number {
    return Math.max(this.position, this.committedSeq);
  }

  /**
   * The event is in memory, and memory knows of everything that this process has hidden: then a repeat of it
   * is a duplicate.
   */
  private serves(community: number, id: string): boolean {
    return this.position >= this.hidden.until && this.options.memory.holds(community, id);
  }

  /** The last position that was passed. */
  get passed(): Position {
    return this.position;
  }

  async stop(): Promise<void> {
    this.stopping.abort();
    this.wake();
    await this.loop;
    await this.deliveries.ended();
  }

  /**
   * Resolves when everything that was committed before this call, by any instance, has been passed: then
   * memory is as new as a query would be. Many callers share one reading of the outbox.
   */
  caughtUp(): Promise<void> {
    return new Promise((resolve, reject) => {
      if (this.stopping.signal.aborted) return reject(new Error('the fan-out has stopped'));
      this.waiting.push({ resolve, reject, upTo: undefined });
      this.rouse();
    });
  }

  index(community: number): SubscriptionIndex<LiveReader> {
    let index = this.indexes.get(community);
    if (index === undefined) {
      index = new SubscriptionIndex();
      this.indexes.set(community, index);
    }
    return index;
  }

  /**
   * From when this resolves, every delete that is passed has its outline: then a follower may be filed. Until
   * `unfollow`.
   */
  async follow(): Promise<void> {
    this.followers += 1;
    try {
      // A page that is being read now may be without outlines.
      await this.caughtUp();
    } catch (error) {
      this.followers -= 1;
      throw error;
    }
  }

  unfollow(): void {
    this.followers -= 1;
  }

  followersOf(community: number): FollowerIndex<LiveFollower> {
    let index = this.followerIndexes.get(community);
    if (index === undefined) {
      index = new FollowerIndex();
      this.followerIndexes.set(community, index);
    }
    return index;
  }

  /** The lane has committed here: keep the parsed events at hand and read on at once. */
  onCommit(writes: BatchWrites): void {
    for (const row of writes.rows) {
      const { community, event, payload } = row.submission;
      this.committed.set(row.seq, { event, payload, bound: row.bound });
      if (row.hidden !== undefined) this.options.recent.withdraw(community, event.id);
    }
    for (const { community, id } of writes.hidden) {
      this.options.recent.withdraw(community, id);
      this.waitingEvents.get(community)?.withdraw(id);
    }
    this.hidden.add(writes);
    if (writes.vanishMarks.length > 0) {
      this.options.recent.clear();
      this.withdrawMarked(writes.vanishMarks);
      // What waits for its delivery is read again, because only the database knows what a mark hides.
      this.committed.clear();
    }
    this.committedSeq = writes.lastSeq;
    if (isPlain(writes) && this.plain.length < PLAIN_MAX) this.plain.push(writes);
    else {
      // The outbox has these commits too.
      this.plain = [];
      this.isHinted = true;
    }
    this.busWanted ||= writes.broadcasts.length > 0;
    this.rouse();
  }

  wake(bus = false): void {
    this.isHinted = true;
    this.busWanted ||= bus;
    this.rouse();
  }

  private rouse(): void {
    this.wanted = true;
    this.awake?.();
  }

  private async readLoop(): Promise<void> {
    while (!this.stopping.signal.aborted) {
      this.wanted = false;
      const waiting = this.waiting;
      this.waiting = [];
      try {
        const passed = await this.passPlain();
        const isRead = !this.isHinted && (waiting.length === 0 || (await this.isAtHead(waiting)));
        const read =
          (isRead ? 0 : await this.readOutboxOnce(waiting)) + (this.busWanted ? await this.readBusOnce() : 0);
        if (passed + read > 0) continue;
      } catch (error) {
        this.options.log.warn({ error: String(error) }, 'the outbox could not be read');
        // Those who came meanwhile would wait for the same.
        for (const { reject } of [...waiting, ...this.waiting.splice(0)]) reject(error);
        // Live delivery keeps no state: what it slept through is in the store, and it goes on with what
        // comes.
        if (error instanceof OutboxBehind) this.skipTo({ seq: error.floor - 1, marks: undefined });
      }
      if (!this.wanted) await this.sleep();
    }
    for (const { reject } of this.waiting) reject(new Error('the fan-out has stopped'));
  }

  private sleep(): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(() => {
        this.isHinted = true;
        this.busWanted = true;
        resolve();
      }, this.options.wakeups.pollMs(POLL_MS));
      this.awake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }

  /**
   * Passes commits of this process that follow what was passed: their offsets have no gap, so no other
   * instance has committed in between, and the outbox has nothing that is not known here (I8).
   */
  private async passPlain(): Promise<number> {
    const commits = this.plain;
    this.plain = [];
    let passed = 0;
    for (const { rows, lastSeq } of commits) {
      if (lastSeq <= this.position) continue;
      if (rows[0]!.seq !== this.position + 1) {
        this.isHinted = true;
        break;
      }
      for (const { seq, ingestedAt, bound, submission } of rows) {
        const { community, event, payload } = submission;
        const change = { community, id: event.id, op: 'upsert', seq, ingestedAt } as const;
        this.dispatch(change, { event, payload, bound });
      }
      passed += rows.length;
      await this.deliveries.room();
    }
    if (passed > 0) this.options.metrics.outboxHead.set(this.position);
    return passed;
  }

  /**
   * For those who only want to be sure: mostly nothing was committed, and to ask for the last position takes
   * half of what reading the outbox does (63 against 122 µs of CPU, with both sides).
   */
  private async isAtHead(waiting: readonly Waiting[]): Promise<boolean> {
    const head = await this.options.events.head();
    if (head > this.position) return false;
    this.release(waiting, head);
    return true;
  }

  private async readOutboxOnce(waiting: readonly Waiting[]): Promise<number> {
    const { events } = this.options;
    this.isHinted = false;
    const { changes, head } = await events.changes(this.position, READ_MAX, this.followers > 0);
    if (changes.length >= READ_MAX) this.isHinted = true;
    // Taken in hand before anything is awaited: what waits here too long is dropped for newer events, and
    // read instead.
    const own = changes.map(({ seq }) => this.committed.get(seq));
    const foreign = changes.filter(
      (change, at): change is NamedChange => change.op === 'upsert' && own[at] === undefined,
    );
    const read = foreign.length === 0 ? new Map<string, ReadEvent>() : await events.byIds(foreign);
    let named = 0;
    for (const [at, change] of changes.entries()) {
      if (change.op === 'unnamed') {
        this.skipTo(change);
        continue;
      }
      named += 1;
      const found = read.get(factKey(change.community, change.id));
      // One that was removed and restored since has another position: there it is delivered, once (I10).
      const foreignEvent = found?.seq === change.seq ? { ...found, event: parse(found.payload) } : undefined;
      this.dispatch(change, own[at] ?? foreignEvent);
    }
    this.release(waiting, head);
    this.options.metrics.outboxHead.set(this.position);
    await this.deliveries.room();
    return named;
  }

  /** Those whose moment has been passed; the others wait for the next page. */
  private release(waiting: readonly Waiting[], head: Position): void {
    for (const each of waiting) {
      each.upTo ??= head;
      if (each.upTo <= this.position) each.resolve();
      else this.waiting.push(each);
    }
  }

  /**
   * Something was hidden that nothing names event by event: by a mark; or by changes that are not kept any
   * more.
   */
  private skipTo({ seq, marks }: Pick<UnnamedChange, 'seq' | 'marks'>): void {
    const { memory, recent } = this.options;
    this.position = seq;
    this.hidden.pass(seq);
    if (marks === undefined) {
      memory.clear();
      for (const waiting of this.waitingEvents.values()) waiting.withdrawWhere(() => true);
      for (const index of this.followerIndexes.values()) for (const each of [...index.all]) each.lose();
    } else {
      memory.onMarks(marks);
      this.withdrawMarked(marks);
    }
    recent.clear();
  }

  private withdrawMarked(marks: readonly PendingMark[]): void {
    for (const [community, waiting] of this.waitingEvents) {
      const those = marks.filter((mark) => mark.community === community);
      if (those.length > 0) waiting.withdrawWhere((event) => those.some((mark) => covers(mark, event)));
    }
  }

  private dispatch(change: NamedChange, live: Parsed | undefined): void {
    const { community, id, seq, op, ingestedAt } = change;
    const { recent, memory } = this.options;
    this.position = seq;
    this.hidden.pass(seq);
    this.committed.delete(seq);
    if (op === 'delete') {
      recent.forget(community, id);
      memory.onDelete(community, id);
      this.waitingEvents.get(community)?.withdraw(id);
      if (this.followers > 0) this.announce(change);
      return;
    }
    recent.add(community, id);
    // No payload: it is no longer effective, and a later row of the outbox says why.
    if (live === undefined) return;
    const { event, bound } = live;
    const payload = Buffer.from(live.payload);
    memory.onUpsert(community, { seq, ingestedAt, event, payload, bound });
    const rules = this.options.rulesOf(community);
    // Read late: what is past its days by now is not delivered either, nor by the topics that do not keep it
    // any more (I8).
    const matched =
      rules === undefined
        ? asMatched(event, bound)
        : asKept(rules, event, { bound, ingestedAt }, this.options.now());
    if (matched === undefined || this.hidden.has(community, event, seq)) return;
    this.deliver(community, { seq, ingestedAt, event, payload, matched });
  }

  private announce(change: NamedChange): void {
    const { community, seq, id, ingestedAt, outline } = change;
    const index = this.followerIndexes.get(community);
    if (index === undefined || outline === undefined) return;
    this.deliveries.add(index.match(outline), new Announcement({ seq, id, ingestedAt }));
  }

  private async readBusOnce(): Promise<number> {
    this.busWanted = false;
    const entries = await this.options.events.broadcasts(this.busPosition, READ_MAX);
    if (entries.length === READ_MAX) this.busWanted = true;
    for (const { position, community, payload } of entries) {
      this.busPosition = position;
      const event = parse(payload);
      // A crash of the server empties the bus: an instance that did not read it may send the event once more.
      if (this.options.recent.has(community, event.id)) continue;
      this.options.recent.add(community, event.id);
      // It has no row that could say what it is bound to.
      const rules = this.options.rulesOf(community);
      const bound = rules === undefined ? UNBOUND : impliedTopics(event, rules.settings, rules.topics);
      const live = { seq: undefined, ingestedAt: 0, event, payload: Buffer.from(payload) };
      this.deliver(community, { ...live, matched: asMatched(event, bound) });
    }
    await this.deliveries.room();
    return entries.length;
  }

  private deliver(community: number, live: Arrived): void {
    const index = this.indexes.get(community);
    if (index === undefined) return;
    const { metrics, now } = this.options;
    const waits = this.waitingIn(community).of(live.event);
    this.deliveries.add(index.match(live.matched), new Delivery(live, waits, metrics.delivered, now));
  }

  private waitingIn(community: number): WaitingEvents {
    let waiting = this.waitingEvents.get(community);
    if (waiting === undefined) {
      waiting = new WaitingEvents();
      this.waitingEvents.set(community, waiting);
    }
    return waiting;
  }
}

class Delivery implements LiveEvent, News<LiveReader> {
  readonly seq: number | undefined;
  readonly ingestedAt: number;
  readonly event: NostrEvent;
  readonly payload: Buffer;
  readonly matched: MatchedEvent;
  readonly bytes: number;
  private readers = 0;
  private readonly expiresAt: number | undefined;

  constructor(
    { seq, ingestedAt, event, payload, matched }: Arrived,
    readonly waits: WaitingEvent,
    private readonly delivered: Metrics['delivered'],
    private readonly now: () => number,
  ) {
    this.seq = seq;
    this.ingestedAt = ingestedAt;
    this.event = event;
    this.payload = payload;
    this.matched = matched;
    this.bytes = payload.length;
    this.expiresAt = expirationOf(event);
  }

  isOver(): boolean {
    if (this.waits.isWithdrawn) return true;
    return this.expiresAt !== undefined && this.expiresAt <= Math.floor(this.now() / 1_000);
  }

  tell(reader: LiveReader): number {
    this.readers += 1;
    return reader.deliver(this);
  }

  end(): void {
    this.delivered.inc(this.readers);
  }
}

class Announcement implements News<LiveFollower> {
  readonly bytes = GONE_BYTES;

  constructor(private readonly deletion: LiveDeletion) {}

  isOver(): boolean {
    return false;
  }

  tell(follower: LiveFollower): number {
    return follower.announce(this.deletion);
  }

  end(): void {}
}

/** It only adds events, and each offset is an event that is served: nothing was hidden, marked or held. */
function isPlain({ outbox, rows, lastSeq, vanishMarks }: BatchWrites): boolean {
  const before = lastSeq - rows.length;
  return (
    rows.length > 0 &&
    outbox.length === rows.length &&
    vanishMarks.length === 0 &&
    rows.every(({ hidden, seq }, at) => hidden === undefined && seq === before + at + 1)
  );
}

interface Waiting {
  /** The last position at its first reading; what comes later is not waited for. */
  upTo: number | undefined;
  resolve(): void;
  reject(why: unknown): void;
}

interface Parsed extends Omit<ReadEvent, 'seq' | 'ingestedAt'> {
  readonly event: NostrEvent;
}

function parse(payload: string): NostrEvent {
  return JSON.parse(payload) as NostrEvent;
}
