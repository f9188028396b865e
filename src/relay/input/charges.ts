/**
 * What a client pays for: its work is charged to its address, its events and queries to its rates (I18).
 * Exempt clients pay nothing.
 */
import type { Communities, Community } from '../../communities/communities.js';
import { KIND_DELETION, KIND_VANISH } from '../../events/rules/classify.js';
import { type Counted, rateKey } from '../../limits/keys.js';
import { ALLOWED } from '../../limits/local-buckets.js';
import type { Rates, Verdict } from '../../limits/rates.js';
import type { Work } from '../../limits/work.js';
import { isExempt } from '../../port/rate.js';
import type { Client } from './incoming.js';

/** The answer for an event. */
export interface PostVerdict extends Verdict {
  /** Of what there are too many, if not of events. */
  readonly what?: string;
}

interface Request {
  readonly counted: Counted;
  readonly what: string;
}

/** By kind. A bucket for each: whoever fills one does not keep others of the address from the other. */
const REQUESTS: ReadonlyMap<unknown, Request> = new Map([
  [KIND_DELETION, { counted: 'deletion-request', what: 'requests to delete' }],
  [KIND_VANISH, { counted: 'vanish-request', what: 'requests to vanish' }],
]);

export interface ChargesContext {
  readonly communities: Communities;
  readonly work: Work;
  readonly rates: Rates;
  readonly now: () => number;
}

export class Charges {
  constructor(
    private readonly client: Client,
    private readonly context: ChargesContext,
  ) {}

  isExempt({ settings }: Community): boolean {
    return isExempt(this.client, settings);
  }

  isExemptNow(): boolean {
    const community = this.context.communities.get(this.client.community);
    return community !== undefined && this.isExempt(community);
  }

  charge(community: Community, costMs: number): void {
    if (!this.isExempt(community)) this.context.work.charge(this.client, costMs);
  }

  /** True when there were too many offences and the connection must be closed. */
  offend(community: Community): boolean {
    return !this.isExempt(community) && this.context.work.offend(this.client);
  }

  /** How long it must wait because of its debt; 0 when it has none. */
  debtMs(): number {
    return this.isExemptNow() ? 0 : this.context.work.waitMs(this.client);
  }

  /** The author of an event pays once its signature is checked (events/admission.ts). */
  mayPost(community: Community, kind: unknown, weight: number): PostVerdict | Promise<PostVerdict> {
    const verdict = this.take(community, 'events', [this.client.rateKey], weight);
    const request = REQUESTS.get(kind);
    if (request === undefined) return verdict;
    const goOn = (of: Verdict) => (of.allowed ? this.mayRequest(community, request, weight) : of);
    return verdict instanceof Promise ? verdict.then(goOn) : goOn(verdict);
  }

  /** They are kept for ever. Keys are free, so the address pays. A refused one takes no token of events. */
  private mayRequest(
    { id, settings }: Community,
    { counted, what }: Request,
    weight: number,
  ): PostVerdict | Promise<PostVerdict> {
    const perHour = settings['rate.deletionRequestsPerHour'];
    if (perHour === 0 || isExempt(this.client, settings)) return ALLOWED;
    const { rates, now } = this.context;
    const { rateKey: payer } = this.client;
    const settle = (verdict: Verdict): PostVerdict => {
      if (verdict.allowed) return verdict;
      rates.giveBack(rateKey(id, 'events', payer), weight);
      return { ...verdict, what };
    };
    const verdict = rates.take(rateKey(id, counted, payer), perHour / 3_600, perHour, now(), weight);
    return verdict instanceof Promise ? verdict.then(settle) : settle(verdict);
  }

  mayAsk(community: Community, pubkeys: Iterable<string>): Verdict | Promise<Verdict> {
    return this.take(community, 'queries', [this.client.rateKey, ...pubkeys], 1);
  }

  private take(
    community: Community,
    what: 'events' | 'queries',
    payers: readonly string[],
    weight: number,
  ): Verdict | Promise<Verdict> {
    const { id, settings } = community;
    const keys = this.isExempt(community) ? [] : payers.map((payer) => rateKey(id, what, payer));
    const [perSecond, burst] = [settings[`rate.${what}PerSecond`], settings[`rate.${what}Burst`]];
    return this.context.rates.takeAll(keys, perSecond, burst, this.context.now(), weight);
  }
}
