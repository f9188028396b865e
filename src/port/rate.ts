/** HTTP rates: by address before a request is authenticated, by public key after that. */

import { type Denial, denial } from '../api/rules-errors.js';
import type { Community } from '../communities/communities.js';
import type { Settings } from '../communities/rules-settings.js';
import { rateKey } from '../limits/keys.js';
import type { Rates, Verdict } from '../limits/rates.js';
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
  const perHour = settings['rate.subscriptionRequestsPerHour'];
  if (!taking.isSubscriptionRequest || perHour === 0) return undefined;
  const hourly = await rates.take(rateKey(id, 'subscription-request', by), perHour / 3_600, perHour, nowMs);
  return hourly.allowed ? undefined : tooMany(hourly);
}

/** Local clients, unless the operator has changed that. */
export function isExempt({ isLoopback }: ClientAddress, settings: Settings): boolean {
  return isLoopback && settings['rate.exemptLoopback'];
}

export function tooMany({ retryAfterMs }: Verdict): Denial {
  const seconds = Math.max(1, Math.ceil(retryAfterMs / 1_000));
  return denial('RATE_LIMITED', { retry_after_seconds: Number.isFinite(seconds) ? seconds : 3_600 });
}
