/**
 * Reads the newest events of a filter from the window, newest first, lowest id first. It scans the index with
 * the fewest entries and checks the rest of the filter on each event; several lists are merged. The work is
 * bounded (I14): a filter that would take too many steps is left to the database.
 */
import type { Filter } from '../../events/rules/filter.js';
import type { Retention } from '../../events/rules/retention.js';
import { type AskedKeys, type Condition, type Conditions, conditionsOf } from './conditions.js';
import type { Walk } from './postings.js';
import { ID_WORDS, idText, type Window } from './window.js';

/** Events that are checked and lists that are opened for one filter. */
export const STEPS_MAX = 20_000;
/** Up to this many lists the index with the fewest entries is always the best. */
const LISTS_FEW = 64;
/** Opening a list takes about as long as checking this many events. */
const OPENING_STEPS = 8;

export interface Question {
  readonly community: number;
  readonly limit: number;
  /** Milliseconds. */
  readonly now: number;
  readonly rules: Retention;
}

export interface Answer {
  readonly rows: readonly WindowRow[];
  /**
   * The filter for the rest, which the database has because the window does not reach so far; undefined when
   * the rows are complete.
   */
  readonly rest: Filter | undefined;
  /** Steps that were taken. */
  readonly steps: number;
}

/**
 * The ids of an answer, copied out of the window in blocks: few of them are ever needed as text, and making
 * that took half of the time of a long answer.
 */
class IdCopies {
  block = new Int32Array(0);
  private next = 0;

  /** Copies the id of the event at this place into the block, and returns where it is in it. */
  add(window: Window, place: number): number {
    if (this.next === this.block.length) {
      this.block = new Int32Array(ID_BLOCK * ID_WORDS);
      this.next = 0;
    }
    const at = this.next;
    window.copyId(place, this.block, at);
    this.next += ID_WORDS;
    return at;
  }
}
/** Ids of one block: a short answer allocates little. */
const ID_BLOCK = 64;

/** An event that was found. Its bytes are there as long as the window holds it. */
export class WindowRow {
  readonly seq: number;
  readonly createdAt: number;
  readonly bytes: number;
  readonly expiresAt: number;
  private readonly idAt: number;
  private readonly idWords: Int32Array;

  constructor(
    private readonly window: Window,
    private readonly place: number,
    ids: IdCopies,
  ) {
    this.seq = window.seq(place);
    this.createdAt = window.createdAt(place);
    this.bytes = window.payloadBytes(place);
    this.expiresAt = window.expiresAt(place);
    this.idAt = ids.add(window, place);
    this.idWords = ids.block;
  }

  get id(): string {
    return idText(this.idWords, this.idAt);
  }

  get isHeld(): boolean {
    return this.window.isAt(this.place, this.seq);
  }
  /** A view that holds until the window changes; undefined when the event is not held any more. */
  get payload(): Buffer | undefined {
    return this.isHeld ? this.window.payload(this.place) : undefined;
  }
}

/** Undefined when it would take too long. */
export function readWindow(window: Window, filter: Filter, question: Question): Answer | undefined {
  const { from } = window.extent(question.community);
  const { since = Number.NEGATIVE_INFINITY, until = Number.POSITIVE_INFINITY } = filter;
  const isWhole = since >= from;
  const rest = isWhole ? undefined : { ...filter, until: Math.min(until, from - 1) };
  if (filter.ids !== undefined) return readByIds(window, { ...filter, ids: filter.ids }, rest, question);
  if (until < from && !isWhole) return { rows: [], rest, steps: 0 };
  const { keys, conditions } = chooseWay(window, conditionsOf(window, filter, question), question);
  const walk = openWalk(window, keys, until);
  const begin = Math.max(since, from);
  const rows: WindowRow[] = [];
  const ids = new IdCopies();
  let steps = keys.length * OPENING_STEPS;
  for (; walk.event !== -1; walk.next()) {
    const place = walk.event;
    if (window.createdAt(place) < begin) break;
    steps += 1;
    if (steps > STEPS_MAX) return undefined;
    if (!meets(conditions, place)) continue;
    rows.push(new WindowRow(window, place, ids));
    if (rows.length === question.limit) return { rows, rest: undefined, steps };
  }
  return { rows, rest, steps };
}

function meets(conditions: readonly Condition[], place: number): boolean {
  for (const isMet of conditions) if (!isMet(place)) return false;
  return true;
}

type ById = Filter & { readonly ids: ReadonlySet<string> };

