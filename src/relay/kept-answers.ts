/**
 * Answers that were read once and are kept right since: the newest events of a filter, in order. The outbox brings what is
 * new and what is gone, as it does for a live subscription, so that a filter asked again needs no query. Bounded in number
 * and bytes (I14); what was not asked for lately is let go.
 *
 *   filling ──rows of the query, and what came meanwhile──▶ kept ──too many, or all let go──▶ dropped
 */
import { LRUCache } from 'lru-cache';
import { type Filter, valuesIn } from '../core/filter.js';
import { factKey } from '../core/plan.js';
import type { Retention } from '../core/retention.js';
import type { MatchedEvent } from '../core/topic.js';
import { type HeldEvent, type HeldEvents, OVERHEAD_BYTES, type Reading } from './held-events.js';
import { SubscriptionIndex } from './subscription-index.js';

const ANSWERS_MAX = 5_000;
const BYTES_MAX = 64 * 1_048_576;
/** A filter with more values is asked of the database each time. */
const VALUES_MAX = 1_000;
const VALUE_BYTES = 200;
/** Answers larger than this are read in portions instead. */
export const ANSWER_BYTES_MAX = 4 * 1_048_576;
/** Rows beyond the limit asked, so that a deletion does not make the answer too short at once. */
const SPARE_ROWS = 20;
/** Events that match and come while the rows are read. */
const ARRIVED_MAX = 5_000;
/** So many times its rows an answer may grow before the oldest are let go. */
const GROWTH = 2;

export interface Asked {
  /** The rules of retention as they are: with others, other events may have been left out. */
  readonly rules: Retention;
  readonly limit: number;
  readonly nowSeconds: number;
  /** Past its days, perhaps: then only the database knows. */
  readonly aged: (held: HeldEvent) => boolean;
}

class KeptAnswer {
  /** Oldest first, so that a new event is appended. */
  private rows: HeldEvent[] = [];
  /** All that match and are not before this are in the rows; undefined while all that match are. */
  private floor: HeldEvent | undefined;
  private readonly arrived: HeldEvent[] = [];
  private filled = false;
  private rowsMax = 0;
  bytes: number;

  constructor(
    readonly key: string,
    readonly community: number,
    readonly filter: Filter,
    readonly rules: Retention,
    private readonly events: HeldEvents,
  ) {
    this.bytes = valuesIn([filter]) * VALUE_BYTES;
  }

  /** More came while the rows were read than may wait. */
  get overrun(): boolean {
    return this.arrived.length >= ARRIVED_MAX;
  }

  /** The newest rows of the query, newest first, and what came meanwhile. */
  fill({ rows, whole }: Read, limit: number, reading: Reading): void {
    const isLeft = (held: HeldEvent) => !held.gone && reading.mayHold(this.community, held.id);
    this.filled = true;
    this.rowsMax = limit * GROWTH;
    this.floor = whole ? undefined : rows.at(-1);
    for (const held of [...rows].reverse()) if (isLeft(held)) this.insert(this.rows.length, held);
    for (const held of this.arrived) if (isLeft(held)) this.add(held);
    this.arrived.length = 0;
  }

  add(held: HeldEvent): void {
    if (!this.filled) {
      if (!this.overrun) this.arrived.push(held);
      return;
    }
    if (this.floor !== undefined && isBefore(held, this.floor)) return;
    const place = this.placeOf(held);
    if (this.rows[place]?.id !== held.id) this.insert(place, held);
    if (this.rows.length > this.rowsMax) this.shorten();
  }

  letGo(): void {
    for (const held of this.rows) this.remove(held);
    this.rows = [];
  }

  private insert(place: number, held: HeldEvent): void {
    this.rows.splice(place, 0, this.events.use(this.community, held));
    this.bytes += held.bytes + OVERHEAD_BYTES;
  }

  private remove(held: HeldEvent): void {
    this.bytes -= held.bytes + OVERHEAD_BYTES;
    this.events.unuse(this.community, held);
  }

  /** Newest first; undefined when the rows at hand do not reach far enough. */
  read({ since, until }: Filter, { limit, nowSeconds, aged }: Asked): HeldEvent[] | undefined {
    const found: HeldEvent[] = [];
    let gone = 0;
    for (let place = this.rows.length - 1; place >= 0 && found.length < limit; place--) {
      const held = this.rows[place]!;
      if (held.gone) {
        gone += 1;
        continue;
      }
      if (until !== undefined && held.createdAt > until) continue;
      if (since !== undefined && held.createdAt < since) return found;
      if (held.isExpired(nowSeconds)) continue;
      if (aged(held)) return undefined;
      found.push(held);
    }
    if (gone > SPARE_ROWS) this.forgetGone();
    const whole = this.floor === undefined || (since !== undefined && this.floor.createdAt < since);
    return found.length === limit || whole ? found : undefined;
  }

