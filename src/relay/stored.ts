/**
 * The stored part of a REQ: rows of every filter in one order, each once, sent in portions as the reader reads. What is at
 * hand is not asked of the database; before memory is trusted, the outbox is read up to now (I5, I6, I10).
 */
import type { Pool } from 'pg';
import type { Community } from '../communities.js';
import { isGuarded } from '../core/access.js';
import { isDenial } from '../core/errors.js';
import { type Filter, matchesNothing, matchFilter } from '../core/filter.js';
import { factKey } from '../core/plan.js';
import type { Metrics } from '../metrics.js';
import { countEvents, type FoundRow, findEvents, readEventsById, readPayloads } from '../store/query.js';
import { CANDIDATES_MAX, countSearched, searchEvents } from '../store/search.js';
import type { TagHash } from '../store/tag-hash.js';
import { agedFor, HeldEvent, type Reading } from './held-events.js';
import { ANSWER_BYTES_MAX, type Asked, type Read } from './kept-answers.js';
import type { Memory } from './memory.js';
import type { Outgoing } from './outgoing.js';
import type { Subscription } from './subscription.js';

/** One portion in memory at a time, whatever the limit of the filter. */
const PORTION_BYTES_MAX = 262_144;
const PORTION_ROWS_MAX = 1_000;
/** Of one REQ with their payloads, all filters together: a slow reader must not hold large events for long. */
const HELD_BYTES_MAX = 1_048_576;
/** Larger answers are not kept: they are read in portions and forgotten. */
const KEPT_LIMIT_MAX = 1_000;

/** For all filters of one REQ together; each statement has its own timeout in the database. */
const QUERY_MS_MAX = 10_000;

export class QueryTooLong extends Error {}
/** What can be searched is not gathered yet. */
export class SearchNotReady extends Error {}

export interface StoredContext {
  readonly pool: Pool;
  readonly searchPool: Pool;
  readonly tagHash: TagHash;
  readonly memory: Memory;
  readonly metrics: Metrics;
  /** Resolves when memory is as new as a query would be. */
  readonly caughtUp: () => Promise<void>;
  /** Milliseconds. */
  readonly now: () => number;
}

export const nowSeconds = (now: () => number) => Math.floor(now() / 1_000);

/** A row without its payload: it is read when its portion is due. */
type Bare = Pick<FoundRow, 'seq' | 'id' | 'createdAt' | 'bytes' | 'expiresAt'>;
type Row = HeldEvent | Bare;

/** Sends the stored events of a subscription. Returns how many; stops early when the subscription ends. */
export async function sendStored(
  asking: Asking,
  subscription: Subscription,
  outgoing: Outgoing,
): Promise<number> {
  const rows = bareBeyond(await findRows(asking, subscription.filters), HELD_BYTES_MAX);
  let sent = 0;
  for (const portion of portions(rows)) {
    if (outgoing.behind) await outgoing.room();
    if (subscription.ended) return sent;
    const payloads = portion.every(isHeld) ? undefined : await asking.payloadsOf(portion);
    if (subscription.ended) return sent;
    const seconds = asking.nowSeconds();
    portion.forEach((row, place) => {
      const payload = isHeld(row) ? livePayload(row) : payloads?.[place];
      // A reader may take its time between two portions: the second of expiry may have come meanwhile (I7).
      if (payload === undefined || (row.expiresAt ?? seconds + 1) <= seconds) return;
      subscription.sendStored(row.seq, row.id, payload);
      sent += 1;
    });
  }
  return sent;
}

/** The rows with payloads up to so many bytes, bare ones after them. */
function bareBeyond(rows: readonly Row[], bytesMax: number): readonly Row[] {
  let bytes = 0;
  const at = rows.findIndex((row) => {
    bytes += row.bytes;
    return bytes > bytesMax;
  });
  return at === -1 ? rows : [...rows.slice(0, at), ...rows.slice(at).map(bare)];
}

function bare({ seq, id, createdAt, bytes, expiresAt }: Row): Bare {
  return { seq, id, createdAt, bytes, expiresAt };
}

function isHeld(row: Row): row is HeldEvent {
  return row instanceof HeldEvent;
}
/** An event that went while the reader was slow is not sent any more. */
function livePayload(held: HeldEvent): Buffer | undefined {
  return held.gone ? undefined : held.payload;
}

async function findRows(asking: Asking, filters: readonly Filter[]): Promise<readonly Row[]> {
  const { settings } = asking.community;
  const found: (readonly Row[])[] = [];
  const deadline = performance.now() + QUERY_MS_MAX;
  for (const filter of filters) {
    if (performance.now() > deadline) throw new QueryTooLong();
    const limit = Math.min(filter.limit ?? settings['limits.limitDefault'], settings['limits.limitMax']);
    if (limit > 0 && !matchesNothing(filter)) found.push(await asking.find(filter, limit));
  }
  if (found.length === 1) return found[0]!;
  return filters.some(({ search }) => search !== undefined)
    ? uniqueRows(found.flat())
    : mergeRows(found.flat());
}

