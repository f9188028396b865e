/** Requests to vanish (NIP-62): whether a request names this relay. Pure. */
import type { NostrEvent } from './event.js';
import { isSameRelay } from './relay-url.js';

export const ALL_RELAYS = 'ALL_RELAYS';

export type VanishScope = 'here' | 'everywhere' | 'elsewhere';

/**
 * `relayUrls` are the configured addresses of the community that received the request, never a value from a
 * client's header.
 */
export function vanishScope(event: NostrEvent, relayUrls: readonly string[]): VanishScope {
  const named = event.tags.flatMap(([name, value]) =>
    name === 'relay' && value !== undefined ? [value] : [],
  );
  if (named.includes(ALL_RELAYS)) return 'everywhere';
  return named.some((url) => relayUrls.some((ours) => isSameRelay(ours, url))) ? 'here' : 'elsewhere';
}
