/**
 * The queries of one client (NIP-01, NIP-45): its open subscriptions, the queue of its REQs and COUNTs, and
 * which of the matching events it may see. Subscriptions and waiting queries are bounded (I14).
 */
import { performance } from 'node:perf_hooks';
import type { WebSocket } from 'ws';
import type { Communities, Community } from '../communities/communities.js';
import { serializeEvent } from '../events/rules/event.js';
import {
  type Filter,
  matchesNothing,
  matchFilter,
  parseFilters,
  searchCharactersIn,
  valuesIn,
} from '../events/rules/filter.js';
import {
  changesCost,
  classOf,
  countCost,
  findCost,
  openingMs,
  type QueryClass,
} from '../events/rules/query-cost.js';
import {
  type Completeness,
  countFrame,
  eoseFrame,
  eventFrameHead,
  isRefusal,
  noticeFrame,
  type Refusal,
  refusal,
  tooMany,
} from '../events/rules/reply.js';
import { SEARCH_CHARACTER_MS } from '../limits/costs.js';
import { isNoAnswer } from '../limits/in-time.js';
import type { LoopTurns, TurnClient } from '../limits/loop-turns.js';
import type { Verdict } from '../limits/rates.js';
import type { Work } from '../limits/work.js';
import type { Membership } from '../members/joining.js';
import { KIND_INVITE } from '../members/rules-joining.js';
import type { Log } from '../node/log.js';
import type { Metrics } from '../node/metrics.js';
import {
  CHANGES_LOST,
  type CursorInputs,
  type CursorMaker,
  takeCursor,
  VIEW_CHANGED,
} from './cursors/cursor.js';
import { type FollowContext, followingOf, leaveFanout, sendFollowed } from './cursors/follow.js';
import type { Fanout } from './fanout.js';
import type { Identity } from './identity.js';
import type { Client } from './input/incoming.js';
import { type OpenValues, weightOf } from './open-values.js';
import type { Outgoing } from './outgoing.js';
import type { QueryGate } from './query-gate.js';
import { slotsOf } from './query-slots.js';
import { CANNOT_READ, readFailure, SEARCH_BEHIND, SEARCH_OUTDATED } from './read-failure.js';
import type { Replies } from './replies.js';
import { countedUse, type SearchUse } from './search-use.js';
import {
  limitOf,
  nowSeconds,
  type QuerySlots,
  type StoredContext,
  StoredRead,
  sendStored,
} from './stored.js';
import { type Following, Subscription } from './subscription.js';

/** Queries of one client that wait in its queue. */
const QUERIES_WAITING_MAX = 256;
/** Of an id that is too long, which may be as long as a message, so much is in the answer. */
const ID_ECHOED_MAX = 256;

export interface QueriesContext {
  readonly communities: Communities;
  readonly fanout: Fanout;
  readonly stored: StoredContext;
  /** For subscriptions with a cursor. */
  readonly changes: FollowContext['events'];
  readonly cursors: CursorMaker;
  readonly searchUse: SearchUse;
  readonly membership: Membership;
  readonly openValues: OpenValues;
  readonly gate: QueryGate;
  readonly turns: LoopTurns;
  /** What clients make this process do, charged to their address (I18). */
  readonly work: Work;
  readonly metrics: Metrics;
  readonly log: Log;
}

/** What the queries of a client need from its connection. */
export interface QueryConnection {
  readonly ws: WebSocket;
  readonly client: Client;
  /** Whose turns on the event loop it uses. */
  readonly turnClient: TurnClient;
  readonly identity: Identity;
  readonly outgoing: Outgoing;
  readonly replies: Replies;
  /** Continues when the query rate limit is checked; later frames wait for that. */
  readonly judge: (community: Community, goOn: (verdict: Verdict) => void) => void;
}

export class ClientQueries {
  private readonly subscriptions = new Map<string, Subscription>();
  private queriesWaiting = 0;
  /** Values in the filters of its COUNTs that wait. */
  private counting = 0;
  /** A light query does not wait behind a heavy one of the same client either. */
  private readonly queries: Record<QueryClass, Promise<void>> = {
    light: Promise.resolve(),
    medium: Promise.resolve(),
    heavy: Promise.resolve(),
    search: Promise.resolve(),
  };
  /** When the database last did not answer a query of this client. */
  private unansweredMs = Number.NEGATIVE_INFINITY;

