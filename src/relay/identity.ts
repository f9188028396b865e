/**
 * The identity of a client: the keys that it has authenticated with (NIP-42), possibly several, and the
 * rights that they give. Each connection has its own challenge, so a proof is valid on that connection only.
 */
import { randomBytes } from 'node:crypto';
import type { Community } from '../communities/communities.js';
import {
  type Access,
  isSameAccess,
  refuseFilterAccess,
  refuseKey,
  refusePrivate,
  seenBy,
  wouldShowMore,
} from '../events/rules/access.js';
import { parseEvent, serializeEvent } from '../events/rules/event.js';
import type { Filter } from '../events/rules/filter.js';
import {
  isRefusal,
  type Refusal,
  refusal,
  tooMany,
  WRONG_ID,
  WRONG_SIGNATURE,
} from '../events/rules/reply.js';
import type { Verifier } from '../events/verify/pool.js';
import { rateKey } from '../limits/keys.js';
import type { Rates } from '../limits/rates.js';
import { type LineClient, verifyLineOf } from '../limits/rules-lines.js';
import type { Rights } from '../members/rights.js';
import { hasAgreed } from '../policies/rules.js';
import { refuseFilterTopic } from '../topics/rules.js';
import { authDeadline, enforcedFrom, refuseAuth } from './rules-auth.js';

const PUBKEYS_MAX = 20;
const NO_TOPICS: ReadonlySet<string> = new Set();

export interface IdentityContext {
  readonly rights: Rights;
  readonly rates: Rates;
  readonly verifier: Verifier;
  /** The addresses by which clients know the community. */
  readonly addressesOf: (community: Community) => readonly string[];
  /** Milliseconds. */
  readonly now: () => number;
}

export class Identity {
  readonly challenge = randomBytes(16).toString('hex');
  private readonly keys = new Set<string>();
  private readonly openedAt: number;
  private gone = false;
  /**
   * Once the client must authenticate, it must as long as the mode stays: saving the setting again starts no
   * new grace period.
   */
  private enforced = false;
  private authenticating = 0;
  private known: { access: Access; community: Community; rights: number } | undefined;

  constructor(
    private readonly community: number,
    private readonly client: LineClient,
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
    // A disabled member may authenticate too: to withdraw what is theirs, and to continue once they are
    // enabled again.
    if (community.refused.get(event.pubkey) === 'erasing') return refuseKey(event.pubkey, community);
    if (this.keys.size >= PUBKEYS_MAX) return refusal('error', `more than ${PUBKEYS_MAX} keys`);
    const from = verifyLineOf(this.community, isExempt ? undefined : this.client, event.pubkey);
    const verdict = await verifier.verify({ payload: serializeEvent(event), from });
    if (verdict !== 'valid') return verdict === 'wrong-id' ? WRONG_ID : WRONG_SIGNATURE;
    return (isExempt ? undefined : await this.overRate(community, event.pubkey)) ?? this.add(event.pubkey);
  }

  /**
   * A key counts as one connection, whatever its address. It counts only after the proof, because otherwise
   * anybody could use up its rate.
   */
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

  /** What this client may do now; the same object as long as that does not change. */
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

  /**
   * Keys with an open account; where clients must authenticate, keys that have agreed to the current
   * policies.
   */
  private consenting({ policies, refused }: Community, enforced: boolean): ReadonlySet<string> {
    const { rights } = this.context;
    const agrees = (pubkey: string) =>
      !enforced || hasAgreed(policies, rights.of(this.community, pubkey).agreed);
    return new Set([...this.keys].filter((pubkey) => !refused.has(pubkey) && agrees(pubkey)));
  }

  /** Of all keys together; with one key, without a copy. */
  private topicsOf(keys: ReadonlySet<string>): ReadonlySet<string> {
    const [first, ...others] = [...keys].map(
      (pubkey) => this.context.rights.of(this.community, pubkey).topics,
    );
    if (first === undefined) return NO_TOPICS;
    return others.length === 0 ? first : new Set([first, ...others].flatMap((topics) => [...topics]));
  }

  /** The time to authenticate is over, and the client has not done so. */
  isOverdue(community: Community): boolean {
    if (this.keys.size > 0 || this.authenticating > 0) return false;
    return this.context.now() >= authDeadline(community, this.openedAt);
  }

  /** Would it see more of what these filters name if it authenticated? */
  wouldSeeMore(community: Community, filters: readonly Filter[]): boolean {
    return wouldShowMore(filters, this.access(community), community);
  }

  /** The filters with what this client may see of them, or why it may not use them. */
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