/** Where one of several filters searches, each has its own order: one after another, each row once. */
function uniqueRows(rows: readonly Row[]): Row[] {
  const unique = new Map<number, Row>();
  for (const row of rows) if (!unique.has(row.seq)) unique.set(row.seq, row);
  return [...unique.values()];
}

/** The union of several lists: newest first, lowest id first, each once. */
function mergeRows(rows: readonly Row[]): Row[] {
  const unique = new Map(rows.map((row) => [row.seq, row]));
  return [...unique.values()].sort((a, b) => b.createdAt - a.createdAt || (a.id < b.id ? -1 : 1));
}

function* portions(rows: readonly Row[]): Generator<readonly Row[]> {
  let begin = 0;
  let bytes = 0;
  for (let at = 0; at < rows.length; at++) {
    const more = rows[at]!.bytes;
    if (at > begin && (at - begin >= PORTION_ROWS_MAX || bytes + more > PORTION_BYTES_MAX)) {
      yield rows.slice(begin, at);
      begin = at;
      bytes = 0;
    }
    bytes += more;
  }
  if (begin < rows.length) yield rows.slice(begin);
}

/** One REQ's way to the events of a community: memory first, then the database. */
export class Asking {
  private fresh: Promise<boolean> | undefined;
  /** So many changes a search could not take into account. */
  behind = 0;
  /** A search asked an index whose words were cut by older rules. */
  isOutdated = false;

  constructor(
    private readonly context: StoredContext,
    readonly community: Community,
    /** Runs a query in the client's turn. */
    private readonly ask: <T>(query: () => Promise<T>) => Promise<T>,
  ) {}

  nowSeconds(): number {
    return nowSeconds(this.context.now);
  }

  async find(filter: Filter, limit: number): Promise<readonly Row[]> {
    if (filter.search !== undefined) return this.search(filter, limit);
    if (filter.ids !== undefined) return this.findByIds(filter, limit);
    const { answers } = this.context.memory;
    if (answers.has(this.community.id, filter) && (await this.isFresh())) {
      const rows = answers.read(this.community.id, filter, this.asked(filter, limit));
      if (rows !== undefined) return this.fromMemory(rows);
    }
    return limit > KEPT_LIMIT_MAX ? this.queryBare(filter, limit) : this.queryAndKeep(filter, limit);
  }

  private fromMemory(rows: readonly Row[]): readonly Row[] {
    this.context.metrics.answers.inc({ from: 'memory' });
    return rows;
  }

  /** Memory is trusted once it has followed the outbox up to a moment after the REQ came. */
  private isFresh(): Promise<boolean> {
    this.fresh ??= this.context.caughtUp().then(
      () => true,
      () => false,
    );
    return this.fresh;
  }

  private asked(filter: Filter, limit: number): Asked {
    const now = this.context.now();
    const rules = this.community;
    return { limit, rules, nowSeconds: Math.floor(now / 1_000), aged: agedFor(filter, rules, now) };
  }

  private async findByIds(filter: Filter, limit: number): Promise<readonly Row[]> {
    const ids = [...filter.ids!];
    const { events } = this.context.memory;
    const { id: community } = this.community;
    if (!ids.some((id) => events.get(community, id)) || !(await this.isFresh()))
      return this.queryAndHold(filter, limit);
    const { aged, nowSeconds } = this.asked(filter, limit);
    const missing = new Set<string>();
    const rows: HeldEvent[] = [];
    for (const id of ids) {
      const held = events.get(community, id);
      if (held === undefined || aged(held)) missing.add(id);
      else if (!held.isExpired(nowSeconds)) rows.push(held);
    }
    const { view } = filter;
    const plain = hasOnlyIds(filter);
    const matching = rows.filter(
      (held) =>
        (plain && (view === undefined || !isGuarded(view, held.kind))) ||
        matchFilter(filter, held.asMatched()),
    );
    if (missing.size === 0) return this.fromMemory(mergeRows(matching).slice(0, limit));
    const read = await this.queryAndHold({ ...filter, ids: missing }, limit);
    return mergeRows([...matching, ...read]).slice(0, limit);
  }

  // ─── The database ────────────────────────────────────────────────────────────────────────────────────────────

  private query(filter: Filter, limit: number): Promise<FoundRow[]> {
    const { pool, tagHash, now, metrics } = this.context;
    metrics.answers.inc({ from: 'database' });
    const retention = { rules: this.community, now: now() };
    return this.ask(() =>
      findEvents(pool, this.community.id, filter, limit, tagHash, nowSeconds(now), retention),
    );
  }

  /** The best first. Never from memory, which knows no scores. */
  private async search(filter: Filter, limit: number): Promise<readonly Row[]> {
    const { now, metrics } = this.context;
    metrics.answers.inc({ from: 'search' });
    const asked = { limit: Math.min(limit, CANDIDATES_MAX), now: now() };
    const found = await this.ask(() => searchEvents(this.context, this.community, filter, asked));
    if (isDenial(found)) throw new SearchNotReady();
    this.behind = Math.max(this.behind, found.behind);
    this.isOutdated ||= found.isOutdated;
    return found.rows.map(bare);
  }