  constructor(
    private readonly connection: QueryConnection,
    private readonly context: QueriesContext,
  ) {}

  onReq(community: Community, message: unknown[]): Refusal | undefined {
    return this.onQuery(community, message, (current, id, filters) => this.subscribe(current, id, filters));
  }

  onCount(community: Community, message: unknown[]): Refusal | undefined {
    return this.onQuery(community, message, (current, id, { asked }) => this.count(current, id, asked));
  }

  /** What the client may see has changed. */
  review(community: Community): void {
    for (const subscription of [...this.subscriptions.values()])
      this.reviewSubscription(community, subscription);
  }

  onClose(id: unknown): Refusal | undefined {
    if (typeof id !== 'string') return refusal('invalid', 'CLOSE needs a subscription id');
    this.unsubscribe(id);
    return undefined;
  }

  /** What REQ and COUNT have in common: a usable id, the rate, and filters that pass. */
  private onQuery(
    community: Community,
    [verb, id, ...inputs]: unknown[],
    run: (community: Community, id: string, filters: Filters) => void,
  ): Refusal | undefined {
    if (!this.isOpen) return undefined;
    const { settings } = community;
    const lengthMax = settings['limits.subscriptionIdLengthMax'];
    if (typeof id !== 'string' || id === '')
      return refusal('invalid', 'a subscription id must be a non-empty string');
    const refuse = (why: Refusal): undefined => {
      if (verb === 'REQ') this.unsubscribe(id);
      this.connection.replies.closed(id, why);
    };
    if (id.length > lengthMax) {
      const why = refusal('invalid', `subscription id is longer than ${lengthMax} characters`);
      this.connection.replies.closed(id.slice(0, ID_ECHOED_MAX), why);
      return undefined;
    }
    this.connection.judge(community, ({ allowed, retryAfterMs }) => {
      // The client may have disconnected while its rate limit was checked.
      if (!this.isOpen) return;
      if (!allowed) return refuse(tooMany('queries', retryAfterMs));
      const current = this.current(community);
      const taken = verb === 'REQ' ? takeCursor(inputs) : { inputs, cursor: undefined };
      if (isRefusal(taken)) return refuse(taken);
      const filters = this.readFilters(current, taken);
      if (isRefusal(filters)) return refuse(filters);
      run(current, id, filters);
    });
    return undefined;
  }

  private readFilters(community: Community, { inputs, cursor }: CursorInputs): Filters | Refusal {
    this.slots(community).charge(searchCharactersIn(inputs) * SEARCH_CHARACTER_MS);
    const filters = parseFilters(inputs, community.settings);
    if (isRefusal(filters)) return filters;
    this.slots(community).charge(openingMs(valuesIn(filters)));
    if (this.queriesWaiting >= QUERIES_WAITING_MAX) {
      return refusal('rate-limited', 'too many queries are waiting, slow down');
    }
    const seen = this.connection.identity.view(community, filters);
    if (isRefusal(seen)) return seen;
    if (this.connection.identity.wouldSeeMore(community, filters)) this.connection.replies.hintAtAuth();
    return { seen, asked: filters, cursor };
  }

  private subscribe(community: Community, id: string, { seen, asked, cursor }: Filters): void {
    this.unsubscribe(id);
    const following = cursor === undefined ? undefined : this.openCursor(community, seen, cursor);
    if (isRefusal(following)) {
      this.connection.replies.closed(id, following);
      return;
    }
    const max = community.settings['limits.subscriptionsMax'];
    if (this.subscriptions.size >= max) {
      this.connection.replies.closed(
        id,
        refusal('rate-limited', `more than ${max} open subscriptions; close some first`),
      );
      return;
    }
    const full = this.takeValues(community, asked);
    if (full !== undefined) {
      this.connection.replies.closed(id, full);
      return;
    }
    const { fanout, metrics } = this.context;
    const subscription = new Subscription(
      id,
      seen,
      asked,
      fanout.head,
      this.connection.outgoing,
      (overflown) => {
        this.drop(
          overflown,
          refusal('error', 'more new events than can wait while stored ones are sent; ask again'),
        );
      },
      following,
    );
    this.subscriptions.set(id, subscription);
    if (following === undefined) fanout.index(this.connection.client.community).add(subscription, seen);
    metrics.subscriptions.inc();
    const { settings } = community;
    const kind =
      following?.from === undefined
        ? classOf(seen.map((filter) => findCost(filter, limitOf(filter, settings))))
        : changesCost(Math.max(0, fanout.head - following.from.seq)).class;
    void this.enqueue(
      kind,
      () => this.load(community, subscription, kind),
      (why) => this.drop(subscription, why),
    );
  }

