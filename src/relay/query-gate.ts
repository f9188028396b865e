/**
 * Runs the queries of clients, bounded and fair (I14, I18). Each class of queries
 * (events/rules/query-cost.ts) has slots and sessions of its own, so that a light query never waits behind a
 * more expensive one. A query that looked light or medium and is cancelled by the short time limit of its
 * class runs once more among the heavy ones, and its address has one light slot at a time for a minute.
 *
 *   light, medium ──▶ slot ──▶ done             heavy, search ──▶ slot ──▶ done, or cancelled with an error
 *                       └──cancelled──▶ heavy
 *
 * In each class a free slot goes to the community, in it to the network (an IPv6 /48), and in it to the
 * address that has used least, in milliseconds; none of them may hold more slots than its share. Two light
 * slots are kept for addresses that have used little lately, so that a storm of light queries does not hold
 * them all. Clients on this machine that are exempt from limits are held to the whole only.
 *
 * Medium and heavy queries and searches keep a core busy each, which light ones, the lane and the event loop
 * need too. So after such a query of a busy address (limits/work.ts) its slot rests for four times as long,
 * while others use the node; addresses that are not busy may take a slot that rests.
 *
 * A query is charged to its client by its estimate before it runs, and then by what it took. A client in debt
 * waits before its next query runs, as its socket waits to be read.
 */
import { availableParallelism } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { LRUCache } from 'lru-cache';
import { MEDIUM_MS_MAX, type QueryClass, type QueryCost, QueryNotRun } from '../events/rules/query-cost.js';
import { FairTags, isBefore, type Share, type Shares } from '../limits/fair-tags.js';
import { isNoAnswer } from '../limits/in-time.js';
import { type Rest, restMsAfter } from '../limits/rules-rest.js';
import type { Work } from '../limits/work.js';
import type { ClientAddress } from '../port/client-address.js';
import { errorCode, SQLSTATE } from '../postgres/rules-error-code.js';

interface Slots {
  readonly all: number;
  readonly perAddress: number;
  readonly perNetwork: number;
  /** Slots of these that are reserved for addresses with little recent use (limits/work.ts). */
  readonly kept?: number;
  /** A slot rests after the query of a busy address. */
  readonly rests?: true;
}

/** Whatever the query took: a slot holds up nobody who is not busy. */
const REST: Rest = { times: 4, timesPerMs: 0, msMax: 4_000 };

/** As many as there are cores, within these limits: each keeps a core busy, and light queries need some. */
const MEDIUM_SLOTS = { min: 2, max: 4 };

export const SLOTS: Record<QueryClass, Slots> = {
  light: { all: 6, perAddress: 2, perNetwork: 3, kept: 2 },
  medium: {
    all: Math.min(MEDIUM_SLOTS.max, Math.max(MEDIUM_SLOTS.min, availableParallelism())),
    perAddress: 1,
    perNetwork: 1,
    rests: true,
  },
  heavy: { all: 2, perAddress: 1, perNetwork: 1, rests: true },
  search: { all: 2, perAddress: 1, perNetwork: 1, rests: true },
};

/** Addresses with queries that wait for a slot of one class. */
const LINES_MAX = 2_000;
/** How long a query waits for a slot. */
const WAIT_MS_MAX = 30_000;
/** How long a client in debt waits before its next query. */
const DEBT_WAIT_MS_MAX = 40_000;
/** How long an address has one light slot only, after one of its queries was slower than estimated. */
const SLOW_MS = 60_000;
const SLOW_ADDRESSES_MAX = 20_000;
/** The part of the estimate that is always charged. */
const CHARGED_MIN = 0.25;
/**
 * Up to this many queries run at full speed. With more, the time of a query depends on the others too.
 */
const AT_FULL_SPEED = 2;

/** The client disconnected while its query waited. */
export class ClientGone extends Error {}

export interface QueryClient {
  readonly client: Pick<ClientAddress, 'rateKey' | 'networkKey'>;
  readonly community: number;
  /** Not charged, and held to no share of its address. */
  readonly isExempt: boolean;
  /** True once nobody waits for the answer any more. */
  readonly isGone?: () => boolean;
  /** In debt the query is not run, instead of waiting until the debt is paid. */
  readonly isHasty?: boolean;
}

interface Turn {
  begin(): void;
  giveUp(why: unknown): void;
}