  async count(filters: readonly Filter[], max: number): Promise<number> {
    const { pool, tagHash, now } = this.context;
    const retention = { rules: this.community, now: now() };
    const { id } = this.community;
    if (filters.every(({ search }) => search === undefined))
      return this.ask(() => countEvents(pool, id, filters, max, tagHash, nowSeconds(now), retention));
    const counted = await this.ask(() =>
      countSearched(this.context, this.community, filters, max, retention.now),
    );
    if (isDenial(counted)) throw new SearchNotReady();
    this.behind = counted.behind;
    this.isOutdated = counted.isOutdated;
    return counted.count;
  }

  private async queryBare(filter: Filter, limit: number): Promise<readonly Row[]> {
    return (await this.query(filter, limit)).map(bare);
  }

  private queryAndHold(filter: Filter, limit: number): Promise<readonly Row[]> {
    return this.context.memory.events.reading(async (reading) => {
      const rows = await this.query(filter, limit);
      return (await this.holdAll(rows, reading)) ?? rows.map(bare);
    });
  }

  private queryAndKeep(filter: Filter, limit: number): Promise<readonly Row[]> {
    const { memory } = this.context;
    const filling = memory.answers.begin(this.community.id, filter, this.asked(filter, limit));
    if (filling === undefined) return this.queryBare(filter, limit);
    return memory.events.reading(async (reading) => {
      let read: Read | undefined;
      try {
        const found = await this.query(filter, filling.limit);
        const rows = await this.holdAll(found, reading);
        if (rows !== undefined) read = { rows, whole: found.length < filling.limit };
        return (rows ?? found.map(bare)).slice(0, limit);
      } finally {
        filling.done(read, reading);
      }
    });
  }

  /** The rows with their payloads, those that are still served; undefined when they are too large to have all at once. */
  private async holdAll(rows: readonly FoundRow[], reading: Reading): Promise<HeldEvent[] | undefined> {
    if (rows.reduce((sum, row) => sum + row.bytes, 0) > ANSWER_BYTES_MAX) return undefined;
    const { events } = this.context.memory;
    const { id: community } = this.community;
    const held = rows.map((row) => events.get(community, row.id));
    const missing = rows.filter((_, place) => held[place] === undefined);
    const payloads = missing.length === 0 ? [] : await this.readMissing(missing);
    if (reading.isVoid) return undefined;
    let at = 0;
    return rows.flatMap((row, place) => {
      const known = held[place];
      if (known !== undefined) return [known];
      const payload = payloads[at++];
      if (payload === undefined || !reading.mayHold(community, row.id)) return [];
      const { seq, id, createdAt, kind, ingestedAt, expiresAt, bound } = row;
      // Another reading, or the fan-out, may have brought it meanwhile: one object for all.
      const meanwhile = events.get(community, id);
      if (meanwhile !== undefined) return [meanwhile];
      const read = new HeldEvent(seq, id, createdAt, kind, ingestedAt, expiresAt, payload, bound);
      events.add(community, read);
      return [read];
    });
  }

  /** Of bare rows; those that are not served any more have none. */
  async payloadsOf(rows: readonly Row[]): Promise<(Buffer | undefined)[]> {
    const { pool, memory } = this.context;
    const { id: community } = this.community;
    const atHand = rows.map((row) => (isHeld(row) ? row : memory.events.get(community, row.id))?.payload);
    const asked = rows.filter((_, place) => atHand[place] === undefined).map(({ id }) => ({ community, id }));
    if (asked.length === 0) return atHand;
    const read = await this.ask(() => readEventsById(pool, asked));
    return rows.map(({ id }, place) => atHand[place] ?? toBuffer(read.get(factKey(community, id))?.payload));
  }

  private async readMissing(rows: readonly FoundRow[]): Promise<(Buffer | undefined)[]> {
    const { pool } = this.context;
    const inOneStep = rows.every(({ payload }) => payload !== undefined);
    const payloads = inOneStep
      ? rows.map(({ payload }) => payload)
      : await this.ask(() => readPayloads(pool, rows));
    // A row that is not in its place is hidden, or was moved to another bucket a moment ago.
    const elsewhere = rows.filter((_, place) => payloads[place] === undefined);
    if (elsewhere.length === 0) return payloads.map(toBuffer);
    const { id: community } = this.community;
    const asked = elsewhere.map(({ id }) => ({ community, id }));
    const moved = await this.ask(() => readEventsById(pool, asked));
    return rows.map(({ id }, place) =>
      toBuffer(payloads[place] ?? moved.get(factKey(community, id))?.payload),
    );
  }
}

function toBuffer(payload: string | undefined): Buffer | undefined {
  return payload === undefined ? undefined : Buffer.from(payload);
}

function hasOnlyIds({ authors, kinds, tags, since, until }: Filter): boolean {
  return (
    authors === undefined &&
    kinds === undefined &&
    tags.length === 0 &&
    since === undefined &&
    until === undefined
  );
}
