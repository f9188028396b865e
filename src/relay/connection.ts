/**
 * One client: its frames in, its replies out (NIP-01, NIP-45). Everything it can make us hold is bounded (I14): events
 * under way, queries waiting, subscriptions, and unread replies; past a bound its socket is not read any further.
 */
import { performance } from 'node:perf_hooks';
import type { Duplex } from 'node:stream';
import type { WebSocket } from 'ws';
import type { Admission } from '../admission.js';
import type { ClientAddress } from '../client-address.js';
import type { Communities, Community } from '../communities.js';
import type { Access } from '../core/access.js';
import { isKeptOut } from '../core/blocks.js';
import { serializeEvent } from '../core/event.js';
import { type Filter, matchesNothing, matchFilter, parseFilters, valuesIn } from '../core/filter.js';
import { isMembershipRequest, KIND_INVITE } from '../core/joining.js';
import {
  type Accepted,
  authFrame,
  closedFrame,
  countFrame,
  eoseFrame,
  eventFrameHead,
  isRefusal,
  NEGENTROPY_DISABLED,
  negErrFrame,
  noticeFrame,
  okFrame,
  type Refusal,
  refusal,
  tooMany,
} from '../core/reply.js';
import { isNoAnswer } from '../in-time.js';
import { rateKey } from '../limits/keys.js';
import type { Rates, Verdict } from '../limits/rates.js';
import type { Log } from '../log.js';
import type { Membership } from '../membership.js';
import type { Metrics } from '../metrics.js';
import type { Fanout } from './fanout.js';
import { Identity, type IdentityContext } from './identity.js';
import { eventIdOf, type Frame, kindOf } from './incoming.js';
import type { FrameSource, Intake } from './intake.js';
import type { OpenValues } from './open-values.js';
import { Outgoing } from './outgoing.js';
import type { QueryGate } from './query-gate.js';
import { CANNOT_READ, readFailure, SEARCH_BEHIND, SEARCH_OUTDATED } from './read-failure.js';
import { countedUse, type SearchUse } from './search-use.js';
import { Asking, nowSeconds, type StoredContext, sendStored } from './stored.js';
import { Subscription } from './subscription.js';

/** Events of one client between arrival and OK. */
const EVENTS_UNDER_WAY_MAX = 256;
/** Frames of one client that wait to be worked on: what one read of its socket brings, and a little more. */
const FRAMES_WAITING_MAX = 256;
const FRAMES_WAITING_BYTES_MAX = 262_144;
/** Queries of one client that wait for their turn. */
const QUERIES_WAITING_MAX = 256;
const SUBSCRIPTION_ID_SHOWN_MAX = 256;
const CLOSE_GOING_AWAY = 1_001;
const CLOSE_POLICY = 1_008;

export interface ConnectionContext extends IdentityContext {
  readonly admission: Admission;
  readonly communities: Communities;
  readonly fanout: Fanout;
  readonly stored: StoredContext;
  readonly rates: Rates;
  readonly searchUse: SearchUse;
  readonly membership: Membership;
  readonly openValues: OpenValues;
  readonly gate: QueryGate;
  readonly intake: Intake;
  readonly metrics: Metrics;
  readonly log: Log;
}

export interface Client extends ClientAddress {
  readonly community: number;
}

export class Connection implements FrameSource {
  private readonly outgoing: Outgoing;
  private readonly identity: Identity;
  private readonly frames: Frame[] = [];
  private framesBytes = 0;
  private readonly subscriptions = new Map<string, Subscription>();
  private eventsUnderWay = 0;
  private queriesWaiting = 0;
  private queries: Promise<void> = Promise.resolve();
  /** When the database last did not answer a query of this client. */
  private unansweredMs = Number.NEGATIVE_INFINITY;
  private paused = false;
  private awaitingRoom = false;
  /** The next frame waits for what the last one began. */
  private held = false;
  private reviewed: Reviewed | undefined;
  private challenged = false;
  private alive = true;