  /** The memory of filters: of open subscriptions, and of COUNTs that wait (I14). */
  private takeValues(community: Community, filters: readonly Filter[]): Refusal | undefined {
    const max = community.settings['limits.subscriptionValuesMax'];
    const open = [...this.subscriptions.values()].reduce((sum, each) => sum + each.values, this.counting);
    if (open + valuesIn(filters) > max) {
      const why = `more than ${max} values in the filters of all subscriptions; close some first`;
      return refusal('rate-limited', why);
    }
    if (this.context.openValues.take(this.connection.client, weightOf(filters))) return undefined;
    return refusal('rate-limited', 'too many filters are open here; close some, or try later');
  }

  private async load(community: Community, subscription: Subscription, kind: QueryClass): Promise<void> {
    if (subscription.ended) return;
    const { stored, metrics } = this.context;
    const done = metrics.request.startTimer();
    const refused = await this.counted(community, subscription.filters, async () => {
      const read = new StoredRead(stored, community, this.slots(community), kind);
      const sendFirst = async (): Promise<Completeness> => {
        const { sent, hint } = await sendStored(read, subscription, this.connection.outgoing);
        metrics.rowsServed.inc(sent);
        await this.offerInvite(community, subscription);
        return hint;
      };
      const end =
        subscription.following === undefined
          ? { hint: await sendFirst(), cursor: undefined }
          : await sendFollowed(this.followContext(kind), community, subscription, sendFirst);
      if (isRefusal(end)) return this.drop(subscription, end);
      if (subscription.ended) return;
      if (read.behind > 0) this.connection.outgoing.send(noticeFrame(SEARCH_BEHIND));
      if (read.isOutdated) this.connection.outgoing.send(noticeFrame(SEARCH_OUTDATED));
      this.connection.outgoing.send(eoseFrame(subscription.id, end.hint, end.cursor));
      subscription.goLive(nowSeconds(stored.now));
    });
    if (refused !== undefined) this.drop(subscription, refused);
    done();
  }

  private openCursor(community: Community, seen: readonly Filter[], cursor: string): Following | Refusal {
    const { cursors, changes } = this.context;
    const access = this.connection.identity.access(community);
    const onLost = (lost: Subscription) => this.drop(lost, CHANGES_LOST);
    return followingOf({ cursors, events: changes, access, onLost }, community, seen, cursor);
  }

  private followContext(kind: QueryClass): FollowContext {
    const { changes: events, fanout, metrics, stored } = this.context;
    const { outgoing } = this.connection;
    return { events, fanout, metrics, outgoing, kind, now: stored.now, slots: (of) => this.slots(of) };
  }

  /** NIP-43: an invite is created on request, for a client that queries its kind and may have one. */
  private async offerInvite(community: Community, { id, asked }: Subscription): Promise<void> {
    const { pubkeys } = this.connection.identity;
    const wanted = asked.filter(({ kinds }) => kinds?.has(KIND_INVITE));
    if (wanted.length === 0 || pubkeys.size === 0) return;
    const event = await this.context.membership.offer(community, pubkeys);
    if (event === undefined || !wanted.some((filter) => matchFilter(filter, event))) return;
    this.connection.outgoing.sendEvent(Buffer.from(eventFrameHead(id)), Buffer.from(serializeEvent(event)));
  }

  /**
   * A search of an authenticated client counts against the plan of its first key that has rights. A search
   * that fails is not counted.
   */
  private counted(
    community: Community,
    filters: readonly Filter[],
    work: () => Promise<void>,
  ): Promise<Refusal | undefined> {
    const [pubkey] = this.connection.identity.access(community).consented;
    const payer = filters.some(({ search }) => search !== undefined) ? pubkey : undefined;
    const failed = (error: unknown) => this.readFailure(error);
    return countedUse(this.context.searchUse, { community: community.id, payer }, work, failed);
  }

