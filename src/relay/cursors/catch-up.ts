/**
 * The changes of a community since a position that a client could have missed, in commit order: events that
 * match, and deletions of events that it could hold. Read in pages, and the events of a page in portions, so
 * that a client that reads slowly holds little (I14).
 */
import type { Community } from '../../communities/communities.js';
import type { NostrEvent } from '../../events/rules/event.js';
import { isExpired } from '../../events/rules/expiration.js';
import { factKey } from '../../events/rules/facts.js';
import { type Filter, matchFilter } from '../../events/rules/filter.js';
import { changesCost, payloadsCost, type QueryClass, type QueryCost } from '../../events/rules/query-cost.js';
import { asKept } from '../../events/rules/retention.js';
import type { Anchor, EventStore, OutlinedChange, Position, ReadEvent } from '../../events/store.js';
import { couldHold, type GoneReader, matchOutline } from '../rules-gone.js';

const PAGE_ROWS = 500;
/** Rows whose events are in memory at once. */
const PORTION_ROWS = 25;
/**
 * Events that came and were deleted again while the client was away: their deletion is not announced. Beyond
 * this number it is.
 */
const PASSED_MAX = 10_000;

export type ChangeEvents = Pick<EventStore, 'changesOf' | 'byIds' | 'anchor'>;

export interface CatchUpContext {
  readonly events: ChangeEvents;
  /** Runs a query when the client has a slot. */
  readonly ask: <T>(cost: QueryCost, query: (as: QueryClass) => Promise<T>) => Promise<T>;
  /** Milliseconds. */
  readonly now: () => number;
}

export interface CatchUpOf {
  readonly community: Community;
  readonly filters: readonly Filter[];
  readonly reader: GoneReader;
}

/** `payload`: of an event; a deletion has none. */
export interface Missed {
  readonly at: Anchor;
  readonly id: string;
  readonly payload: string | undefined;
}

export interface Portion {
  /** Decides what is sent of it, when it is sent. Once, and in order. */
  take(): readonly Missed[];
  readonly rows: number;
  /** Everything up to this position has been given. */
  readonly upTo: Position;
  readonly head: Position;
}

export class CatchUp {
  private readonly passed = new Set<string>();

  constructor(
    private readonly context: CatchUpContext,
    private readonly of: CatchUpOf,
  ) {}

  /** Until the head of the outbox, or up to a position. Throws an OutboxBehind where changes are missing. */
  async *portions(after: Position, upTo?: Position): AsyncGenerator<Portion> {
    const { events, ask } = this.context;
    const { id: community } = this.of.community;
    for (let position = after; ; ) {
      const query = { community, after: position, limit: PAGE_ROWS, ...(upTo === undefined ? {} : { upTo }) };
      const page = await ask(changesCost(PAGE_ROWS), (as) => events.changesOf(query, as));
      const candidates = page.changes.filter((change) => this.mayConcern(change));
      for (let at = 0; at < candidates.length; at += PORTION_ROWS) {
        const portion = candidates.slice(at, at + PORTION_ROWS);
        const isLast = at + PORTION_ROWS >= candidates.length;
        const found = await this.read(portion);
        yield {
          take: () => this.decide(portion, found),
          rows: portion.length,
          upTo: isLast ? page.upTo : portion.at(-1)!.seq,
          head: page.head,
        };
      }
      if (candidates.length === 0) yield { take: () => [], rows: 0, upTo: page.upTo, head: page.head };
      position = page.upTo;
      if (position >= Math.min(page.head, upTo ?? page.head)) return;
    }
  }

  private mayConcern({ op, outline }: OutlinedChange): boolean {
    const { filters, reader } = this.of;
    const matches = op === 'delete' ? couldHold : matchOutline;
    return filters.some((filter) => matches(filter, outline, reader));
  }

  /** Events are read when they are sent, so that one that was hidden meanwhile is left out (I6). */
  private async read(changes: readonly OutlinedChange[]): Promise<ReadonlyMap<string, ReadEvent>> {
    const { events, ask } = this.context;
    const upserts = changes.filter(({ op }) => op === 'upsert');
    if (upserts.length === 0) return new Map();
    return ask(payloadsCost(upserts.length), (as) => events.byIds(upserts, as));
  }

  private decide(
    changes: readonly OutlinedChange[],
    found: ReadonlyMap<string, ReadEvent>,
  ): readonly Missed[] {
    return changes.flatMap((change): Missed[] => {
      const { id, seq, ingestedAt } = change;
      const at = { seq, at: ingestedAt };
      if (change.op === 'delete') return this.passed.delete(id) ? [] : [{ at, id, payload: undefined }];
      const event = found.get(factKey(change.community, id));
      // One that was removed and restored since has another position, and is sent there.
      if (event?.seq === seq && this.isShown(event)) return [{ at, id, payload: event.payload }];
      if (this.passed.size < PASSED_MAX) this.passed.add(id);
      return [];
    });
  }

  private isShown({ payload, bound, ingestedAt }: ReadEvent): boolean {
    const event = JSON.parse(payload) as NostrEvent;
    const now = this.context.now();
    if (isExpired(event, Math.floor(now / 1_000))) return false;
    const matched = asKept(this.of.community, event, { bound, ingestedAt }, now);
    return matched !== undefined && this.of.filters.some((filter) => matchFilter(filter, matched));
  }
}