  constructor(
    private readonly ws: WebSocket,
    socket: Duplex,
    private readonly client: Client,
    private readonly context: ConnectionContext,
  ) {
    this.outgoing = new Outgoing(ws, socket, context.metrics);
    this.identity = new Identity(client.community, context);
    const community = context.communities.get(client.community);
    // Whether it has to authenticate is settled from now on, not at its first frame.
    if (community !== undefined) this.identity.access(community);
    if (community?.settings['auth.mode'] === 'required') this.challenge();
    ws.on('message', (data: Buffer, isBinary: boolean) => {
      this.frames.push({ data, isBinary });
      this.framesBytes += data.length;
      context.intake.add(this);
      this.regulate();
    });
    ws.on('pong', () => {
      this.alive = true;
    });
    ws.on('ping', (data: Buffer) => {
      this.outgoing.pong(data);
      this.regulate();
    });
    // Events that it sent before it went are still taken.
    ws.on('close', () => {
      this.endAll();
      this.identity.leave();
    });
    // The close that follows says the same; without a listener an oversized frame would end the process.
    ws.on('error', (error) => context.log.debug({ error: String(error) }, 'socket error'));
  }

  /** Called at each heartbeat: a socket that did not pong since the last one is gone. */
  ping(): void {
    // Its pong would wait unread. What it is paused for has a bound of its own.
    if (this.paused) return;
    if (this.alive) this.ws.ping();
    else this.ws.terminate();
    this.alive = false;
  }

  close(code: number, why: string): void {
    this.outgoing.close(code, why);
  }

  /** At a shutdown: a client that was cut off comes back, one that was told goodbye may not. */
  cut(): void {
    this.outgoing.cut();
  }

  takeFrame(): boolean {
    if (this.held) return false;
    const frame = this.frames.shift();
    if (frame === undefined) return false;
    this.framesBytes -= frame.data.length;
    this.onMessage(frame);
    return this.frames.length > 0 && !this.held;
  }

  /** Frames that come meanwhile are worked on afterwards, in their order. */
  private async holdFor(work: Promise<void>): Promise<void> {
    this.held = true;
    try {
      await work;
    } catch (error) {
      this.context.log.error({ error: String(error) }, 'a frame could not be worked on');
    }
    this.held = false;
    this.context.intake.add(this);
    this.regulate();
  }

  /**
   * Called about twice a second: what a client may no longer see ends now (a right that ended, a topic that is no longer
   * carried, a mode that changed), and one that must authenticate and does not, or whose address was blocked, is closed.
   */
  review(): void {
    const community = this.context.communities.get(this.client.community);
    if (community === undefined) {
      this.close(CLOSE_GOING_AWAY, 'this community is gone');
      return;
    }
    if (isKeptOut(community.blocks, this.client)) {
      this.close(CLOSE_POLICY, 'blocked: the operator has blocked this address');
      return;
    }
    if (this.identity.isOverdue(community)) {
      this.close(CLOSE_POLICY, 'auth-required: not authenticated in time');
      return;
    }
    const access = this.identity.access(community);
    if (this.reviewed?.access === access && this.reviewed.community === community) return;
    this.reviewed = { access, community };
    for (const subscription of [...this.subscriptions.values()])
      this.reviewSubscription(community, subscription);
  }

  private reviewSubscription(community: Community, subscription: Subscription): void {
    const seen = this.identity.view(community, subscription.asked);
    if (isRefusal(seen)) {
      this.drop(subscription, seen);
      return;
    }
    if (seen.every((filter, place) => filter.view?.key === subscription.filters[place]?.view?.key)) return;
    if (subscription.loading) {
      this.drop(subscription, refusal('error', 'what you may see has changed; ask again'));
      return;
    }
    const index = this.context.fanout.index(this.client.community);
    index.remove(subscription);
    subscription.filters = seen;
    index.add(subscription, seen);
    index.settle(subscription);
  }

