/**
 * What clients ask of the relay by events (NIP-43): to join with an invite, to leave, and for an invite. The answers are the same
 * rows that the HTTP API writes.
 */
import type { Pool } from 'pg';
import type { Community } from './communities.js';
import { type Denial, ERRORS, isDenial } from './core/errors.js';
import type { NostrEvent } from './core/event.js';
import { claimOf, KIND_INVITE, KIND_JOIN } from './core/joining.js';
import { requestRules } from './core/membership.js';
import { type MembershipOutcome, type Refusal, refusal } from './core/reply.js';
import { DAY_MS } from './core/retention.js';
import { globalTopic } from './core/topic-id.js';
import type { NodeKeys } from './keys.js';
import { rateKey } from './limits/keys.js';
import type { Rates } from './limits/rates.js';
import type { Log } from './log.js';
import { createInvite } from './store/invites.js';
import { isMember, leave } from './store/members.js';
import { joinWithInvite } from './store/topic-requests.js';

const HOUR_SECONDS = 3_600;

export interface MembershipOptions {
  readonly pool: Pool;
  readonly keys: NodeKeys;
  readonly rates: Rates;
  /** Those of MINATO_ADMIN_PUBKEYS. */
  readonly adminPubkeys: readonly string[];
  readonly log: Log;
  /** Milliseconds. */
  readonly now: () => number;
}

export class Membership {
  /** Told once until it has worked again. */
  private failing = false;

  constructor(private readonly options: MembershipOptions) {}

  /** A request whose signature holds, from one who may post. */
  async take(community: Community, event: NostrEvent): Promise<MembershipOutcome | Refusal> {
    const { pool, now } = this.options;
    if (event.kind !== KIND_JOIN) {
      return (await leave(pool, { community: community.id, pubkey: event.pubkey }, now()))
        ? 'left'
        : 'stranger';
    }
    const joined = await joinWithInvite(
      pool,
      {
        community: community.id,
        pubkey: event.pubkey,
        claim: claimOf(event) ?? '',
        otherwise: globalTopic(community.settings['topic.namespace']),
      },
      requestRules(community.settings),
      now(),
    );
    if (isDenial(joined)) return whyNot(joined);
    return joined.subscription === undefined ? 'waiting' : 'joined';
  }

  /** A new invite as an event that the relay signs, for one who may invite; nothing for anybody else. */
  async offer(community: Community, pubkeys: ReadonlySet<string>): Promise<NostrEvent | undefined> {
    for (const pubkey of pubkeys) {
      if (await this.mayInvite(community, pubkey)) return this.makeInvite(community, pubkey);
    }
    return undefined;
  }

  private async mayInvite({ id, operators, settings }: Community, pubkey: string): Promise<boolean> {
    if (operators.has(pubkey) || this.options.adminPubkeys.includes(pubkey)) return true;
    return settings['membership.invitesBy'] === 'members' && isMember(this.options.pool, id, pubkey);
  }

  private async makeInvite(community: Community, pubkey: string): Promise<NostrEvent | undefined> {
    const { pool, keys, rates, log, now } = this.options;
    const { id, settings } = community;
    const perHour = settings['rate.subscriptionRequestsPerHour'];
    const key = rateKey(id, 'subscription-request', pubkey);
    const verdict = await rates.take(key, perHour / HOUR_SECONDS, Math.max(1, perHour), now());
    if (!verdict.allowed) return undefined;
    const time = now();
    try {
      // The key first: a code that nobody can be given is not made.
      const self = await keys.pubkey(id, 'relay');
      const expiresAt = time + settings['membership.inviteDays'] * DAY_MS;
      const made = await createInvite(pool, { community: id, expiresAt, actor: pubkey }, time);
      if (isDenial(made)) return undefined;
      const tags = [['-'], ['claim', made.code]];
      const template = { kind: KIND_INVITE, created_at: Math.floor(time / 1_000), tags, content: '' };
      const event = await keys.signAs(self, 'relay', template);
      this.failing = false;
      return event;
    } catch (error) {
      if (!this.failing)
        log.warn({ community: community.slug, error: String(error) }, 'no invite can be signed');
      this.failing = true;
      return undefined;
    }
  }
}

function whyNot(denied: Denial): MembershipOutcome | Refusal {
  if (denied.denied === 'ALREADY_SUBSCRIBED') return 'member';
  return refusal('restricted', ERRORS[denied.denied].message.replace(/\.$/, ''));
}
