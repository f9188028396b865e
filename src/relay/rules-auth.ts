/**
 * NIP-42: does this event prove to this relay, on this connection and now, that the client holds its key?
 * Pure.
 */

import type { Settings } from '../communities/rules-settings.js';
import { firstTagValue, type NostrEvent } from '../events/rules/event.js';
import { isSameRelay } from '../events/rules/relay-url.js';
import { type Refusal, refusal } from '../events/rules/reply.js';

export const KIND_AUTH = 22_242;
const FRESH_SECONDS = 600;

export interface Challenge {
  readonly challenge: string;
  /** The addresses of the community, as configured; never what a client's header says. */
  readonly addresses: readonly string[];
  readonly nowSeconds: number;
}

/** Everything but the signature. */
export function refuseAuth(event: NostrEvent, expected: Challenge): Refusal | undefined {
  if (event.kind !== KIND_AUTH) return refusal('invalid', `an AUTH event has kind ${KIND_AUTH}`);
  if (Math.abs(event.created_at - expected.nowSeconds) > FRESH_SECONDS) {
    return refusal('invalid', `created_at is more than ${FRESH_SECONDS} seconds away from now`);
  }
  if (firstTagValue(event, 'challenge') !== expected.challenge) {
    return refusal('invalid', 'the challenge is not the one of this connection');
  }
  const relay = firstTagValue(event, 'relay');
  if (relay === undefined || !expected.addresses.some((address) => isSameRelay(address, relay))) {
    return refusal('invalid', `the relay tag does not name this relay, which is ${expected.addresses[0]}`);
  }
  return undefined;
}

/** A community's decision about authentication, and when it was made (milliseconds). */
export interface AuthRules {
  readonly settings: Pick<
    Settings,
    'auth.mode' | 'auth.enforceAt' | 'auth.graceSeconds' | 'auth.timeoutSeconds'
  >;
  readonly authModeAt: number;
}

/** Over HTTP, where no connection is older than the setting. */
export function isInForce({ settings }: Pick<AuthRules, 'settings'>, nowMs: number): boolean {
  return settings['auth.mode'] === 'required' && nowMs >= settings['auth.enforceAt'] * 1_000;
}

/**
 * The time from which a connection opened at `openedAt` must authenticate, in milliseconds. A connection that
 * was open before the setting has a grace period.
 */
export function enforcedFrom({ settings, authModeAt }: AuthRules, openedAt: number): number {
  if (settings['auth.mode'] === 'off') return Number.POSITIVE_INFINITY;
  const since = Math.max(settings['auth.enforceAt'] * 1_000, authModeAt);
  return openedAt >= since ? since : since + settings['auth.graceSeconds'] * 1_000;
}

/** Until when it must have done so. */
export function authDeadline(rules: AuthRules, openedAt: number): number {
  const from = Math.max(openedAt, enforcedFrom(rules, openedAt));
  return from + rules.settings['auth.timeoutSeconds'] * 1_000;
}
