/**
 * Negentropy for one client (NIP-77): it learns which events it lacks and which this relay lacks, of those
 * that it may see. A session is fixed when it is opened: events that arrive later belong to the next one, and
 * events that are deleted, expire or pass their retention disappear from it (sync/digest.ts).
 *
 *   NEG-OPEN ──walk, counted──▶ open ──NEG-MSG, answered──▶ open ──NEG-CLOSE, NEG-ERR, socket gone──▶ closed
 *
 * Bounded (I14): sessions of a connection and of all clients together, each with one message that waits,
 * records, frames, pages, waiting and total time. Every page runs in a query slot of the client and is
 * charged to it (I18).
 */
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Community } from '../communities/communities.js';
import {
  type Filter,
  matchesNothing,
  parseFilters,
  searchCharactersIn,
  valuesIn,
} from '../events/rules/filter.js';
import { openingMs, recordsCost, walkingMs } from '../events/rules/query-cost.js';
import { isRefusal, NEGENTROPY_OFF, type Refusal, refusal, tooMany } from '../events/rules/reply.js';
import type { Position } from '../events/store.js';
import {
  Digest,
  PAGE_RECORDS,
  type ReadPage,
  type RecordsPage,
  smallDigest,
  WALK_RECORDS,
} from '../sync/digest.js';
import { BadMessage, fromHex, type Records, respond, toHex } from '../sync/rules-negentropy.js';
import type { QueriesContext, QueryConnection } from './client-queries.js';
import { isCancelled } from './query-gate.js';
import { slotsOf } from './query-slots.js';
import { readFailure } from './read-failure.js';
import { limitOf, type QuerySlots } from './stored.js';

/** Bytes of an answer, which is sent as twice as many hex characters. */
const ANSWER_BYTES_MAX = 120_000;
/** Of a message of the client, in hex characters. */
const MESSAGE_CHARACTERS_MAX = 262_144;
/** A range of a message: its fingerprint, and those of its parts. */
const RANGE_MS = 0.02;
/** Ranges that are answered without letting other clients proceed. */
const RANGES_AT_ONCE = 64;
/**
 * What the memory of a session counts among the values of open filters (open-values.ts): 400 kB, and a
 * message of 131 kB that waits to be answered.
 */
const SESSION_VALUES = 1_600;
/** How long a client may take for its next message, and for a whole session. */
export const IDLE_MS_MAX = 120_000;
const SESSION_MS_MAX = 3_600_000;
/** A page that took too long is tried again with a shorter span, this often. */
const SPAN_TRIES_MAX = 6;
const SPAN_FACTOR = 16;

const CHANGED = refusal('closed', 'what you may see has changed; open it again');
const TOO_SLOW = refusal('closed', 'you took too long to respond');
const TOO_LONG = refusal('closed', 'the session took too long; open it again');
const NOT_OPEN = refusal('closed', 'there is no such session');
const ONE_AT_A_TIME = refusal('invalid', 'the next message comes after the answer to the last one');
const NO_SEARCH = refusal('unsupported', 'a search cannot be reconciled');
const NO_MESSAGE = refusal('invalid', 'NEG-OPEN needs an id, one filter and a message in hex');

/** A message that waits to be answered. */
interface Waiting {
  readonly community: Community;
  readonly message: Uint8Array;
}

interface Session {
  readonly id: string;
  readonly asked: Filter;
  seen: Filter;
  records: Records | undefined;
  /** A message is being answered. */
  isBusy: boolean;
  isClosed: boolean;
  readonly openedMs: number;
  usedMs: number;
}

export class ClientReconciliations {
  private readonly sessions = new Map<string, Session>();
  /**
   * The messages that wait, at most one of each open session: what is closed holds nothing. One at a time is
   * answered, in order.
   */
  private readonly waiting = new Map<Session, Waiting>();
  private isAnswering = false;

  constructor(
    private readonly connection: QueryConnection,
    private readonly context: QueriesContext,
  ) {}

