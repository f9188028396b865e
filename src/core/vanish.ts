/** Requests to vanish (NIP-62): does one name this relay? */
import type { NostrEvent } from './event.js';
import { isSameRelay } from './relay-url.js';

export const ALL_RELAYS = 'ALL_RELAYS';

export type VanishScope = 'here' | 'everywhere' | 'elsewhere';

/** `relayUrls` are the addresses of the community that received it, as configured; never what a client's header says. */
export function vanishScope(event: NostrEvent, relayUrls: readonly string[]): VanishScope {
  const named = event.tags.flatMap(([name, value]) =>
    name === 'relay' && value !== undefined ? [value] : [],
  );
  if (named.includes(ALL_RELAYS)) return 'everywhere';
  return named.some((url) => relayUrls.some((ours) => isSameRelay(ours, url))) ? 'here' : 'elsewhere';
}
