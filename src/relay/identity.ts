/**
 * Who a client is: the keys that it has proved to hold (NIP-42), several if it likes, and what they give it. The challenge is
 * this connection's own, so that a proof holds nowhere else.
 */
import { randomBytes } from 'node:crypto';
import type { Community } from '../communities.js';
import {
  type Access,
  isSameAccess,
  refuseFilterAccess,
  refuseKey,
  refusePrivate,
  seenBy,
  wouldShowMore,
} from '../core/access.js';
import { authDeadline, enforcedFrom, refuseAuth } from '../core/auth.js';
import { parseEvent, serializeEvent } from '../core/event.js';
import type { Filter } from '../core/filter.js';
import { hasAgreed } from '../core/policies.js';
import { isRefusal, type Refusal, refusal, tooMany } from '../core/reply.js';
import { refuseFilterTopic } from '../core/topic.js';
import { rateKey } from '../limits/keys.js';
import type { Rates } from '../limits/rates.js';
import type { Rights } from '../rights.js';
import type { Verifier } from '../verify/pool.js';

const PUBKEYS_MAX = 20;
const NO_TOPICS: ReadonlySet<string> = new Set();

export interface IdentityContext {
  readonly rights: Rights;
  readonly rates: Rates;
  readonly verifier: Verifier;
  /** By which addresses clients know the community. */
  readonly addressesOf: (community: Community) => readonly string[];
  /** Milliseconds. */
  readonly now: () => number;
}

export class Identity {
  readonly challenge = randomBytes(16).toString('hex');
  private readonly keys = new Set<string>();
  private readonly openedAt: number;
  private gone = false;
  /** Once it had to authenticate, it has to for as long as the mode holds: a setting saved again gives no new grace. */
  private enforced = false;
  private authenticating = 0;
  private known: { access: Access; community: Community; rights: number } | undefined;

  constructor(
    private readonly community: number,
    private readonly context: IdentityContext,
  ) {
    this.openedAt = context.now();
  }

  get pubkeys(): ReadonlySet<string> {
    return this.keys;
  }

  async authenticate(community: Community, input: unknown, isExempt: boolean): Promise<Refusal | undefined> {
    this.authenticating += 1;
    try {
      return await this.prove(community, input, isExempt);
    } finally {
      this.authenticating -= 1;
    }
  }

  private async prove(community: Community, input: unknown, isExempt: boolean): Promise<Refusal | undefined> {
    const event = parseEvent(input);
    if (isRefusal(event)) return event;
    const { now, addressesOf, verifier } = this.context;
    const refused = refuseAuth(event, {
      challenge: this.challenge,
      addresses: addressesOf(community),
      nowSeconds: Math.floor(now() / 1_000),
    });
    if (refused !== undefined) return refused;
    // Who is disabled proves the key all the same: to take back what is theirs, and to go on once they are let in again.
    if (community.refused.get(event.pubkey) === 'erasing') return refuseKey(event.pubkey, community);
    if (this.keys.size >= PUBKEYS_MAX) return refusal('error', `more than ${PUBKEYS_MAX} keys`);
    if ((await verifier.verify({ payload: serializeEvent(event) })) !== 'valid') {
      return refusal('invalid', 'the signature does not hold');
    }
    return (isExempt ? undefined : await this.overRate(community, event.pubkey)) ?? this.add(event.pubkey);
  }

  /** A key counts as a connection wherever it comes from; only once it is proved, or anybody could spend its rate. */
  private async overRate({ id, settings }: Community, pubkey: string): Promise<Refusal | undefined> {
    const { rates, now } = this.context;
    const { 'rate.connectionsPerSecond': perSecond, 'rate.connectionsBurst': burst } = settings;
    const verdict = await rates.take(rateKey(id, 'connections', pubkey), perSecond, burst, now());
    return verdict.allowed ? undefined : tooMany('authentications of this key', verdict.retryAfterMs);
  }

  private async add(pubkey: string): Promise<Refusal | undefined> {
    if (this.keys.has(pubkey)) return undefined;
    const { rights } = this.context;
    await rights.hold(this.community, pubkey);
    if (this.gone || this.keys.has(pubkey)) rights.release(this.community, pubkey);
    else this.keys.add(pubkey);
    this.known = undefined;
    return undefined;
  }

  leave(): void {
    this.gone = true;
    for (const pubkey of this.keys) this.forget(pubkey);
  }

  private forget(pubkey: string): void {
    this.keys.delete(pubkey);
    this.context.rights.release(this.community, pubkey);
    this.known = undefined;
  }

  /** What this client may do now; the same object for as long as that does not change. */
  access(community: Community): Access {
    const enforced = this.isEnforced(community);
    const { rights } = this.context;
    const { known } = this;
    if (
      known !== undefined &&
      known.community === community &&
      known.rights === rights.version &&
      known.access.enforced === enforced
    )
      return known.access;
    for (const pubkey of this.keys) if (community.refused.get(pubkey) === 'erasing') this.forget(pubkey);
    const pubkeys = new Set(this.keys);
    const consented = this.consenting(community, enforced);
    const computed = { pubkeys, enforced, consented, subscribed: this.topicsOf(consented) };
    const access = known !== undefined && isSameAccess(known.access, computed) ? known.access : computed;
    this.known = { access, community, rights: rights.version };
    return access;
  }

  private isEnforced(community: Community): boolean {
    const isRequired = community.settings['auth.mode'] === 'required';
    const begun = this.context.now() >= enforcedFrom(community, this.openedAt);
    this.enforced = isRequired && (this.enforced || begun);
    return this.enforced;
  }

  /** Those whose account is open; where clients must authenticate, who has agreed to what is current. */
  private consenting({ policies, refused }: Community, enforced: boolean): ReadonlySet<string> {
    const { rights } = this.context;
    const agrees = (pubkey: string) =>
      !enforced || hasAgreed(policies, rights.of(this.community, pubkey).agreed);
    return new Set([...this.keys].filter((pubkey) => !refused.has(pubkey) && agrees(pubkey)));
  }

  /** Of all keys together; of one, without a copy. */
  private topicsOf(keys: ReadonlySet<string>): ReadonlySet<string> {
    const [first, ...others] = [...keys].map(
      (pubkey) => this.context.rights.of(this.community, pubkey).topics,
    );
    if (first === undefined) return NO_TOPICS;
    return others.length === 0 ? first : new Set([first, ...others].flatMap((topics) => [...topics]));
  }

  /** It had its time to authenticate and did not. */
  isOverdue(community: Community): boolean {
    if (this.keys.size > 0 || this.authenticating > 0) return false;
    return this.context.now() >= authDeadline(community, this.openedAt);
  }

  /** Would it see more of what these filters name if it authenticated? */
  wouldSeeMore(community: Community, filters: readonly Filter[]): boolean {
    return wouldShowMore(filters, this.access(community), community);
  }

  /** The filters with what this client may see of them, or why it may not ask them. */
  view(community: Community, filters: readonly Filter[]): Filter[] | Refusal {
    const access = this.access(community);
    const refusedAll = refusePrivate(filters, access, community);
    if (refusedAll !== undefined) return refusedAll;
    const seen: Filter[] = [];
    for (const filter of filters) {
      const refused =
        refuseFilterAccess(filter, access, community) ??
        refuseFilterTopic(filter, community.settings, community.topics);
      if (refused !== undefined) return refused;
      seen.push(seenBy(filter, access, community));
    }
    return seen;
  }
}
