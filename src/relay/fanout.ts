/**
 * Live delivery: reads the outbox in order and hands each new event to the subscriptions that match. So every path of
 * writing is seen, also from another instance. NOTIFY is only a wake-up; polling is the truth.
 *
 * The outbox says what and in which order; the bytes of events written by this process are still in memory.
 */
import { LRUCache } from 'lru-cache';
import type { RecentIds } from '../admission.js';
import type { NostrEvent } from '../core/event.js';
import { isExpired } from '../core/expiration.js';
import { factKey, type Plan } from '../core/plan.js';
import { asKept, type Retention } from '../core/retention.js';
import { asMatched, impliedTopics, type MatchedEvent, type TopicSettings, UNBOUND } from '../core/topic.js';
import type { Log } from '../log.js';
import type { Metrics } from '../metrics.js';
import type { Database } from '../postgres/database.js';
import { BUS_NOTICE } from '../store/batch.js';
import {
  OutboxBehind,
  type OutboxEntry,
  readBus,
  readBusHead,
  readHead,
  readOutbox,
} from '../store/outbox.js';
import { type ReadEvent, readEventsById } from '../store/query.js';
import type { Wakeups } from '../wakeups.js';
import { hold } from './held-events.js';
import type { Memory } from './memory.js';
import { SubscriptionIndex } from './subscription-index.js';

const POLL_MS = 1_000;
const READ_MAX = 500;
/** Bytes of parsed events of this process on their way from commit to delivery. */
const COMMITTED_BYTES_MAX = 16 * 1_048_576;

export interface LiveEvent {
  /** Its number in the outbox; undefined for an ephemeral event, which has none. */
  readonly seq: number | undefined;
  readonly event: NostrEvent;
  readonly payload: Buffer;
}

export interface LiveReader {
  deliver(live: LiveEvent): void;
  /** It is gone: one that still holds it back lets it go. */
  withdraw(id: string): void;
}

export interface FanoutOptions {
  readonly database: Database;
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
  private loop: Promise<void> = Promise.resolve();
  private busPosition = 0;
  private position = 0;
  private committedSeq = 0;

  constructor(private readonly options: FanoutOptions) {}

  async start(): Promise<void> {
    this.position = await readHead(this.options.database.ownPool);
    this.busPosition = await readBusHead(this.options.database.ownPool);
    this.options.wakeups.add({
      // Ephemeral batches commit without waiting for the disk: after a crash the bus may have fallen behind this reader.
      opening: async (client) => {
        const busHead = await readBusHead(client);
        this.busPosition = Math.min(this.busPosition, busHead);
      },
      wake: (notice) => this.wake(notice === undefined || notice === BUS_NOTICE),
    });
    this.loop = this.readLoop();
  }

  /**
   * The last outbox number that a query starting now is sure to see: passed by the fan-out, or committed by this process,
   * whose client may have had its OK already. A subscription counts as live what comes after it.
   */
  get head(): number {
    return Math.max(this.position, this.committedSeq);
  }

  async stop(): Promise<void> {
    this.stopping.abort();
    this.wake();
    await this.loop;
  }