  private onMessage({ data, isBinary }: Frame): void {
    this.context.metrics.bytesIn.inc(data.length);
    const community = this.context.communities.get(this.client.community);
    if (community === undefined) {
      this.close(CLOSE_GOING_AWAY, 'this community is gone');
      return;
    }
    const problem = isBinary
      ? refusal('invalid', 'frames must be text')
      : this.onText(community, data, community.settings['limits.messageBytesMax']);
    if (problem !== undefined) this.outgoing.send(noticeFrame(problem));
    this.regulate();
  }

  private onText(community: Community, data: Buffer, bytesMax: number): Refusal | undefined {
    if (data.length > bytesMax) return refusal('invalid', `message is larger than ${bytesMax} bytes`);
    let message: unknown;
    try {
      message = JSON.parse(data.toString());
    } catch {
      return refusal('invalid', 'message is not JSON');
    }
    if (!Array.isArray(message)) return refusal('invalid', 'message must be a JSON array');
    switch (message[0]) {
      case 'EVENT':
        return this.onEvent(community, message[1]);
      case 'REQ':
        return this.onQuery(community, message, (current, id, filters) =>
          this.subscribe(current, id, filters),
        );
      case 'COUNT':
        return this.onQuery(community, message, (current, id, { asked }) => this.count(current, id, asked));
      case 'CLOSE':
        return this.onClose(message[1]);
      case 'AUTH':
        return this.onAuth(community, message[1]);
      case 'NEG-OPEN':
      case 'NEG-MSG':
        return this.refuseNegentropy(message[1]);
      // Nothing is open that it could close; and some clients ping in this way, and expect nothing.
      case 'NEG-CLOSE':
      case 'PING':
        return undefined;
      default:
        return refusal('invalid', 'unknown message type; this relay knows EVENT, REQ, COUNT, CLOSE and AUTH');
    }
  }

  /**
   * NIP-42, the same challenge each time. Where nobody has to authenticate, only with an answer that needs it: there are
   * clients that stop working on a challenge they do not expect, and some that miss one which comes with the handshake.
   */
  private challenge(): void {
    this.challenged = true;
    this.outgoing.send(authFrame(this.identity.challenge));
  }

  private sendOk(id: string, outcome: Accepted | Refusal): void {
    if (isRefusal(outcome) && outcome.refused === 'auth-required') this.challenge();
    this.outgoing.send(okFrame(id, outcome));
  }

  private sendClosed(id: string, why: Refusal): void {
    if (why.refused === 'auth-required') this.challenge();
    this.outgoing.send(closedFrame(id, why));
  }

  /** NIP-77 is not spoken here: both answers, since clients wait for one or the other. */
  private refuseNegentropy(id: unknown): Refusal | undefined {
    if (typeof id !== 'string') return refusal('invalid', 'NEG-OPEN needs a subscription id');
    this.outgoing.send(negErrFrame(id.slice(0, SUBSCRIPTION_ID_SHOWN_MAX)));
    this.outgoing.send(NEGENTROPY_DISABLED);
    return undefined;
  }

  private onEvent(community: Community, input: unknown): Refusal | undefined {
    const id = eventIdOf(input);
    if (id === undefined) return refusal('invalid', 'EVENT needs an event with an id');
    this.judge(this.mayGoOn(community, 'events'), ({ allowed, retryAfterMs }) => {
      if (allowed) return this.admit(this.current(community), id, input);
      this.context.metrics.events.inc({ outcome: 'rate-limited' });
      this.sendOk(id, tooMany('events', retryAfterMs));
    });
    return undefined;
  }

  private admit(community: Community, id: string, input: unknown): void {
    this.eventsUnderWay += 1;
    const sender = { access: this.identity.access(community), exempt: this.isExempt(community) };
    const { admission, membership } = this.context;
    const admitted: Promise<Accepted | Refusal> = isMembershipRequest(kindOf(input))
      ? admission.request(community, input, sender, (event) => membership.take(community, event))
      : admission.admit(community, input, sender);
    void admitted.then((outcome) => {
      this.eventsUnderWay -= 1;
      this.sendOk(id, outcome);
      this.regulate();
    });
  }

