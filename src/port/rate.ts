/**
 * HTTP rates: by address before a request is authenticated, by public key after that. A request for a topic
 * takes from the network of the address as well (an IPv6 /48): anybody can make keys, and the places for
 * requests that wait are those of all members.
 */

import { type Denial, denial } from '../api/rules-errors.js';
import type { Community } from '../communities/communities.js';
import type { Settings } from '../communities/rules-settings.js';
import { rateKey } from '../limits/keys.js';
import type { Rates, Verdict } from '../limits/rates.js';
import { ADDRESSES_PER_NETWORK } from '../limits/work.js';
import type { ClientAddress } from './client-address.js';

const GROUPS = {
  public: ['rate.httpPublicPerSecond', 'rate.httpPublicBurst'],
  reader: ['rate.httpPublicPerSecond', 'rate.httpPublicBurst'],
  member: ['rate.httpMemberPerSecond', 'rate.httpMemberBurst'],
  operator: ['rate.httpAdminPerSecond', 'rate.httpAdminBurst'],
} as const satisfies Record<string, readonly [keyof Settings, keyof Settings]>;

/** The group of clients that a rate applies to. */
export type RateGroup = keyof typeof GROUPS;

export interface Taking {
  readonly community: Community;
  readonly client: ClientAddress;
  readonly who: RateGroup;
  /** An address or a key. */
  readonly by: string;
  readonly isSubscriptionRequest: boolean;
}

export async function refuseRate(
  rates: Pick<Rates, 'take'>,
  taking: Taking,
  nowMs: number,
): Promise<Denial | undefined> {
  const { community, client, who, by } = taking;
  const { id, settings } = community;
  if (isExempt(client, settings)) return undefined;
  const [perSecond, burst] = GROUPS[who];
  const verdict = await rates.take(
    rateKey(id, `http-${who}`, by),
    settings[perSecond],
    settings[burst],
    nowMs,
  );
  if (!verdict.allowed) return tooMany(verdict);
  return taking.isSubscriptionRequest ? refuseHourly(rates, taking, nowMs) : undefined;
}

/** The address first: one that has used up its rate takes nothing from its network. */
async function refuseHourly(
  rates: Pick<Rates, 'take'>,
  { community: { id, settings }, client: { rateKey: address, networkKey }, by }: Taking,
  nowMs: number,
): Promise<Denial | undefined> {
  const perHour = settings['rate.subscriptionRequestsPerHour'];
  if (perHour === 0) return undefined;
  const take = (whose: string, most: number) =>
    rates.take(rateKey(id, 'subscription-request', whose), most / 3_600, most, nowMs);
  const own = await take(by, perHour);
  if (!own.allowed || by !== address || networkKey === address) return own.allowed ? undefined : tooMany(own);
  const together = await take(networkKey, perHour * ADDRESSES_PER_NETWORK);
  return together.allowed ? undefined : tooMany(together);
}

/** Local clients, unless the operator has changed that. */
export function isExempt({ isLoopback }: ClientAddress, settings: Settings): boolean {
  return isLoopback && settings['rate.exemptLoopback'];
}

export function tooMany({ retryAfterMs }: Verdict): Denial {
  const seconds = Math.max(1, Math.ceil(retryAfterMs / 1_000));
  return denial('RATE_LIMITED', { retry_after_seconds: Number.isFinite(seconds) ? seconds : 3_600 });
}