  /**
   * Resolves when everything that was committed before this call, by any instance, has been passed: then memory is as new as
   * a query would be. Many callers share one reading of the outbox.
   */
  caughtUp(): Promise<void> {
    return new Promise((resolve, reject) => {
      if (this.stopping.signal.aborted) return reject(new Error('the fan-out has stopped'));
      this.waiting.push({ resolve, reject, upTo: undefined });
      this.wake();
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

  /** The lane has committed here: keep the parsed events at hand and read on at once. */
  onCommit(plan: Plan): void {
    for (const row of plan.rows) {
      const { community, event, payload } = row.submission;
      this.committed.set(row.seq, { event, payload, bound: row.bound });
      if (row.hidden !== undefined) this.options.recent.withdraw(community, event.id);
    }
    for (const { community, id } of plan.hidden) this.options.recent.withdraw(community, id);
    if (plan.vanishMarks.length > 0) {
      this.options.recent.clear();
      // What waits for its delivery is read again, because only the database knows what a mark hides.
      this.committed.clear();
    }
    this.committedSeq = plan.lastSeq;
    this.wake(plan.broadcasts.length > 0);
  }

  wake(bus = false): void {
    this.wanted = true;
    this.busWanted ||= bus;
    this.awake?.();
  }

  private async readLoop(): Promise<void> {
    while (!this.stopping.signal.aborted) {
      this.wanted = false;
      const waiting = this.waiting;
      this.waiting = [];
      try {
        const read = (await this.readOutboxOnce(waiting)) + (this.busWanted ? await this.readBusOnce() : 0);
        if (read > 0) continue;
      } catch (error) {
        this.options.log.warn({ error: String(error) }, 'the outbox could not be read');
        // Those who came meanwhile would wait for the same.
        for (const { reject } of [...waiting, ...this.waiting.splice(0)]) reject(error);
        // Live delivery keeps no state: what it slept through is in the store, and it goes on with what comes.
        if (error instanceof OutboxBehind) this.skipTo(error.floor - 1);
      }
      if (!this.wanted) await this.sleep();
    }
    for (const { reject } of this.waiting) reject(new Error('the fan-out has stopped'));
  }

  private sleep(): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(() => {
        this.busWanted = true;
        resolve();
      }, POLL_MS);
      this.awake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }

  private async readOutboxOnce(waiting: readonly Waiting[]): Promise<number> {
    const { entries, lastSeq } = await readOutbox(this.options.database.ownPool, this.position, READ_MAX);
    // Taken in hand before anything is awaited: what waits here too long is dropped for newer events, and read instead.
    const own = entries.map((entry) => this.committed.get(entry.seq));
    const foreign = entries.filter((entry, at) => entry.op === 'upsert' && own[at] === undefined);
    const read =
      foreign.length === 0
        ? new Map<string, ReadEvent>()
        : await readEventsById(this.options.database.ownPool, foreign);
    entries.forEach((entry, at) => {
      if (entry.seq !== this.position + 1) this.skipTo(entry.seq - 1);
      const found = read.get(factKey(entry.community, entry.id));
      // One that was removed and restored since has another number: there it is delivered, once (I10).
      const foreignEvent = found?.seq === entry.seq ? { ...found, event: parse(found.payload) } : undefined;
      this.dispatch(entry, own[at] ?? foreignEvent);
    });
    if (entries.length < READ_MAX && lastSeq > this.position) this.skipTo(lastSeq);
    this.release(waiting, lastSeq);
    this.options.metrics.outboxHead.set(this.position);
    return entries.length;
  }

  /** Those whose moment has been passed; the others wait for the next page. */
  private release(waiting: readonly Waiting[], lastSeq: number): void {
    for (const each of waiting) {
      each.upTo ??= lastSeq;
      if (each.upTo <= this.position) each.resolve();
      else this.waiting.push(each);
    }
  }

  /** Numbers without a row: a request to vanish, which hides what nobody names; or rows that are gone. */
  private skipTo(seq: number): void {
    this.position = seq;
    this.options.memory.clear();
    this.options.recent.clear();
  }

  private dispatch(entry: OutboxEntry, live: Parsed | undefined): void {
    const { community, id, seq, op, ingestedAt } = entry;
    const { recent, memory } = this.options;
    this.position = seq;
    this.committed.delete(seq);
    if (op === 'delete') {
      recent.forget(community, id);
      memory.onDelete(community, id);
      for (const reader of this.indexes.get(community)?.loading ?? []) reader.withdraw(id);
      return;
    }
    recent.add(community, id);
    // No payload: it is no longer effective, and a later row of the outbox says why.
    if (live === undefined) return;
    const { event, bound } = live;
    const rules = this.options.rulesOf(community);
    // Read late: what is past its days by now is not delivered either, nor by the topics that do not keep it any more (I8).
    const matched =
      rules === undefined
        ? asMatched(event, bound)
        : asKept(rules, event, { bound, ingestedAt }, this.options.now());
    if (matched === undefined) return;
    const payload = Buffer.from(live.payload);
    memory.onUpsert(community, hold(seq, ingestedAt, event, payload, bound), matched);
    this.deliver(community, { seq, event, payload }, matched);
  }

  private async readBusOnce(): Promise<number> {
    this.busWanted = false;
    const entries = await readBus(this.options.database.ownPool, this.busPosition, READ_MAX);
    if (entries.length === READ_MAX) this.busWanted = true;
    for (const { position, community, payload } of entries) {
      this.busPosition = position;
      const event = parse(payload);
      this.options.recent.add(community, event.id);
      // It has no row that could say what it is bound to.
      const rules = this.options.rulesOf(community);
      const bound = rules === undefined ? UNBOUND : impliedTopics(event, rules.settings, rules.topics);
      const live = { seq: undefined, event, payload: Buffer.from(payload) };
      this.deliver(community, live, asMatched(event, bound));
    }
    return entries.length;
  }

  private deliver(community: number, live: LiveEvent, matched: MatchedEvent): void {
    const index = this.indexes.get(community);
    if (index === undefined || isExpired(live.event, Math.floor(this.options.now() / 1_000))) return;
    const readers = index.match(matched);
    for (const reader of readers) reader.deliver(live);
    this.options.metrics.delivered.inc(readers.size);
  }
}

interface Waiting {
  /** The last number at its first reading; what comes later is not waited for. */
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