/** An id that is held needs no other event of its time. */
function readByIds(window: Window, filter: ById, rest: Filter | undefined, question: Question): Answer {
  const { community, limit } = question;
  const { since = Number.NEGATIVE_INFINITY, until = Number.POSITIVE_INFINITY } = filter;
  const { isAuthor, isKind, hasTag, isShown } = conditionsOf(window, filter, question);
  const conditions = present([isKind, isAuthor, ...hasTag, isShown]);
  const missing = new Set<string>();
  const found: number[] = [];
  for (const id of filter.ids) {
    const place = window.find(community, id);
    if (place === -1) missing.add(id);
    else if (isWithinTimes(window.createdAt(place), since, until) && meets(conditions, place))
      found.push(place);
  }
  found.sort((a, b) => window.compare(b, a));
  const ids = new IdCopies();
  const rows = found.slice(0, limit).map((place) => new WindowRow(window, place, ids));
  return {
    rows,
    rest: rest && missing.size > 0 ? { ...rest, ids: missing } : undefined,
    steps: filter.ids.size,
  };
}

const isWithinTimes = (createdAt: number, since: number, until: number) =>
  createdAt >= since && createdAt <= until;

const present = (conditions: readonly (Condition | undefined)[]) =>
  conditions.filter((condition) => condition !== undefined);

// ── The way in ─────────────────────────────────────────────────────────────────────────────────────────────

interface Way {
  readonly keys: readonly number[];
  /** What is left to check of an event on this way. */
  readonly conditions: readonly Condition[];
}

/**
 * Chooses the index with the fewest entries. If it has very many lists, a broader index may be cheaper: its
 * cost is estimated from the share of matches among its entries.
 */
function chooseWay(window: Window, asked: Conditions, { community, limit }: Question): Way {
  const ways = waysOf(window, asked, community).map((way) => ({ ...way, total: totalOf(window, way.keys) }));
  const fewest = ways.reduce((best, way) => (way.total < best.total ? way : best));
  if (fewest.keys.length <= LISTS_FEW) return fewest;
  const cost = ({ keys, total }: (typeof ways)[number]) => {
    const looked = Math.min(total, (limit * total) / Math.max(1, fewest.total));
    return keys.length * OPENING_STEPS + looked * (1 + Math.log2(keys.length + 1));
  };
  return ways.reduce((best, way) => (cost(way) < cost(best) ? way : best));
}

function totalOf(window: Window, keys: readonly number[]): number {
  let total = 0;
  for (const key of keys) total += window.postings.count(key);
  return total;
}

function waysOf(window: Window, asked: Conditions, community: number): Way[] {
  const { isAuthor, isKind, hasTag, isShown } = asked;
  const all = known(window.keys.all(community).find());
  const ways: Way[] = [{ keys: all, conditions: present([isKind, isAuthor, ...hasTag, isShown]) }];
  const add = (way: AskedKeys | undefined, conditions: readonly (Condition | undefined)[]) => {
    if (way !== undefined) ways.push({ keys: way.keys, conditions: present([...conditions, isShown]) });
  };
  add(asked.kinds, [isAuthor, ...hasTag]);
  add(asked.authors, [isKind, ...hasTag]);
  add(asked.authorKinds, hasTag);
  asked.tags.forEach((tag, at) => {
    const others = hasTag.filter((_, place) => place !== at);
    add(tag, [isKind, isAuthor, tag.left, ...others]);
  });
  return ways;
}

const known = (key: number) => (key === -1 ? [] : [key]);

// ── The walk ───────────────────────────────────────────────────────────────────────────────────────────────

/** From newer to older; the event is -1 at the end. */
interface Walking {
  readonly event: number;
  next(): void;
}

function openWalk(window: Window, keys: readonly number[], until: number): Walking {
  const isAfter =
    until === Number.POSITIVE_INFINITY ? undefined : (place: number) => window.createdAt(place) > until;
  const walks = keys.map((key) => window.postings.walk(key, isAfter)).filter(({ event }) => event !== -1);
  return walks.length === 1 ? walks[0]! : new Merged(window, walks);
}

/** Several lists as one, each event once: a heap with the newest on top. */
class Merged implements Walking {
  event: number;

  constructor(
    private readonly window: Window,
    private readonly heap: Walk[],
  ) {
    for (let at = (heap.length >>> 1) - 1; at >= 0; at--) this.sink(at);
    this.event = heap[0]?.event ?? -1;
  }

  next(): void {
    const { heap, event } = this;
    // It may be in several of the lists.
    while (heap[0]?.event === event) {
      heap[0].next();
      if (heap[0].event === -1) {
        const last = heap.pop()!;
        if (heap.length > 0) heap[0] = last;
      }
      this.sink(0);
    }
    this.event = heap[0]?.event ?? -1;
  }

  private sink(from: number): void {
    const { heap, window } = this;
    for (let at = from; ; ) {
      const left = 2 * at + 1;
      if (left >= heap.length) return;
      const right = left + 1;
      const newer =
        right < heap.length && window.compare(heap[right]!.event, heap[left]!.event) > 0 ? right : left;
      if (window.compare(heap[newer]!.event, heap[at]!.event) <= 0) return;
      const sunk = heap[at]!;
      heap[at] = heap[newer]!;
      heap[newer] = sunk;
      at = newer;
    }
  }
}