  private count(community: Community, id: string, filters: Filter[]): void {
    const { stored } = this.context;
    const max = community.settings['limits.countMax'];
    const refuse = (why: Refusal): void => this.connection.replies.closed(id, why);
    const values = valuesIn(filters);
    const full = this.takeValues(community, filters);
    if (full !== undefined) {
      refuse(full);
      return;
    }
    this.counting += values;
    const kind = classOf(filters.map((filter) => countCost(filter, max)));
    const query = async () => {
      // The query may have waited, and rights may have ended meanwhile.
      const seen = this.connection.identity.view(this.current(community), filters);
      if (isRefusal(seen)) return refuse(seen);
      const refused = await this.counted(community, seen, async () => {
        const possible = seen.filter((filter) => !matchesNothing(filter));
        const read = new StoredRead(stored, community, this.slots(community), kind);
        const count = await read.count(possible, max);
        this.connection.outgoing.send(
          countFrame(id, Math.min(count, max), count > max || read.behind > 0 || read.isOutdated),
        );
      });
      if (refused !== undefined) refuse(refused);
    };
    void this.enqueue(kind, query, refuse).finally(() => {
      this.counting -= values;
      this.context.openValues.giveBack(this.connection.client, weightOf(filters));
    });
  }

  private readFailure(error: unknown): Refusal {
    if (isNoAnswer(error)) this.unansweredMs = performance.now();
    return readFailure(error, this.context.log);
  }

  /** The slots of its queries. Only the read holds one: sending to a slow reader delays nobody else. */
  private slots(community: Community): QuerySlots {
    return slotsOf(community, this.connection, this.context, () => !this.isOpen);
  }

  /**
   * Runs one query of a client and class at a time, so that many queries of one client do not delay other
   * clients.
   */
  private enqueue(
    kind: QueryClass,
    query: () => Promise<void>,
    refuse: (why: Refusal) => void,
  ): Promise<void> {
    this.queriesWaiting += 1;
    const askedMs = performance.now();
    const run = async () => {
      // A client that has disconnected waits for nothing.
      if (!this.isOpen) return;
      // The database did not answer the query before: this one does not wait as long again (I15).
      if (askedMs <= this.unansweredMs) refuse(CANNOT_READ);
      else await query();
    };
    this.queries[kind] = this.queries[kind].then(run).finally(() => {
      this.queriesWaiting -= 1;
    });
    return this.queries[kind];
  }

  private drop(subscription: Subscription, why: Refusal): void {
    if (subscription.ended) return;
    this.unsubscribe(subscription.id);
    this.connection.replies.closed(subscription.id, why);
  }

  private unsubscribe(id: string): void {
    const subscription = this.subscriptions.get(id);
    if (subscription === undefined) return;
    subscription.end();
    this.subscriptions.delete(id);
    const { fanout, openValues } = this.context;
    openValues.giveBack(this.connection.client, subscription.weight);
    fanout.index(this.connection.client.community).remove(subscription);
    if (subscription.following !== undefined)
      leaveFanout(fanout, this.connection.client.community, subscription);
    this.context.metrics.subscriptions.dec();
  }

  endAll(): void {
    for (const id of [...this.subscriptions.keys()]) this.unsubscribe(id);
  }

  private reviewSubscription(community: Community, subscription: Subscription): void {
    const seen = this.connection.identity.view(community, subscription.asked);
    if (isRefusal(seen)) {
      this.drop(subscription, seen);
      return;
    }
    if (seen.every((filter, place) => filter.view?.key === subscription.filters[place]?.view?.key)) return;
    // What a client holds of events that it saw before is not known here.
    if (subscription.following !== undefined) {
      this.drop(subscription, VIEW_CHANGED);
      return;
    }
    if (subscription.loading) {
      this.drop(subscription, refusal('error', 'what you may see has changed; ask again'));
      return;
    }
    const index = this.context.fanout.index(this.connection.client.community);
    index.remove(subscription);
    subscription.filters = seen;
    index.add(subscription, seen);
  }

  private get isOpen(): boolean {
    const { ws } = this.connection;
    return ws.readyState === ws.OPEN;
  }

  /** The rules may have changed while a rate limit was checked. */
  private current(community: Community): Community {
    return this.context.communities.get(community.id) ?? community;
  }
}

/** The filters as the client sent them, and with what it may see of them. */
interface Filters {
  readonly asked: Filter[];
  readonly seen: Filter[];
  readonly cursor: string | undefined;
}