  /** What REQ and COUNT have in common: a usable id, the rate, and filters that pass. */
  private onQuery(
    community: Community,
    [verb, id, ...inputs]: unknown[],
    run: (community: Community, id: string, filters: Filters) => void,
  ): Refusal | undefined {
    if (this.ws.readyState !== this.ws.OPEN) return undefined;
    const { settings } = community;
    const lengthMax = settings['limits.subscriptionIdLengthMax'];
    if (typeof id !== 'string' || id === '')
      return refusal('invalid', 'a subscription id must be a non-empty string');
    const refuse = (why: Refusal): undefined => {
      if (verb === 'REQ') this.unsubscribe(id);
      this.sendClosed(id, why);
    };
    if (id.length > lengthMax) {
      return refuse(refusal('invalid', `subscription id is longer than ${lengthMax} characters`));
    }
    this.judge(this.mayGoOn(community, 'queries'), ({ allowed, retryAfterMs }) => {
      // It may have gone while the verdict was awaited.
      if (this.ws.readyState !== this.ws.OPEN) return;
      if (!allowed) return refuse(tooMany('queries', retryAfterMs));
      const current = this.current(community);
      const filters = this.readFilters(current, inputs);
      if (isRefusal(filters)) return refuse(filters);
      run(current, id, filters);
    });
    return undefined;
  }

  private readFilters(community: Community, inputs: unknown[]): Filters | Refusal {
    const filters = parseFilters(inputs, community.settings);
    if (isRefusal(filters)) return filters;
    if (this.queriesWaiting >= QUERIES_WAITING_MAX) {
      return refusal('rate-limited', 'too many queries are waiting, slow down');
    }
    const seen = this.identity.view(community, filters);
    if (isRefusal(seen)) return seen;
    if (!this.challenged && this.identity.wouldSeeMore(community, filters)) this.challenge();
    return { seen, asked: filters };
  }

  private subscribe(community: Community, id: string, { seen, asked }: Filters): void {
    this.unsubscribe(id);
    const max = community.settings['limits.subscriptionsMax'];
    if (this.subscriptions.size >= max) {
      this.sendClosed(id, refusal('rate-limited', `more than ${max} open subscriptions; close some first`));
      return;
    }
    const own = valuesIn(asked);
    const values = [...this.subscriptions.values()].reduce((sum, open) => sum + open.values, own);
    const valuesMax = community.settings['limits.subscriptionValuesMax'];
    if (values > valuesMax) {
      const why = `more than ${valuesMax} values in the filters of all subscriptions; close some first`;
      this.sendClosed(id, refusal('rate-limited', why));
      return;
    }
    const { fanout, metrics, openValues } = this.context;
    if (!openValues.take(this.client, own)) {
      this.sendClosed(
        id,
        refusal('rate-limited', 'too many filters are open here; close some, or try later'),
      );
      return;
    }
    const subscription = new Subscription(id, seen, asked, fanout.head, this.outgoing, (overflown) => {
      this.drop(
        overflown,
        refusal('error', 'more new events than can wait while stored ones are sent; ask again'),
      );
    });
    this.subscriptions.set(id, subscription);
    fanout.index(this.client.community).add(subscription, seen);
    metrics.subscriptions.inc();
    this.enqueue(
      () => this.load(community, subscription),
      (why) => this.drop(subscription, why),
    );
  }