  private shorten(): void {
    const oldest = this.rows.splice(0, this.rows.length - Math.ceil(this.rowsMax / GROWTH));
    this.floor = this.rows[0];
    for (const held of oldest) this.remove(held);
  }

  private forgetGone(): void {
    for (const held of this.rows) if (held.gone) this.remove(held);
    this.rows = this.rows.filter((held) => !held.gone);
  }

  /** The first place whose row is not before the event. */
  private placeOf(held: HeldEvent): number {
    let low = 0;
    let high = this.rows.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (isBefore(this.rows[middle]!, held)) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}

/** Older, or of the same second and with the higher id: later in an answer. */
function isBefore(a: HeldEvent, b: HeldEvent): boolean {
  return a.createdAt !== b.createdAt ? a.createdAt < b.createdAt : a.id > b.id;
}

export interface Read {
  /** Newest first. */
  readonly rows: readonly HeldEvent[];
  /** There are no older ones that match. */
  readonly whole: boolean;
}

export interface Filling {
  /** How many rows to ask for. */
  readonly limit: number;
  /** Nothing, to give up. */
  done(read: Read | undefined, reading: Reading): void;
}

export class KeptAnswers {
  private readonly answers = new LRUCache<string, KeptAnswer>({
    max: ANSWERS_MAX,
    dispose: (answer) => this.unfile(answer),
  });
  private readonly indexes = new Map<number, SubscriptionIndex<KeptAnswer>>();
  private readonly filling = new Map<string, KeptAnswer>();
  private bytes = 0;

  constructor(private readonly events: HeldEvents) {}

  has(community: number, filter: Filter): boolean {
    return this.answers.has(answerKey(community, filter));
  }

  read(community: number, filter: Filter, asked: Asked): HeldEvent[] | undefined {
    const answer = this.answers.get(answerKey(community, filter));
    if (answer === undefined || answer.rules !== asked.rules) return undefined;
    const before = answer.bytes;
    const rows = answer.read(filter, asked);
    this.bytes += answer.bytes - before;
    return rows;
  }

  /** Begins to keep the answer of a filter; undefined when it is not one to keep, or is being read already. */
  begin(community: number, filter: Filter, { limit, rules }: Asked): Filling | undefined {
    if (filter.since !== undefined || filter.until !== undefined || valuesIn([filter]) > VALUES_MAX) return;
    const key = answerKey(community, filter);
    if (this.filling.has(key)) return;
    this.answers.delete(key);
    const answer = new KeptAnswer(key, community, filter, rules, this.events);
    this.filling.set(key, answer);
    this.indexOf(community).add(answer, [filter]);
    const rowsAsked = limit + SPARE_ROWS;
    return {
      limit: rowsAsked,
      done: (read, reading) => {
        this.filling.delete(key);
        const usable = read !== undefined && (read.whole || read.rows.length > 0);
        if (!usable || reading.isVoid || answer.overrun) this.unindex(answer);
        else this.keep(answer, read, rowsAsked, reading);
      },
    };
  }

  private keep(answer: KeptAnswer, read: Read, limit: number, reading: Reading): void {
    answer.fill(read, limit, reading);
    this.bytes += answer.bytes;
    this.answers.set(answer.key, answer);
    this.makeRoom();
  }

  onUpsert(community: number, held: HeldEvent, event: MatchedEvent): void {
    const index = this.indexes.get(community);
    if (index === undefined) return;
    for (const answer of index.match(event)) {
      const before = answer.bytes;
      answer.add(held);
      this.bytes += answer.bytes - before;
    }
    this.makeRoom();
  }

  clear(): void {
    this.answers.clear();
  }

  private makeRoom(): void {
    while (this.bytes > BYTES_MAX && this.answers.size > 0) this.answers.pop();
  }

  private unfile(answer: KeptAnswer): void {
    this.bytes -= answer.bytes;
    answer.letGo();
    this.unindex(answer);
  }

  private unindex(answer: KeptAnswer): void {
    this.indexOf(answer.community).remove(answer);
  }

  private indexOf(community: number): SubscriptionIndex<KeptAnswer> {
    let index = this.indexes.get(community);
    if (index === undefined) {
      index = new SubscriptionIndex();
      this.indexes.set(community, index);
    }
    return index;
  }
}

/** What is asked for, apart from how much of it and of which time. */
function answerKey(community: number, { ids, authors, kinds, tags, view }: Filter): string {
  const lists = [ids, authors, kinds, ...tags.map(({ values }) => values)];
  const names = tags.map(({ name }) => name).join('');
  return factKey(community, names + JSON.stringify([...lists.map((list) => list && [...list]), view?.key]));
}
