/**
 * What lies ahead of the index of search: changes of the outbox that it has not read yet. The rows are read once, and their events are
 * read and cut into words once, for all searches of this process; both are bounded (I14). Whether an event is served is not decided
 * here: who finds one looks it up (I6).
 */
import { LRUCache } from 'lru-cache';
import type { Pool } from 'pg';
import type { NostrEvent } from '../core/event.js';
import { type Filter, matchFilter } from '../core/filter.js';
import { toTsvector, wordsOf } from '../core/search-words.js';
import { asMatched, type MatchedEvent } from '../core/topic.js';
import { Turns } from '../turns.js';
import { type Change, readChanges, withPayloads } from './changes.js';
import { OutboxBehind } from './outbox.js';

/** Changes that are read ahead of the index. */
const AHEAD_MAX = 1_000;
const PORTION = 100;
/** Events are kept with their words, which take several times their length. */
const KEPT_MAX = 2 * AHEAD_MAX;
const KEPT_LENGTH_MAX = 16_000_000;

export interface Ahead {
  /** By the id of the event: its words. */
  readonly words: ReadonlyMap<string, string>;
  /** Changes that were too many to be read. */
  readonly behind: number;
}

export interface AheadOf {
  readonly community: number;
  readonly filter: Filter;
  /** What the index holds, and up to where it is asked. */
  readonly lastSeq: number;
  readonly cut: number;
}

const readers = new WeakMap<Pool, AheadReader>();

/** What matches among the changes that the index has not read. Of more than it may read, the newest. */
export async function readAhead(pool: Pool, { community, filter, lastSeq, cut }: AheadOf): Promise<Ahead> {
  if (cut <= lastSeq) return { words: new Map(), behind: 0 };
  const after = Math.max(lastSeq, cut - AHEAD_MAX);
  const reader = readers.get(pool) ?? new AheadReader(pool);
  readers.set(pool, reader);
  const changes = await reader.changes(after, cut);
  const words = await reader.matches(
    filter,
    changes.filter((change) => mayMatch(change, community, filter)),
  );
  return { words, behind: after - lastSeq };
}

/** By what the change itself says, so that few events are read. */
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
  /** All changes after the one number and up to the other, which never change any more. */
  private tail: readonly Change[] = [];
  private from = 0;
  private upTo = 0;
  private reading: Promise<void> | undefined;
  private readonly kept = new LRUCache<string, Kept>({ max: KEPT_MAX, maxSize: KEPT_LENGTH_MAX });
  private cutting: Promise<void> = Promise.resolve();

  constructor(private readonly pool: Pool) {}

  async changes(after: number, cut: number): Promise<Change[]> {
    const within = (changes: readonly Change[]) => changes.filter(({ seq }) => seq > after && seq <= cut);
    try {
      while (this.upTo < cut && after >= this.from) {
        this.reading ??= this.follow(after).finally(() => {
          this.reading = undefined;
        });
        await this.reading;
      }
      // A later page of an old search, or an index that begins anew, is asked from before what is at hand.
      return within(after < this.from ? (await this.read(after)).changes : this.tail);
    } catch (error) {
      // One that is further behind than the outbox reaches is rebuilt; until then it answers with what it has.
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

  /** One search after another, so that what several need is read for the first of them. */
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
    const turns = new Turns();
    for (let at = 0; at < changes.length; at += PORTION) {
      for (const event of await this.eventsOf(changes.slice(at, at + PORTION))) {
        if (matchFilter(filter, event)) words.set(event.id, toTsvector(wordsOf(event)));
        await turns.rest();
      }
    }
    return words;
  }

  /** Those that are still served, or were a moment ago. */
  private async eventsOf(changes: readonly Change[]): Promise<MatchedEvent[]> {
    const known = changes.map(({ community, id, seq }) => {
      const kept = this.kept.get(`${community}/${id}`);
      return kept?.seq === seq ? kept.event : undefined;
    });
    const missing = changes.filter((_, place) => known[place] === undefined);
    const read = missing.length === 0 ? [] : await withPayloads(this.pool, missing);
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