  private async load(community: Community, subscription: Subscription): Promise<void> {
    if (subscription.ended) return;
    const { stored, metrics } = this.context;
    const done = metrics.request.startTimer();
    const refused = await this.counted(community, subscription.filters, async () => {
      const asking = new Asking(stored, community, this.ask);
      metrics.rowsServed.inc(await sendStored(asking, subscription, this.outgoing));
      await this.offerInvite(community, subscription);
      if (subscription.ended) return;
      if (asking.behind > 0) this.outgoing.send(noticeFrame(SEARCH_BEHIND));
      if (asking.isOutdated) this.outgoing.send(noticeFrame(SEARCH_OUTDATED));
      this.outgoing.send(eoseFrame(subscription.id));
      subscription.goLive(nowSeconds(stored.now));
      this.context.fanout.index(this.client.community).settle(subscription);
    });
    if (refused !== undefined) this.drop(subscription, refused);
    done();
  }

  /** NIP-43: an invite is made on the fly for one who asks for it by its kind, and may have it. */
  private async offerInvite(community: Community, { id, asked }: Subscription): Promise<void> {
    const { pubkeys } = this.identity;
    const wanted = asked.filter(({ kinds }) => kinds?.has(KIND_INVITE));
    if (wanted.length === 0 || pubkeys.size === 0) return;
    const event = await this.context.membership.offer(community, pubkeys);
    if (event === undefined || !wanted.some((filter) => matchFilter(filter, event))) return;
    this.outgoing.sendEvent(Buffer.from(eventFrameHead(id)), Buffer.from(serializeEvent(event)));
  }

  /** A search of one who has authenticated is one use of the plan of the first key that lends rights; given back when nothing came of it. */
  private counted(
    community: Community,
    filters: readonly Filter[],
    work: () => Promise<void>,
  ): Promise<Refusal | undefined> {
    const [pubkey] = this.identity.access(community).consented;
    const payer = filters.some(({ search }) => search !== undefined) ? pubkey : undefined;
    const failed = (error: unknown) => this.readFailure(error);
    return countedUse(this.context.searchUse, { community: community.id, payer }, work, failed);
  }

  private count(community: Community, id: string, filters: Filter[]): void {
    const { stored } = this.context;
    const max = community.settings['limits.countMax'];
    const refuse = (why: Refusal): void => this.sendClosed(id, why);
    this.enqueue(async () => {
      // It may have waited, and rights may have ended meanwhile.
      const seen = this.identity.view(this.current(community), filters);
      if (isRefusal(seen)) return refuse(seen);
      const refused = await this.counted(community, seen, async () => {
        const possible = seen.filter((filter) => !matchesNothing(filter));
        const asking = new Asking(stored, community, this.ask);
        const count = await asking.count(possible, max);
        this.outgoing.send(
          countFrame(id, Math.min(count, max), count > max || asking.behind > 0 || asking.isOutdated),
        );
      });
      if (refused !== undefined) refuse(refused);
    }, refuse);
  }

  private readFailure(error: unknown): Refusal {
    if (isNoAnswer(error)) this.unansweredMs = performance.now();
    return readFailure(error, this.context.log);
  }

  /** In its turn among all clients. Only the asking: sending the answer to a slow reader holds up nobody. */
  private readonly ask = <T>(query: () => Promise<T>): Promise<T> =>
    this.context.gate.run(this.client, query);

  /** One query of a client at a time, so that many of one client do not stand in the way of the others'. */
  private enqueue(query: () => Promise<void>, refuse: (why: Refusal) => void): void {
    this.queriesWaiting += 1;
    const askedMs = performance.now();
    const run = async () => {
      // A client that is gone waits for nothing.
      if (this.ws.readyState !== this.ws.OPEN) return;
      // What waited behind a query that was not answered does not wait as long again (I15).
      if (askedMs <= this.unansweredMs) refuse(CANNOT_READ);
      else await query();
    };
    this.queries = this.queries.then(run).finally(() => {
      this.queriesWaiting -= 1;
    });
  }

  private onClose(id: unknown): Refusal | undefined {
    if (typeof id !== 'string') return refusal('invalid', 'CLOSE needs a subscription id');
    this.unsubscribe(id);
    return undefined;
  }

