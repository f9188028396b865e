/**
 * The addresses of a community. What a client signs (NIP-42, 62, 98) is compared with these, never with the
 * Host header, which anyone can set.
 */

import { toWebsocket } from '../events/rules/relay-url.js';
import type { Community } from './communities.js';
import { DEFAULT_SLUG } from './communities.sql.js';

export { normalizeRelayUrl, toHttp } from '../events/rules/relay-url.js';

/** The node's own addresses: the configured one, else where it listens. */
export function basesOf(publicUrl: string | undefined, host: string, port: number): string[] {
  if (publicUrl !== undefined) return [publicUrl];
  const named = host.includes(':') ? `[${host}]` : host;
  const hosts = new Set(['127.0.0.1', 'localhost', '[::1]', named]);
  return [...hosts].map((each) => `ws://${each}:${port}`);
}

/** The websocket addresses of a community; the first is the one to show. `bases` are those of the node. */
export function addressesOf(
  { slug, host, settings }: Pick<Community, 'slug' | 'host' | 'settings'>,
  bases: readonly string[],
): string[] {
  const own = bases.flatMap((given) => {
    const base = toWebsocket(given).replace(/\/$/, '');
    const named = host === undefined ? [] : [withHost(base, host)];
    return [...named, ...(slug === DEFAULT_SLUG ? [base] : []), `${base}/c/${slug}`];
  });
  return [...new Set([...settings['relay.urls'], ...own])];
}

/** The same scheme and port with another host name. A community with its own host name is at the root. */
function withHost(base: string, host: string): string {
  const { protocol, port } = new URL(base);
  return `${protocol}//${host}${port === '' ? '' : `:${port}`}`;
}
