/**
 * Served events at hand, bounded by their bytes (I14). They follow the outbox: an event enters with its `upsert` or by a
 * reading, and is gone in the same breath as its `delete` is passed. Which of them may be shown is settled by whoever asks:
 * after the outbox has been read up to now (I5, I6), and by the clock (I7).
 */
import { LRUCache } from 'lru-cache';
import type { NostrEvent } from '../core/event.js';
import { expirationOf } from '../core/expiration.js';
import type { Filter } from '../core/filter.js';
import { factKey } from '../core/plan.js';
import {
  ages,
  defaultSince,
  eventSince,
  type Retention,
  surelySince,
  topicSince,
} from '../core/retention.js';
import { asMatched, type MatchedEvent, topicsOf, UNBOUND } from '../core/topic.js';

const BYTES_MAX = 64 * 1_048_576;
/** What an event weighs beside its payload. */
export const OVERHEAD_BYTES = 400;

export class HeldEvent {
  /** A `delete` of it has been passed. */
  gone = false;
  /** How many kept answers have it among their rows. */
  uses = 0;
  private topics: readonly string[] | undefined;

  constructor(
    readonly seq: number,
    readonly id: string,
    readonly createdAt: number,
    readonly kind: number,
    readonly ingestedAt: number,
    readonly expiresAt: number | undefined,
    /** UTF-8, as it is sent. */
    readonly payload: Buffer,
    /** Topics that it is bound to beside those it names. */
    readonly bound: readonly string[] = UNBOUND,
  ) {}

  get bytes(): number {
    return this.payload.length;
  }

  /** The topics that it names, read from the payload when they are first asked for. */
  topicsIn(): readonly string[] {
    this.topics ??= topicsOf(this.parse());
    return this.topics;
  }

  private parse(): NostrEvent {
    return JSON.parse(this.payload.toString()) as NostrEvent;
  }

  /** As filters see it. */
  asMatched(): MatchedEvent {
    return asMatched(this.parse(), this.bound);
  }

  isExpired(nowSeconds: number): boolean {
    return this.expiresAt !== undefined && this.expiresAt <= nowSeconds;
  }
}

/**
 * Tells which events may be past their days for this filter, by the rules as they are: whether such a one is still served is
 * then for the database to say.
 */
export function agedFor({ tags }: Filter, rules: Retention, now: number): (held: HeldEvent) => boolean {
  const asked = tags.find(({ name }) => name === 't')?.values;
  const sure =
    asked === undefined
      ? surelySince(rules, now)
      : Math.max(...[...asked].map((topic) => topicSince(rules, topic, now)));
  const boundSure = Math.max(sure, defaultSince(rules, now));
  return (held) => {
    if (held.ingestedAt >= (held.bound.length === 0 ? sure : boundSure) || !ages(held.kind)) return false;
    return asked !== undefined || held.ingestedAt < eventSince(rules, held.topicsIn(), now);
  };
}

export function hold(
  seq: number,
  ingestedAt: number,
  event: NostrEvent,
  payload: Buffer,
  bound: readonly string[] = UNBOUND,
): HeldEvent {
  const { id, created_at, kind } = event;
  return new HeldEvent(seq, id, created_at, kind, ingestedAt, expirationOf(event), payload, bound);
}

/** A query under way: its rows are of some moment after it began, so what went meanwhile must not come back with them. */
export class Reading {
  private readonly gone = new Set<string>();
  /** Nothing of it may be held: everything at hand was let go while it ran. */
  isVoid = false;

  onDelete(key: string): void {
    this.gone.add(key);
    if (this.gone.size > GONE_MAX) this.isVoid = true;
  }
  mayHold(community: number, id: string): boolean {
    return !this.isVoid && !this.gone.has(factKey(community, id));
  }
}
const GONE_MAX = 10_000;

export class HeldEvents {
  private readonly events = new LRUCache<string, HeldEvent>({
    maxSize: BYTES_MAX,
    sizeCalculation: ({ bytes }) => bytes + OVERHEAD_BYTES,
  });
  /** Those in kept answers: they are known for as long as an answer has them. */
  private readonly used = new Map<string, HeldEvent>();
  private readonly readings = new Set<Reading>();

  get(community: number, id: string): HeldEvent | undefined {
    const key = factKey(community, id);
    const held = this.events.get(key) ?? this.used.get(key);
    return held?.gone ? undefined : held;
  }
  add(community: number, held: HeldEvent): void {
    this.events.set(factKey(community, held.id), held);
  }
  delete(community: number, id: string): void {
    const key = factKey(community, id);
    for (const held of [this.events.get(key), this.used.get(key)]) if (held !== undefined) held.gone = true;
    this.events.delete(key);
    for (const reading of this.readings) reading.onDelete(key);
  }
  clear(): void {
    this.events.clear();
    for (const reading of this.readings) reading.isVoid = true;
  }

  /** Gives the one object that all answers share, so that all of them lose it at once. */
  use(community: number, held: HeldEvent): HeldEvent {
    const key = factKey(community, held.id);
    const shared = this.used.get(key) ?? held;
    shared.uses += 1;
    if (shared.uses === 1) this.used.set(key, shared);
    return shared;
  }
  unuse(community: number, held: HeldEvent): void {
    held.uses -= 1;
    if (held.uses === 0) this.used.delete(factKey(community, held.id));
  }

  /** Nothing that goes while the query runs comes back with its rows. */
  async reading<T>(read: (reading: Reading) => Promise<T>): Promise<T> {
    const reading = new Reading();
    this.readings.add(reading);
    try {
      return await read(reading);
    } finally {
      this.readings.delete(reading);
    }
  }
}