  private onAuth(community: Community, input: unknown): Refusal | undefined {
    const id = eventIdOf(input);
    if (id === undefined) return refusal('invalid', 'AUTH needs a signed event with an id');
    void this.holdFor(this.authenticate(community, id, input));
    return undefined;
  }

  private async authenticate(community: Community, id: string, input: unknown): Promise<void> {
    let refused: Refusal | undefined;
    try {
      const { allowed, retryAfterMs } = await this.mayGoOn(community, 'queries');
      if (!allowed) refused = tooMany('tries', retryAfterMs);
      else refused = await this.identity.authenticate(community, input, this.isExempt(community));
    } catch (error) {
      this.context.log.warn({ error: String(error) }, 'a client could not be authenticated');
      refused = refusal('error', 'failed to authenticate, try again in a moment');
    }
    this.sendOk(id, refused ?? 'authenticated');
  }

  private mayGoOn(community: Community, what: 'events' | 'queries'): Verdict | Promise<Verdict> {
    const { settings } = community;
    const keys = this.isExempt(community) ? [] : this.keysOf(community, what);
    const { rates, now } = this.context;
    return rates.takeAll(keys, settings[`rate.${what}PerSecond`], settings[`rate.${what}Burst`], now());
  }

  /** A verdict may have been waited for, and the rules may have changed meanwhile. */
  private current(community: Community): Community {
    return this.context.communities.get(community.id) ?? community;
  }

  private isExempt({ settings }: Community): boolean {
    return this.client.isLoopback && settings['rate.exemptLoopback'];
  }

  /** Whose buckets pay. */
  private keysOf({ id }: Community, what: 'events' | 'queries'): string[] {
    const address = rateKey(id, what, this.client.rateKey);
    // The author of an event pays once its signature is checked (admission.ts).
    if (what === 'events') return [address];
    return [address, ...[...this.identity.pubkeys].map((pubkey) => rateKey(id, what, pubkey))];
  }

  /** At once when the verdict is at hand; else this client's frames wait for it, in their order, and nobody else's do. */
  private judge(verdict: Verdict | Promise<Verdict>, goOn: (verdict: Verdict) => void): void {
    if (!(verdict instanceof Promise)) {
      goOn(verdict);
      return;
    }
    void this.holdFor(verdict.then(goOn));
  }

  private drop(subscription: Subscription, why: Refusal): void {
    if (subscription.ended) return;
    this.unsubscribe(subscription.id);
    this.sendClosed(subscription.id, why);
  }

  private unsubscribe(id: string): void {
    const subscription = this.subscriptions.get(id);
    if (subscription === undefined) return;
    subscription.end();
    this.subscriptions.delete(id);
    this.context.openValues.giveBack(this.client, subscription.values);
    this.context.fanout.index(this.client.community).remove(subscription);
    this.context.metrics.subscriptions.dec();
  }

  private endAll(): void {
    for (const id of [...this.subscriptions.keys()]) this.unsubscribe(id);
  }

  /** Stops reading while the client has too much under way or does not read its replies; goes on when it has not. */
  private regulate(): void {
    const { behind } = this.outgoing;
    if (behind && !this.awaitingRoom) {
      this.awaitingRoom = true;
      void this.outgoing.room().then(() => {
        this.awaitingRoom = false;
        this.regulate();
      });
    }
    const full =
      behind ||
      this.eventsUnderWay >= EVENTS_UNDER_WAY_MAX ||
      this.frames.length >= FRAMES_WAITING_MAX ||
      this.framesBytes >= FRAMES_WAITING_BYTES_MAX;
    if (full === this.paused) return;
    this.paused = full;
    if (full) this.ws.pause();
    else {
      // A pong may have waited unread.
      this.alive = true;
      this.ws.resume();
    }
  }
}

/** What was asked, and what of it the client may see. */
interface Filters {
  readonly asked: Filter[];
  readonly seen: Filter[];
}

interface Reviewed {
  readonly access: Access;
  readonly community: Community;
}