/** The waiting queries of one address in one community. */
interface Line extends Shares {
  readonly waiting: Turn[];
  readonly asker: QueryClient;
  /** Before its last query was charged: an expensive query alone makes nobody busy. */
  isBusy: boolean;
}

export interface QueryGateOptions {
  readonly work?: Work;
  /** How many there are: of several communities none may hold every slot of a class. */
  readonly communities?: () => number;
  /** Whether clients that are not greedy use the node. */
  readonly hasOthers?: () => boolean;
}

export class QueryGate {
  private readonly classes: Record<QueryClass, SlotsOfClass>;
  private readonly work: Work | undefined;

  constructor({ work, communities = () => 1, hasOthers = () => false }: QueryGateOptions = {}) {
    const slots = (kind: QueryClass) => new SlotsOfClass(SLOTS[kind], communities, hasOthers);
    this.classes = {
      light: slots('light'),
      medium: slots('medium'),
      heavy: slots('heavy'),
      search: slots('search'),
    };
    this.work = work;
  }

  /**
   * Runs the query in a slot. `query` gets the class whose sessions it may use, and has no effects: it may
   * run twice.
   */
  async run<T>(asker: QueryClient, cost: QueryCost, query: (kind: QueryClass) => Promise<T>): Promise<T> {
    try {
      return await this.runIn(cost.class, asker, cost.ms, query);
    } catch (error) {
      const isShort = cost.class === 'light' || cost.class === 'medium';
      if (!isShort || !isCancelled(error)) throw error;
      this.classes.light.holdBack(asker);
      return this.runIn('heavy', asker, Math.max(cost.ms, MEDIUM_MS_MAX), query);
    }
  }

  /** Work of this process that belongs to a query, beside the database's. */
  charge({ client, isExempt }: QueryClient, ms: number): void {
    if (!isExempt) this.work?.charge(client, ms);
  }

  private chargeQuery({ client, isExempt }: QueryClient, ms: number): void {
    if (!isExempt) this.work?.chargeQuery(client, ms);
  }

  private async runIn<T>(
    kind: QueryClass,
    asker: QueryClient,
    guessMs: number,
    query: (kind: QueryClass) => Promise<T>,
  ): Promise<T> {
    await this.paid(asker);
    const isBusy = this.work?.isBusy(asker.client) ?? false;
    this.chargeQuery(asker, guessMs);
    const slots = this.classes[kind];
    const line = await slots.enter(asker, guessMs, isBusy).catch((error: unknown) => {
      this.chargeQuery(asker, -guessMs);
      throw error;
    });
    const begunMs = performance.now();
    try {
      return await query(kind);
    } catch (error) {
      if (isNoAnswer(error)) for (const each of Object.values(this.classes)) each.giveUpWaiting(error);
      throw error;
    } finally {
      const tookMs = (performance.now() - begunMs) / Math.max(1, this.underWay / AT_FULL_SPEED);
      const correctionMs = Math.max(tookMs, guessMs * CHARGED_MIN) - guessMs;
      this.chargeQuery(asker, correctionMs);
      slots.leave(line, tookMs, correctionMs);
    }
  }

  private get underWay(): number {
    const { light, medium, heavy, search } = this.classes;
    return light.underWay + medium.underWay + heavy.underWay + search.underWay;
  }

  /** Charged at once when a query continues, so that only some of the waiting queries of an address do. */
  private async paid({ client, isExempt, isGone, isHasty }: QueryClient): Promise<void> {
    if (isExempt || this.work === undefined) return;
    const deadlineMs = performance.now() + DEBT_WAIT_MS_MAX;
    for (let waitMs = this.work.waitMs(client); waitMs > 0; waitMs = this.work.waitMs(client)) {
      if (isHasty || performance.now() > deadlineMs) throw new QueryNotRun(waitMs);
      await sleep(Math.min(waitMs, DEBT_WAIT_MS_MAX));
      if (isGone?.()) throw new ClientGone();
    }
  }
}

export function isCancelled(error: unknown): boolean {
  return errorCode(error) === SQLSTATE.queryCanceled;
}

class SlotsOfClass {
  private readonly lines = new Map<string, Line>();
  private readonly communities = new FairTags();
  private readonly networks = new FairTags();
  private readonly addresses = new FairTags();
  /** Addresses whose queries were slower than estimated. */
  private readonly slow = new LRUCache<string, true>({ max: SLOW_ADDRESSES_MAX, ttl: SLOW_MS });
  underWay = 0;
  private resting = 0;