  onOpen(community: Community, [, id, input, hex, ...more]: unknown[]): Refusal | undefined {
    if (typeof id !== 'string' || id === '') return refusal('invalid', 'NEG-OPEN needs a subscription id');
    const lengthMax = community.settings['limits.subscriptionIdLengthMax'];
    if (id.length > lengthMax)
      return this.refuse(
        id.slice(0, lengthMax),
        refusal('invalid', `the id is longer than ${lengthMax} characters`),
      );
    // NIP-77: an open session with this id is closed first.
    this.close(id);
    this.connection.judge(community, ({ allowed, retryAfterMs }) => {
      if (!this.isOpen) return;
      if (!allowed) return this.refuse(id, tooMany('queries', retryAfterMs));
      if (typeof hex !== 'string' || more.length > 0) return this.refuse(id, NO_MESSAGE);
      const message = messageIn(hex);
      if (isRefusal(message)) return this.refuse(id, message);
      const current = this.context.communities.get(community.id) ?? community;
      const session = this.open(current, id, input);
      if (isRefusal(session)) return this.refuse(id, session);
      this.answer(session, { community: current, message });
    });
    return undefined;
  }

  onMessage(community: Community, [, id, hex]: unknown[]): Refusal | undefined {
    if (typeof id !== 'string') return refusal('invalid', 'NEG-MSG needs a subscription id');
    const session = this.sessions.get(id);
    if (session === undefined) return this.refuse(id.slice(0, 64), NOT_OPEN);
    if (session.isBusy) return this.end(session, ONE_AT_A_TIME);
    if (typeof hex !== 'string') return this.end(session, refusal('invalid', 'NEG-MSG needs a message'));
    const message = messageIn(hex);
    if (isRefusal(message)) return this.end(session, message);
    this.answer(session, { community, message });
    return undefined;
  }

  onClose(id: unknown): undefined {
    if (typeof id === 'string') this.close(id);
  }

  /** Called about twice a second. */
  review(community: Community): void {
    const nowMs = performance.now();
    for (const session of [...this.sessions.values()]) {
      const why = this.whyClosed(community, session, nowMs);
      if (why !== undefined) this.end(session, why);
    }
  }

  endAll(): void {
    for (const id of [...this.sessions.keys()]) this.close(id);
  }

  private whyClosed(community: Community, session: Session, nowMs: number): Refusal | undefined {
    const seen = this.connection.identity.view(community, [session.asked]);
    if (isRefusal(seen)) return seen;
    if (seen[0]?.view?.key !== session.seen.view?.key) return CHANGED;
    if (!session.isBusy && nowMs - session.usedMs > IDLE_MS_MAX) return TOO_SLOW;
    return nowMs - session.openedMs > SESSION_MS_MAX ? TOO_LONG : undefined;
  }

  private open(community: Community, id: string, input: unknown): Session | Refusal {
    const { settings } = community;
    const max = settings['limits.negentropySessionsMax'];
    if (max === 0) return NEGENTROPY_OFF;
    if (searchCharactersIn([input]) > 0) return NO_SEARCH;
    const filters = parseFilters([input], settings);
    if (isRefusal(filters)) return filters;
    const [asked] = filters as [Filter];
    // An empty one, or one that is too long, is read at once.
    if (asked.search !== undefined) return NO_SEARCH;
    this.slots(community).charge(openingMs(valuesIn(filters)));
    const seen = this.connection.identity.view(community, filters);
    if (isRefusal(seen)) return seen;
    if (this.connection.identity.wouldSeeMore(community, filters)) this.connection.replies.hintAtAuth();
    if (this.sessions.size >= max)
      return refusal('blocked', `more than ${max} open sessions; close some first`);
    if (!this.context.openValues.take(this.connection.client, SESSION_VALUES))
      return refusal('blocked', 'too many sessions are open here; close some, or try later');
    const nowMs = performance.now();
    const session: Session = {
      id,
      asked,
      seen: seen[0]!,
      records: undefined,
      isBusy: false,
      isClosed: false,
      openedMs: nowMs,
      usedMs: nowMs,
    };
    this.sessions.set(id, session);
    return session;
  }

  private answer(session: Session, waiting: Waiting): void {
    session.isBusy = true;
    this.waiting.set(session, waiting);
    if (!this.isAnswering) void this.answerWaiting();
  }

  private async answerWaiting(): Promise<void> {
    this.isAnswering = true;
    // Also those that are added meanwhile.
    for (const [session, waiting] of this.waiting) {
      this.waiting.delete(session);
      await this.respond(session, waiting);
    }
    this.isAnswering = false;
  }

