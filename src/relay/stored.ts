/**
 * The stored part of a REQ: rows of every filter in one order, each once, looked up and sent in portions as
 * the client reads. Events in memory are not read from the database; before memory is used, the outbox is
 * read up to now (I5, I6, I10). Looking into memory and sending a portion are turns on the event loop, which
 * are fair (limits/loop-turns.ts, I18).
 */
import type { Pool } from 'pg';
import { isDenial } from '../api/rules-errors.js';
import type { Community } from '../communities/communities.js';
import { factKey } from '../events/rules/facts.js';
import { type Filter, matchesNothing } from '../events/rules/filter.js';
import {
  countCost,
  findCost,
  payloadsCost,
  type QueryClass,
  type QueryCost,
  sendingMs,
  walkingMs,
} from '../events/rules/query-cost.js';
import type { Completeness } from '../events/rules/reply.js';
import type { EventChanges, EventReads } from '../events/store.js';
import type { Metrics } from '../node/metrics.js';
import { CANDIDATES_MAX, countSearched, type SearchPools, searchEvents } from '../search/search.sql.js';
import type { Memory } from './memory.js';
import type { Outgoing } from './outgoing.js';
import {
  AnswerRows,
  type Bare,
  bare,
  bareBeyond,
  FilterRows,
  type Full,
  GREEDY_PAGE_ROWS,
  isAtHand,
  isPlaced,
  mergeRows,
  PAGE_ROWS,
  payloadAtHand,
  type Row,
  uniqueRows,
} from './stored-rows.js';
import type { Subscription } from './subscription.js';
import { STEPS_MAX } from './window/read.js';

/** One portion in memory at a time, whatever the limit of the filter. */
const PORTION_BYTES_MAX = 262_144;
const PORTION_ROWS_MAX = 1_000;
/** The same for a greedy client: everybody else waits while a portion is sent. */
const GREEDY_PORTION_BYTES_MAX = 65_536;
/** An answer of no more than this is sent in the turn in which it was found. */
const SHORT_ANSWER_BYTES = 65_536;
/**
 * Of one REQ with their payloads, all filters together: a slow reader must not hold large events for long.
 */
const HELD_BYTES_MAX = 1_048_576;

/**
 * For all filters of one REQ or COUNT together, without the time they wait; each statement has its own
 * timeout in the database.
 */
const QUERY_MS_MAX = 10_000;

export class QueryTooLong extends Error {}
/** The search index is not built yet. */
export class SearchNotReady extends Error {}

export interface StoredContext extends Omit<SearchPools, 'pool'> {
  readonly events: EventReads & Pick<EventChanges, 'head'>;
  /** For a search by words, which has documents of its own in the database. */
  readonly queryPools: Readonly<Record<QueryClass, Pool>>;
  readonly memory: Memory;
  readonly metrics: Metrics;
  /** Resolves when memory is as new as a query would be. */
  readonly caughtUp: () => Promise<void>;
  /** Milliseconds. */
  readonly now: () => number;
}

export const nowSeconds = (now: () => number) => Math.floor(now() / 1_000);

export interface SentStored {
  readonly sent: number;
  readonly hint: Completeness;
}

/** Sends the stored events of a subscription; stops early when the subscription ends. */
export async function sendStored(
  read: StoredRead,
  subscription: Subscription,
  outgoing: Outgoing,
): Promise<SentStored> {
  const rows = await rowsOf(read, subscription.filters);
  let sent = 0;
  await rows.fill();
  for (const isShort = rows.isLast && rows.bytes <= SHORT_ANSWER_BYTES; !rows.isEmpty; await rows.fill()) {
    if (outgoing.isFed) {
      // A reader that does not read holds the places of its events, not the events.
      rows.dropPayloads();
      await outgoing.taken();
    }
    if (subscription.ended) break;
    const portion = rows.take(PORTION_ROWS_MAX, read.portionBytes);
    read.charge(sendingMs(portion.length));
    const send = (payloadOf: (place: number) => Buffer | undefined): number => {
      const rowsSent = sendRows(subscription, portion, payloadOf, read.nowSeconds());
      if (!isShort) outgoing.flush();
      return rowsSent;
    };
    // The window may change while the portion waits for its turn.
    const sendAtHand = () =>
      portion.every(isAtHand) ? send((place) => payloadAtHand(portion[place]!)) : undefined;
    let rowsSent = isShort ? sendAtHand() : await read.turn(sendAtHand);
    if (rowsSent === undefined) {
      const payloads = await read.payloadsOf(portion);
      rowsSent = send((place) => payloads[place]);
    }
    sent += rowsSent;
    // The next page is looked up when its reader wants it.
    if (rows.isEmpty && !rows.isLast && outgoing.isFed) await outgoing.taken();
  }
  return { sent, hint: rows.completeness };
}

