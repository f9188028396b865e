/**
 * Requests to the relay by events (NIP-43): join with an invite, leave, or get an invite. They write the same
 * rows as the HTTP API.
 */
import type { Pool } from 'pg';
import { type Denial, ERRORS, isDenial } from '../api/rules-errors.js';
import type { Community } from '../communities/communities.js';
import type { NostrEvent } from '../events/rules/event.js';
import { type MembershipOutcome, type Refusal, refusal } from '../events/rules/reply.js';
import { DAY_MS } from '../events/rules/retention.js';
import type { NodeKeys } from '../keys/keys.js';
import { rateKey } from '../limits/keys.js';
import type { Rates } from '../limits/rates.js';
import type { Log } from '../node/log.js';
import { joinWithInvite } from '../topics/requests.sql.js';
import { globalTopic } from '../topics/rules-id.js';
import { requestRules } from '../topics/rules-requests.js';
import { createInvite } from './invites.sql.js';
import { isMember, leave } from './members.sql.js';
import { claimOf, KIND_INVITE, KIND_JOIN } from './rules-joining.js';

const HOUR_SECONDS = 3_600;

export interface MembershipOptions {
  readonly pool: Pool;
  readonly keys: NodeKeys;
  readonly rates: Rates;
  /** The keys of MINATO_ADMIN_PUBKEYS. */
  readonly adminPubkeys: readonly string[];
  readonly log: Log;
  /** Milliseconds. */
  readonly now: () => number;
}

export class Membership {
  /** A failure is logged once, until it works again. */
  private failing = false;

  constructor(private readonly options: MembershipOptions) {}

  /** Handles a request with a valid signature, from a key that may post. */
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

  /** A new invite as an event signed by the relay, if one of the keys may invite; otherwise undefined. */
  async offer(community: Community, pubkeys: ReadonlySet<string>): Promise<NostrEvent | undefined> {
    for (const pubkey of pubkeys) {
      if (await this.mayInvite(community, pubkey)) return this.makeInvite(community, pubkey);
    }
    return undefined;
  }

  private async mayInvite({ id, operators, settings }: Community, pubkey: string): Promise<boolean> {
    if (operators.get(pubkey) === 'operator' || this.options.adminPubkeys.includes(pubkey)) return true;
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
      // Gets the key first: without it the code could not be delivered.
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
        log.warn({ community: community.slug, error: String(error) }, 'cannot sign an invite');
      this.failing = true;
      return undefined;
    }
  }
}

function whyNot(denied: Denial): MembershipOutcome | Refusal {
  if (denied.denied === 'ALREADY_SUBSCRIBED') return 'member';
  const { status, message } = ERRORS[denied.denied];
  // A limit that is reached is no restriction of rights.
  return refusal(status === 429 ? 'error' : 'restricted', message.replace(/\.$/, ''));
}