  private async respond(session: Session, { community, message }: Waiting): Promise<void> {
    if (!this.isOpen) return;
    try {
      session.records ??= await this.gather(community, session);
      if (session.records === undefined) {
        const max = community.settings['limits.negentropyRecordsMax'];
        this.end(session, refusal('blocked', `this query is too big: more than ${max} records`));
        return;
      }
      const paced = inTurns(session.records, (ms) => this.slots(community).charge(ms));
      const reply = await respond(message, paced, ANSWER_BYTES_MAX);
      await this.connection.outgoing.room();
      if (session.isClosed) return;
      session.isBusy = false;
      session.usedMs = performance.now();
      this.connection.replies.negentropy(session.id, toHex(reply));
    } catch (error) {
      if (session.isClosed) return;
      const isBad = error instanceof BadMessage;
      this.end(session, isBad ? refusal('invalid', error.message) : readFailure(error, this.context.log));
    }
  }

  /** Undefined when there are too many records. */
  private async gather(community: Community, session: Session): Promise<Records | undefined> {
    const { stored } = this.context;
    const { seen } = session;
    const slots = this.slots(community);
    const query = { community: community.id, filter: seen, now: stored.now(), rules: community };
    if (matchesNothing(seen) || seen.limit === 0) return smallDigest([]);
    // These are few: at most the limit of a REQ, or the values of a filter.
    if (seen.limit !== undefined || seen.ids !== undefined) {
      const limit = seen.limit === undefined ? seen.ids!.size : limitOf(seen, community.settings);
      const cost = recordsCost(seen, limit);
      return smallDigest(await slots.run(cost, (as) => stored.events.find({ ...query, limit }, as)));
    }
    const upTo = await stored.events.head();
    return Digest.build(
      this.pages(community, session, slots, upTo),
      community.settings['limits.negentropyRecordsMax'],
    );
  }

  private pages(community: Community, session: Session, slots: QuerySlots, upTo: Position): ReadPage {
    const { events, now } = this.context.stored;
    // Where a page is expensive, a larger one would run among the heavy queries.
    const isCheap = recordsCost(session.seen, WALK_RECORDS).class === 'medium';
    let spanSeconds: number | undefined;
    return async (lower, upper, most): Promise<RecordsPage> => {
      const limit = isCheap ? most : PAGE_RECORDS;
      const cost = recordsCost(session.seen, limit);
      if (session.isClosed) throw new SessionClosed();
      for (let tries = 1; ; tries += 1) {
        const query = {
          community: community.id,
          filter: session.seen,
          limit,
          now: now(),
          rules: community,
          ...{ upTo, lower, upper, spanSeconds },
        };
        try {
          const found = await slots.run(cost, (as) => events.records(query, as));
          spanSeconds = found.spanSeconds;
          slots.charge(walkingMs(limit));
          return found;
        } catch (error) {
          if (!isCancelled(error) || tries === SPAN_TRIES_MAX) throw error;
          spanSeconds = Math.max(1, Math.floor((spanSeconds ?? SPAN_FACTOR) / SPAN_FACTOR));
        }
      }
    };
  }

  private slots(community: Community): QuerySlots {
    return slotsOf(community, this.connection, this.context, () => !this.isOpen);
  }

  private refuse(id: string, why: Refusal): undefined {
    this.connection.replies.negentropyError(id, why);
  }

  private end(session: Session, why: Refusal): undefined {
    this.close(session.id);
    return this.refuse(session.id, why);
  }

  private close(id: string): void {
    const session = this.sessions.get(id);
    if (session === undefined) return;
    session.isClosed = true;
    session.records = undefined;
    this.sessions.delete(id);
    this.waiting.delete(session);
    this.context.openValues.giveBack(this.connection.client, SESSION_VALUES);
  }

  private get isOpen(): boolean {
    const { ws } = this.connection;
    return ws.readyState === ws.OPEN;
  }
}

class SessionClosed extends Error {}

/** Checked before it waits: as bytes it takes half of the memory, and never more than the bound. */
function messageIn(hex: string): Uint8Array | Refusal {
  if (hex.length > MESSAGE_CHARACTERS_MAX) return refusal('invalid', 'the message is too large');
  try {
    return fromHex(hex);
  } catch (error) {
    if (error instanceof BadMessage) return refusal('invalid', error.message);
    throw error;
  }
}

/** The same records, charged by range. A set in memory is not read, so its ranges wait for nothing else. */
function inTurns(records: Records, charge: (ms: number) => void): Records {
  let ranges = 0;
  const next = async (): Promise<void> => {
    charge(RANGE_MS);
    ranges += 1;
    if (ranges % RANGES_AT_ONCE === 0) await nextTurn();
  };
  return {
    sum: async (...range) => {
      await next();
      return records.sum(...range);
    },
    split: async (...range) => {
      await next();
      return records.split(...range);
    },
    ids: async (...range) => {
      await next();
      return records.ids(...range);
    },
  };
}