/** Returns how many are sent. */
function sendRows(
  subscription: Subscription,
  rows: readonly Row[],
  payloadOf: (place: number) => Buffer | undefined,
  seconds: number,
): number {
  if (subscription.ended) return 0;
  let sent = 0;
  rows.forEach((row, place) => {
    const payload = payloadOf(place);
    // A reader may take its time between two portions: the second of expiry may have come meanwhile (I7).
    if (payload === undefined || (row.expiresAt ?? seconds + 1) <= seconds) return;
    subscription.sendStored(row, payload);
    sent += 1;
  });
  return sent;
}

/** How many events of a filter a REQ gets at most. */
export function limitOf({ limit }: Filter, settings: Community['settings']): number {
  return Math.min(limit ?? settings['limits.limitDefault'], settings['limits.limitMax']);
}

/** Where one of several filters searches, each has its own order, and everything is looked up at once. */
async function rowsOf(read: StoredRead, filters: readonly Filter[]): Promise<AnswerRows> {
  const { settings } = read.community;
  const asked = filters
    .filter((filter) => !matchesNothing(filter))
    .map((filter) => ({ filter, limit: limitOf(filter, settings) }));
  const heldBytes = HELD_BYTES_MAX / Math.max(1, asked.length);
  if (!filters.some(({ search }) => search !== undefined))
    return new AnswerRows(asked.map(({ filter, limit }) => new FilterRows(read, filter, limit, heldBytes)));
  const found: (readonly Row[])[] = [];
  for (const { filter, limit } of asked) if (limit > 0) found.push(await read.find(filter, limit));
  return new AnswerRows([FilterRows.listed(bareBeyond(uniqueRows(found.flat()), HELD_BYTES_MAX))]);
}

/** The query slots of a client, and its turns on the event loop. */
export interface QuerySlots {
  run<T>(cost: QueryCost, query: (kind: QueryClass) => Promise<T>): Promise<T>;
  turn<T>(work: () => T): Promise<T>;
  /** The client uses the event loop more than a person's client does. */
  isGreedy(): boolean;
  charge(ms: number): void;
}

/** Reads the stored events of one REQ: from memory first, then from the database. */
export class StoredRead {
  private fresh: Promise<boolean> | undefined;
  /** The number of changes that a search could not take into account. */
  behind = 0;
  /** A search used an index whose words were split by older rules. */
  isOutdated = false;

  /** Time that its queries have taken. */
  private tookMs = 0;

  /** `kind`: of all its filters together. Every statement of it runs in the slots of that class. */
  constructor(
    private readonly context: StoredContext,
    readonly community: Community,
    private readonly slots: QuerySlots,
    private readonly kind: QueryClass,
  ) {}

  /** Work of this process for the answer. */
  charge(ms: number): void {
    this.slots.charge(ms);
  }

  /** Runs work of this process for the answer at the client's turn. */
  turn<T>(work: () => T): Promise<T> {
    return this.slots.turn(work);
  }

  get pageRows(): number {
    return this.slots.isGreedy() ? GREEDY_PAGE_ROWS : PAGE_ROWS;
  }

  /** The most that is sent in one turn. */
  get portionBytes(): number {
    return this.slots.isGreedy() ? GREEDY_PORTION_BYTES_MAX : PORTION_BYTES_MAX;
  }

  /** Runs a query in a slot; `as` is its query class. */
  private ask<T>(cost: QueryCost, query: (as: QueryClass) => Promise<T>): Promise<T> {
    if (this.tookMs > QUERY_MS_MAX) throw new QueryTooLong();
    return this.slots.run({ ...cost, class: this.kind }, async (kind) => {
      const begunMs = performance.now();
      try {
        return await query(kind);
      } finally {
        this.tookMs += performance.now() - begunMs;
      }
    });
  }

  nowSeconds(): number {
    return nowSeconds(this.context.now);
  }

