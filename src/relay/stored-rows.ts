/**
 * The rows of an answer, in the order in which they are sent. Rows of the window in memory are looked up some
 * hundreds at a time, the next ones when those are sent (I14, I18): 300 answers of 5,000 events that nobody
 * read kept 1.5 million rows, and collecting them took a quarter of the time of the event loop.
 *
 * A later page sees the window of its moment. What was deleted meanwhile is not in it. What was added
 * meanwhile is live for the subscription, and is sent once (I10).
 */
import { classify } from '../events/rules/classify.js';
import type { Filter } from '../events/rules/filter.js';
import type { Completeness } from '../events/rules/reply.js';
import type { FoundEvent } from '../events/store.js';
import { WindowRow } from './window/read.js';

/** Most queries have a limit of 500 or less; one more is looked up where the limit is that of the relay. */
export const PAGE_ROWS = 501;
/** For a greedy client: everybody else waits while a page is looked up. */
export const GREEDY_PAGE_ROWS = 101;

/**
 * A row without its payload, which is read when its portion is due: by its place where that is known, else by
 * its id.
 */
export type Bare = Pick<FoundEvent, 'seq' | 'id' | 'createdAt' | 'bytes' | 'expiresAt'> &
  Partial<Pick<FoundEvent, 'ingestedAt' | 'keep'>>;
/** As the database gave it in one step. */
export type Full = Bare & { readonly payload: string };
export type Row = WindowRow | Full | Bare;
type Placed = Bare & Pick<FoundEvent, 'ingestedAt' | 'keep'>;

export interface RowReads {
  /** How many rows of the window are looked up at a time. */
  readonly pageRows: number;
  find(filter: Filter, limit: number, memoryRows?: number): Promise<readonly Row[]>;
}

/**
 * The rows of one filter, newest first, lowest id first, page by page.
 *
 * Where the client has left the limit to the relay, one more is looked up, so that it learns whether the
 * relay has cut its answer (NIP-67). A client that has set the limit knows it; for a profile with `limit: 1`,
 * one more would mean a query instead of an answer from memory.
 */
export class FilterRows {
  private page: readonly Row[] = [];
  /** How many are still to be looked up. */
  private left: number;
  /** How many were found, up to the limit. */
  private count = 0;
  /** One that matches, too, and is over the limit of this relay. */
  beyond: Row | undefined;
  private at = 0;
  private last: Row | undefined;
  /** Rows of the second of the last one, which the next page finds again. */
  private sameSecond = 0;
  isLast: boolean;

  constructor(
    private readonly read: RowReads | undefined,
    private readonly filter: Filter,
    private readonly limit: number,
    private readonly heldBytesMax: number,
  ) {
    const isCut = limit > 0 && (filter.limit ?? limit + 1) > limit;
    this.left = isCut ? limit + 1 : limit;
    this.isLast = limit === 0;
  }

  /** These are all stored events that match. */
  get isAll(): boolean {
    return this.isLast && (this.left > 0 || (this.limit > 0 && this.count >= mostMatches(this.filter)));
  }

  /** Rows that are known already, in their own order. */
  static listed(rows: readonly Row[]): FilterRows {
    const listed = new FilterRows(undefined, { tags: [] }, 0, 0);
    listed.page = rows;
    listed.isLast = true;
    return listed;
  }

  get first(): Row | undefined {
    return this.page[this.at];
  }
  /** Of the rows of this page that are not taken. */
  get bytes(): number {
    return this.page.slice(this.at).reduce((sum, { bytes }) => sum + bytes, 0);
  }

  shift(): void {
    this.at += 1;
  }

  dropPayloads(): void {
    this.page = this.page.slice(this.at).map(withoutPayload);
    this.at = 0;
  }

  /** Looks up the next page if this one is used up and there may be more. */
  async fill(): Promise<void> {
    while (this.first === undefined && !this.isLast) await this.lookUp();
  }

  private async lookUp(): Promise<void> {
    const { last, sameSecond } = this;
    const filter = last === undefined ? this.filter : { ...this.filter, until: last.createdAt };
    const pageRows = this.read?.pageRows ?? PAGE_ROWS;
    const [limit, memoryRows] = [this.left + sameSecond, pageRows + sameSecond];
    const found = (await this.read?.find(filter, limit, memoryRows)) ?? [];
    const page = last === undefined ? found : found.filter((row) => isAfter(row, last));
    const room = this.limit - this.count;
    this.beyond = page[room];
    this.page = bareBeyond(page.length > room ? page.slice(0, room) : page, this.heldBytesMax);
    this.at = 0;
    this.count += this.page.length;
    this.left -= page.length;
    this.isLast = found.length !== Math.min(limit, memoryRows) || this.left <= 0;
    if (page.length > 0) this.noteLast(page);
    // Others of that second were added meanwhile.
    else this.sameSecond = found.length;
  }

  private noteLast(page: readonly Row[]): void {
    const last = page.at(-1)!;
    const { createdAt } = last;
    if (createdAt !== this.last?.createdAt) this.sameSecond = 0;
    for (let at = page.length - 1; page[at]?.createdAt === createdAt; at--) this.sameSecond += 1;
    this.last = last;
  }
}