  constructor(
    private readonly slots: Slots,
    private readonly communityCount: () => number,
    private readonly hasOthers: () => boolean,
  ) {}

  /** Resolves when a slot is taken, which `leave` gives back. */
  async enter(asker: QueryClient, guessMs: number, isBusy: boolean): Promise<Line> {
    const { client, community } = asker;
    const key = `${community}/${client.rateKey}`;
    const line = this.lines.get(key) ?? {
      waiting: [],
      asker,
      isBusy,
      community: this.communities.of(String(community)),
      network: this.networks.of(client.networkKey),
      address: this.addresses.of(client.rateKey),
    };
    line.isBusy = isBusy;
    if (line.waiting.length === 0 && this.underWay < this.slots.all && this.mayBegin(line)) {
      this.begin(line, guessMs);
      return line;
    }
    this.lines.set(key, line);
    if (this.lines.size > LINES_MAX) this.giveUpOne();
    let late: NodeJS.Timeout | undefined;
    try {
      await new Promise<void>((resolve, giveUp) => {
        const turn: Turn = {
          giveUp,
          begin: () => {
            if (asker.isGone?.()) return giveUp(new ClientGone());
            this.begin(line, guessMs);
            resolve();
          },
        };
        late = setTimeout(() => this.remove(key, line, turn), WAIT_MS_MAX);
        line.waiting.push(turn);
      });
    } finally {
      clearTimeout(late);
    }
    return line;
  }

  leave(line: Line, tookMs: number, correctionMs: number): void {
    this.underWay -= 1;
    for (const [tags, share] of this.sharesOf(line)) tags.end(share, correctionMs);
    if (this.slots.rests && line.isBusy && !line.asker.isExempt && this.hasOthers())
      this.rest(restMsAfter(tookMs, REST));
    this.next();
  }

  private rest(ms: number): void {
    this.resting += 1;
    setTimeout(() => {
      this.resting -= 1;
      this.next();
    }, ms).unref();
  }

  holdBack({ client }: QueryClient): void {
    this.slow.set(client.rateKey, true);
  }

  /** Queries that wait behind an unanswered one would each wait as long again (I15). */
  giveUpWaiting(why: unknown): void {
    for (const [key, line] of [...this.lines]) this.giveUp(key, line, why);
  }

  private begin(line: Line, guessMs: number): void {
    this.underWay += 1;
    for (const [tags, share] of this.sharesOf(line)) tags.begin(share, guessMs);
  }

  private sharesOf({ community, network, address }: Line): [FairTags, Share][] {
    return [
      [this.communities, community],
      [this.networks, network],
      [this.addresses, address],
    ];
  }

  private mayBegin({ asker, isBusy, community, network, address }: Line): boolean {
    const { all, perAddress, perNetwork, kept = 0 } = this.slots;
    if (community.underWay >= all - 1 && this.communityCount() > 1) return false;
    if (asker.isExempt) return true;
    const forBusy = all - Math.max(kept, this.resting);
    if (isBusy && this.underWay >= forBusy) return false;
    const addressMax = this.slow.has(address.key) ? 1 : perAddress;
    return network.underWay < perNetwork && address.underWay < addressMax;
  }

  private next(): void {
    while (this.underWay < this.slots.all && this.lines.size > 0) {
      let first: [string, Line] | undefined;
      for (const entry of this.lines)
        if (this.mayBegin(entry[1]) && (first === undefined || isBefore(entry[1], first[1]))) first = entry;
      if (first === undefined) return;
      const [key, line] = first;
      const turn = line.waiting.shift();
      if (line.waiting.length === 0) this.lines.delete(key);
      turn?.begin();
    }
  }

  private remove(key: string, line: Line, turn: Turn): void {
    const place = line.waiting.indexOf(turn);
    if (place === -1) return;
    line.waiting.splice(place, 1);
    if (line.waiting.length === 0) this.lines.delete(key);
    turn.giveUp(new QueryNotRun());
  }

  /** Too many addresses wait: the one with the most use is refused. */
  private giveUpOne(): void {
    let last: [string, Line] | undefined;
    for (const entry of this.lines)
      if (entry[1].waiting.length > 0 && (last === undefined || isBefore(last[1], entry[1]))) last = entry;
    if (last !== undefined) this.giveUp(...last, new QueryNotRun());
  }

  private giveUp(key: string, line: Line, why: unknown): void {
    this.lines.delete(key);
    for (const turn of line.waiting.splice(0)) turn.giveUp(why);
  }
}
