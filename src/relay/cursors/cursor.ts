/**
 * The cursor of a REQ (docs/cursors.md): where a client has come in the changes of its community. It has
 * three parts: its version, a sealed position (with the time of the change there, so that a position of
 * another history of the database is recognised), and a mark of the query (its filters, and what the client
 * may see of them). A cursor gives no rights: what is sent is decided by what the client may see now.
 */
import type { Filter } from '../../events/rules/filter.js';
import { type Refusal, refusal } from '../../events/rules/reply.js';
import { DAY_MS } from '../../events/rules/retention.js';
import type { Anchor, AnchorRead } from '../../events/store.js';
import type { PositionSeal } from './sealed-position.js';

const VERSION = 'c1';
export const CURSOR_LENGTH_MAX = 256;
const AGAIN = 'begin again with "cursor": ""';

export const UNKNOWN_CURSOR = refusal('invalid', `this relay does not know the cursor; ${AGAIN}`);
export const OTHER_QUERY = refusal(
  'invalid',
  `the cursor is of another query, or what you may see has changed; ${AGAIN}`,
);
export const CHANGES_LOST = refusal('error', `changes after the cursor are no longer kept; ${AGAIN}`);
export const VIEW_CHANGED = refusal('error', `what you may see has changed; ${AGAIN}`);

/** The filters of a REQ without their cursor, and the cursor; undefined where no filter has one. */
export interface CursorInputs {
  readonly inputs: readonly unknown[];
  readonly cursor: string | undefined;
}

/** One cursor for the whole REQ: filters that have one have the same. */
export function takeCursor(inputs: readonly unknown[]): CursorInputs | Refusal {
  const given = inputs.filter(hasCursor);
  if (given.length === 0) return { inputs, cursor: undefined };
  const [cursor] = given.map((input) => input.cursor);
  if (typeof cursor !== 'string' || cursor.length > CURSOR_LENGTH_MAX)
    return refusal('invalid', `cursor must be a string of at most ${CURSOR_LENGTH_MAX} characters`);
  if (given.some((input) => input.cursor !== cursor))
    return refusal('invalid', 'all filters of a REQ must have the same cursor');
  if (inputs.some(hasSearch)) return refusal('unsupported', 'cursor together with search');
  const rest = inputs.map((input) => {
    if (!hasCursor(input)) return input;
    const { cursor: _, ...filter } = input;
    return filter;
  });
  return { inputs: rest, cursor };
}

function hasCursor(input: unknown): input is { readonly cursor: unknown } {
  return typeof input === 'object' && input !== null && Object.hasOwn(input, 'cursor');
}

function hasSearch(input: unknown): boolean {
  return typeof input === 'object' && input !== null && Object.hasOwn(input, 'search');
}

/** Makes the cursors of a process. A change that goes to many subscriptions is sealed once. */
export class CursorMaker {
  private last = { community: 0, seq: -1, sealed: '' };

  constructor(
    private readonly seal: PositionSeal,
    private readonly now: () => number,
  ) {}

  /** `filters`: with what the client may see of them. */
  cursorsOf(community: number, filters: readonly Filter[]): Cursors {
    return new Cursors(this, community, this.seal.markOf(queryText(filters)));
  }

  sealed(community: number, { seq, at }: Anchor): string {
    if (this.last.community !== community || this.last.seq !== seq) {
      const sealed = this.seal.seal(community, JSON.stringify([seq, at, this.now()]));
      this.last = { community, seq, sealed };
    }
    return this.last.sealed;
  }

  open(community: number, sealed: string): string | undefined {
    return this.seal.open(community, sealed);
  }
}

/** The cursors of one community and one query. */
export class Cursors {
  constructor(
    private readonly maker: CursorMaker,
    private readonly community: number,
    private readonly query: string,
  ) {}

  at(anchor: Anchor): string {
    return `${VERSION}.${this.maker.sealed(this.community, anchor)}.${this.query}`;
  }

  open(cursor: string): Place | Refusal {
    const [version, sealed = '', query, ...rest] = cursor.split('.');
    if (version !== VERSION || rest.length > 0) return UNKNOWN_CURSOR;
    const content = this.maker.open(this.community, sealed);
    if (content === undefined) return UNKNOWN_CURSOR;
    if (query !== this.query) return OTHER_QUERY;
    const [seq, at, givenAt] = JSON.parse(content) as [number, number, number];
    return { seq, at, givenAt };
  }
}

/** An opened cursor. `givenAt`: when it was made, in milliseconds. */
export interface Place extends Anchor {
  readonly givenAt: number;
}

/** What a cursor is bound to: the filters, whatever their order and limits, and the views of the client. */
export function queryText(filters: readonly Filter[]): string {
  const list = (values: ReadonlySet<string | number> | undefined) =>
    values === undefined ? null : [...values].sort();
  const texts = filters.map(({ ids, authors, kinds, tags, since, until, view }) =>
    JSON.stringify([
      list(ids),
      list(authors),
      list(kinds),
      tags.map(({ name, values }) => JSON.stringify([name, list(values)])).sort(),
      since ?? null,
      until ?? null,
      view?.key ?? null,
    ]),
  );
  return [...new Set(texts)].sort().join('\n');
}

/**
 * Refuses a place that is not in the history that the store has now: behind what is kept, ahead of it, or of
 * a database that was restored to an older state since. Where the change of the place itself is no longer
 * kept, a place that is younger than what is kept is believed: in another history its position would have a
 * change.
 */
export function refusePlace(
  { seq, at, givenAt }: Place,
  { anchor, floor, head }: AnchorRead,
  { keptDays, now }: { readonly keptDays: number; readonly now: number },
): Refusal | undefined {
  if (seq > head || seq < floor - 1) return CHANGES_LOST;
  if (anchor.seq === seq && anchor.at === at && at !== 0) return undefined;
  const isKept = anchor.at !== 0;
  const isYoung = now - givenAt < keptDays * DAY_MS;
  return !isKept && seq === floor - 1 && isYoung ? undefined : CHANGES_LOST;
}