/** How many events can match at all, where the filter says so. */
function mostMatches({ ids, authors, kinds }: Filter): number {
  if (ids !== undefined) return ids.size;
  if (authors === undefined || kinds === undefined) return Number.POSITIVE_INFINITY;
  const isReplaceable = [...kinds].every((kind) => classify(kind) === 'replaceable');
  return isReplaceable ? authors.size * kinds.size : Number.POSITIVE_INFINITY;
}

/** Older, or of the same second with a higher id. */
function isAfter(row: Row, last: Row): boolean {
  return row.createdAt === last.createdAt ? row.id > last.id : row.createdAt < last.createdAt;
}

/** The union of the rows of several filters, each row once. */
export class AnswerRows {
  private lastId: string | undefined;
  /** Of several filters: what one has beyond its limit may be in the answer of another. */
  private readonly taken = new Set<string>();

  constructor(private readonly filters: readonly FilterRows[]) {}

  /** Of the whole answer, when it is sent (NIP-67). */
  get completeness(): Completeness {
    if (this.filters.every(({ isAll }) => isAll)) return 'finish';
    const isMore = ({ beyond }: FilterRows) => beyond !== undefined && !this.taken.has(beyond.id);
    return this.filters.some(isMore) ? 'more' : undefined;
  }

  /** Nothing is left to look up. */
  get isLast(): boolean {
    return this.filters.every(({ isLast }) => isLast);
  }
  get isEmpty(): boolean {
    return this.filters.every(({ first }) => first === undefined);
  }
  /** Of the rows that are known. */
  get bytes(): number {
    return this.filters.reduce((sum, { bytes }) => sum + bytes, 0);
  }

  dropPayloads(): void {
    for (const rows of this.filters) rows.dropPayloads();
  }

  async fill(): Promise<void> {
    for (const rows of this.filters) await rows.fill();
  }

  /** The next rows that are known; none at the end. */
  take(rowsMax: number, bytesMax: number): Row[] {
    // The window gives one filter no event twice, and makes the id of a row into text each time.
    const isUnion = this.filters.length > 1;
    const taken: Row[] = [];
    let bytes = 0;
    for (let next = this.next(); next !== undefined; next = this.next()) {
      const row = next.first!;
      const id = isUnion || !(row instanceof WindowRow) ? row.id : undefined;
      if (id === undefined || id !== this.lastId) {
        bytes += row.bytes;
        if (taken.length > 0 && (taken.length >= rowsMax || bytes > bytesMax)) break;
        taken.push(row);
        if (id !== undefined) this.lastId = id;
        if (id !== undefined && isUnion) this.taken.add(id);
      }
      next.shift();
    }
    return taken;
  }

  /** The filter with the next row. Undefined at the end, or if one has to look up its next page first. */
  private next(): FilterRows | undefined {
    let best: FilterRows | undefined;
    for (const rows of this.filters) {
      if (rows.first === undefined) {
        if (!rows.isLast) return undefined;
      } else if (best === undefined || isAfter(best.first!, rows.first)) best = rows;
    }
    return best;
  }
}

/** The rows with payloads up to so many bytes, bare ones after them. */
export function bareBeyond(rows: readonly Row[], bytesMax: number): readonly Row[] {
  let bytes = 0;
  const at = rows.findIndex((row) => {
    if ('payload' in row && !(row instanceof WindowRow)) bytes += row.bytes;
    return bytes > bytesMax;
  });
  return at === -1 ? rows : [...rows.slice(0, at), ...rows.slice(at).map(withoutPayload)];
}

/** A row of the window holds no payload. */
function withoutPayload(row: Row): Row {
  return row instanceof WindowRow ? row : bare(row);
}

export function bare(row: Row): Bare {
  const { seq, id, createdAt, bytes, expiresAt } = row;
  return isPlaced(row)
    ? { seq, id, createdAt, bytes, expiresAt, ingestedAt: row.ingestedAt, keep: row.keep }
    : { seq, id, createdAt, bytes, expiresAt };
}

export function isPlaced(row: Row): row is Placed {
  return 'keep' in row && row.keep !== undefined;
}
export function isAtHand(row: Row): boolean {
  return row instanceof WindowRow ? row.isHeld : 'payload' in row;
}
/** Of the window it is a view, to be sent before anything else happens. */
export function payloadAtHand(row: Row): Buffer | undefined {
  if (row instanceof WindowRow) return row.payload;
  return 'payload' in row ? Buffer.from(row.payload) : undefined;
}

/** Where one of several filters searches, each has its own order: one after another, each row once. */
export function uniqueRows(rows: readonly Row[]): Row[] {
  const unique = new Map<string, Row>();
  for (const row of rows) if (!unique.has(row.id)) unique.set(row.id, row);
  return [...unique.values()];
}

/** The union of several lists: newest first, lowest id first, each once. */
export function mergeRows(rows: readonly Row[]): Row[] {
  const unique = new Map(rows.map((row) => [row.id, row]));
  return [...unique.values()].sort((a, b) => b.createdAt - a.createdAt || (a.id < b.id ? -1 : 1));
}
