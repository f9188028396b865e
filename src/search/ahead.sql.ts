/**
 * Reads the changes of the outbox that the search index has not read yet. All searches of this process share
 * the rows, and the events with their words; the number of both is limited (I14). This file does not decide
 * whether an event is served: the caller looks up each event that it finds (I6).
 */
import { LRUCache } from 'lru-cache';
import type { Pool } from 'pg';
import type { NostrEvent } from '../events/rules/event.js';
import { type Filter, matchFilter } from '../events/rules/filter.js';
import { rest } from '../limits/time-slices.js';
import { type Change, type ChangedEvents, IN_DATABASE, readChanges } from '../outbox/changes.sql.js';
import { OutboxBehind } from '../outbox/outbox.sql.js';
import { asMatched, type MatchedEvent } from '../topics/rules.js';
import { toTsvector, wordsOf } from './rules-words.js';

/** Changes that are read ahead of the index. */
const AHEAD_MAX = 1_000;
const PORTION = 100;
/** Events are kept with their words, which take several times their length. */
const KEPT_MAX = 2 * AHEAD_MAX;
const KEPT_LENGTH_MAX = 16_000_000;

export interface Ahead {
  /** The words of each event, by its id. */
  readonly words: ReadonlyMap<string, string>;
  /** Number of changes that were not read because there were too many. */
  readonly behind: number;
}

export interface AheadOf {
  readonly community: number;
  readonly filter: Filter;
  /** The position of the index, and the position up to which the search looks. */
  readonly lastSeq: number;
  readonly cut: number;
}

const readers = new WeakMap<Pool, AheadReader>();

/** Matches among the changes that the index has not read. If there are more than AHEAD_MAX, the newest. */
export async function readAhead(
  pool: Pool,
  { community, filter, lastSeq, cut }: AheadOf,
  changed: ChangedEvents = IN_DATABASE,
): Promise<Ahead> {
  if (cut <= lastSeq) return { words: new Map(), behind: 0 };
  const after = Math.max(lastSeq, cut - AHEAD_MAX);
  const reader = readers.get(pool) ?? new AheadReader(pool, changed);
  readers.set(pool, reader);
  const changes = await reader.changes(after, cut);
  const words = await reader.matches(
    filter,
    changes.filter((change) => mayMatch(change, community, filter)),
  );
  return { words, behind: after - lastSeq };
}

/** Tests the fields of the change first, so that few events are read. */
function mayMatch(change: Change, community: number, { kinds, authors, since, until, ids }: Filter): boolean {
  return (
    change.op === 'upsert' &&
    change.community === community &&
    (kinds === undefined || kinds.has(change.kind)) &&
    (authors === undefined || authors.has(change.author)) &&
    (ids === undefined || ids.has(change.id)) &&
    change.createdAt >= (since ?? 0) &&
    change.createdAt <= (until ?? Number.MAX_SAFE_INTEGER)
  );
}

interface Kept {
  readonly seq: number;
  readonly event: MatchedEvent;
}

class AheadReader {
  /** All changes after `from` and up to `upTo`; rows of the outbox never change. */
  private tail: readonly Change[] = [];
  private from = 0;
  private upTo = 0;
  private reading: Promise<void> | undefined;
  private readonly kept = new LRUCache<string, Kept>({ max: KEPT_MAX, maxSize: KEPT_LENGTH_MAX });
  private cutting: Promise<void> = Promise.resolve();

  constructor(
    private readonly pool: Pool,
    private readonly changed: ChangedEvents,
  ) {}

  async changes(after: number, cut: number): Promise<Change[]> {
    const within = (changes: readonly Change[]) => changes.filter(({ seq }) => seq > after && seq <= cut);
    try {
      while (this.upTo < cut && after >= this.from) {
        this.reading ??= this.follow(after).finally(() => {
          this.reading = undefined;
        });
        await this.reading;
      }
      // A later page of an old search, or an index that is being rebuilt, may start before the cached tail.
      return within(after < this.from ? (await this.read(after)).changes : this.tail);
    } catch (error) {
      // The index is further behind than the outbox reaches. It will be rebuilt; until then it answers with
      // what it has.
      if (error instanceof OutboxBehind) return [];
      throw error;
    }
  }

  private read(after: number) {
    return readChanges(this.pool, { after, limit: AHEAD_MAX, bare: true });
  }

  private async follow(after: number): Promise<void> {
    const begin = Math.max(this.upTo, after);
    const { changes, upTo } = await this.read(begin);
    if (begin > this.upTo) this.from = begin;
    const known = begin > this.upTo ? [] : this.tail;
    this.tail = [...known, ...changes].slice(-2 * AHEAD_MAX);
    if (known.length + changes.length > this.tail.length) this.from = this.tail[0]!.seq - 1;
    this.upTo = upTo;
    for (const { op, community, id } of changes) if (op === 'delete') this.kept.delete(`${community}/${id}`);
  }

  /** Runs one search after another, so that events which several searches need are read once. */
  async matches(filter: Filter, changes: readonly Change[]): Promise<Map<string, string>> {
    const before = this.cutting;
    let done = () => {};
    this.cutting = new Promise((resolve) => {
      done = resolve;
    });
    try {
      await before;
      return await this.matchAll(filter, changes);
    } finally {
      done();
    }
  }

  private async matchAll(filter: Filter, changes: readonly Change[]): Promise<Map<string, string>> {
    const words = new Map<string, string>();
    for (let at = 0; at < changes.length; at += PORTION) {
      for (const event of await this.eventsOf(changes.slice(at, at + PORTION))) {
        if (matchFilter(filter, event)) words.set(event.id, toTsvector(wordsOf(event)));
        await rest();
      }
    }
    return words;
  }

  /** The events of the changes, from the cache or the database, unless they are no longer served. */
  private async eventsOf(changes: readonly Change[]): Promise<MatchedEvent[]> {
    const known = changes.map(({ community, id, seq }) => {
      const kept = this.kept.get(`${community}/${id}`);
      return kept?.seq === seq ? kept.event : undefined;
    });
    const missing = changes.filter((_, place) => known[place] === undefined);
    const read = missing.length === 0 ? [] : await this.changed.withPayloads(this.pool, missing);
    const added = read.flatMap((change) => this.keep(change));
    return [...known.filter((event) => event !== undefined), ...added];
  }

  private keep({ community, id, seq, payload, bound }: Change): MatchedEvent[] {
    if (payload === undefined) return [];
    const event = asMatched(JSON.parse(payload) as NostrEvent, bound);
    this.kept.set(`${community}/${id}`, { seq, event }, { size: payload.length });
    return [event];
  }
}