  /** `memoryRows`: of the window no more than this many are looked up. */
  async find(filter: Filter, limit: number, memoryRows = limit): Promise<readonly Row[]> {
    if (filter.search !== undefined) return this.search(filter, limit);
    const { memory, metrics, now } = this.context;
    const { id: community } = this.community;
    if (!memory.knows(community) || !(await this.isFresh())) return this.query(filter, limit);
    const most = filter.ids === undefined ? Math.min(limit, memoryRows) : limit;
    const question = { community, limit: most, now: now(), rules: this.community };
    const answer = await this.turn(() => memory.read(filter, question));
    this.charge(walkingMs(answer?.steps ?? STEPS_MAX));
    if (answer === undefined) return this.query(filter, limit);
    const { rows, rest } = answer;
    if (rest === undefined || matchesNothing(rest)) {
      metrics.answers.inc({ from: 'memory' });
      return rows;
    }
    if (filter.ids !== undefined)
      return mergeRows([...rows, ...(await this.query(rest, limit))]).slice(0, limit);
    return [...rows, ...(await this.query(rest, limit - rows.length))];
  }

  /** Memory is used once the outbox has been read up to a moment after the REQ arrived. */
  private isFresh(): Promise<boolean> {
    this.fresh ??= this.context.caughtUp().then(
      () => true,
      () => false,
    );
    return this.fresh;
  }

  // ─── The database ────────────────────────────────────────────────────────────────────────────────────────

  private async query(filter: Filter, limit: number): Promise<readonly (Full | Bare)[]> {
    const { events, now, metrics } = this.context;
    metrics.answers.inc({ from: 'database' });
    const query = { community: this.community.id, filter, limit, now: now(), rules: this.community };
    const found = await this.ask(findCost(filter, limit), (as) => events.find(query, as));
    return found.map((row) => (row.payload === undefined ? bare(row as Bare) : (row as Full)));
  }

  /** The best first. Never from memory, which knows no scores. */
  private async search(filter: Filter, limit: number): Promise<readonly Row[]> {
    const { queryPools, now, metrics } = this.context;
    metrics.answers.inc({ from: 'search' });
    const asked = { limit: Math.min(limit, CANDIDATES_MAX), now: now() };
    const found = await this.ask(findCost(filter, limit), (as) =>
      searchEvents({ ...this.context, pool: queryPools[as] }, this.community, filter, asked),
    );
    if (isDenial(found)) throw new SearchNotReady();
    this.behind = Math.max(this.behind, found.behind);
    this.isOutdated ||= found.isOutdated;
    return found.rows.map(bare);
  }

  async count(filters: readonly Filter[], max: number): Promise<number> {
    const { events, queryPools } = this.context;
    const now = this.context.now();
    if (filters.every(({ search }) => search === undefined)) {
      const query = { community: this.community.id, filters, max, now, rules: this.community };
      return events.count(query, (filter, ask) => this.ask(countCost(filter, max), ask));
    }
    const ms = filters.reduce((sum, filter) => sum + countCost(filter, max).ms, 0);
    const counted = await this.ask({ class: 'search', ms }, (as) =>
      countSearched({ ...this.context, pool: queryPools[as] }, this.community, filters, max, now),
    );
    if (isDenial(counted)) throw new SearchNotReady();
    this.behind = counted.behind;
    this.isOutdated = counted.isOutdated;
    return counted.count;
  }

  /** Of a portion; those that are not served any more have none. */
  async payloadsOf(rows: readonly Row[]): Promise<(Buffer | undefined)[]> {
    const { events } = this.context;
    const { id: community } = this.community;
    // Copies: what is asked of the database is waited for.
    const payloads = rows.map((row) => {
      const atHand = payloadAtHand(row);
      return atHand === undefined ? this.context.memory.payload(community, row.id) : Buffer.from(atHand);
    });
    const isMissing = (_: Row, place: number) => payloads[place] === undefined;
    const placed = rows.filter(isMissing).filter(isPlaced);
    const read = new Map<string, string>();
    if (placed.length > 0) {
      const found = await this.ask(payloadsCost(placed.length), (as) => events.payloads(placed, as));
      placed.forEach(({ id }, at) => {
        const payload = found[at];
        if (payload !== undefined) read.set(id, payload);
      });
    }
    // A row that is not in its place is hidden, or was moved to another bucket a moment ago.
    const asked = rows.filter(isMissing).flatMap(({ id }) => (read.has(id) ? [] : [{ community, id }]));
    if (asked.length > 0) {
      const found = await this.ask(payloadsCost(asked.length), (as) => events.byIds(asked, as));
      for (const { id } of asked) {
        const event = found.get(factKey(community, id));
        if (event !== undefined) read.set(id, event.payload);
      }
    }
    return rows.map(({ id }, place) => payloads[place] ?? toBuffer(read.get(id)));
  }
}

function toBuffer(payload: string | undefined): Buffer | undefined {
  return payload === undefined ? undefined : Buffer.from(payload);
}
