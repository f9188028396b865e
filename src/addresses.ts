/**
 * Under which addresses a community is reached. What a client signs (NIP-42, 62, 98) is compared with these and never with
 * the Host header, which anyone can send.
 */
import type { Community } from './communities.js';
import { toWebsocket } from './core/relay-url.js';
import { DEFAULT_SLUG } from './store/communities.js';

export { normalizeRelayUrl, toHttp } from './core/relay-url.js';

/** The node's own addresses: the one that is configured, else where it listens. */
export function basesOf(publicUrl: string | undefined, host: string, port: number): string[] {
  if (publicUrl !== undefined) return [publicUrl];
  const named = host.includes(':') ? `[${host}]` : host;
  const hosts = new Set(['127.0.0.1', 'localhost', '[::1]', named]);
  return [...hosts].map((each) => `ws://${each}:${port}`);
}

/** Websocket addresses of a community, the one to show first. `bases` are those of the node. */
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

/** The same scheme and port under another name; a community with a name of its own is at its root. */
function withHost(base: string, host: string): string {
  const { protocol, port } = new URL(base);
  return `${protocol}//${host}${port === '' ? '' : `:${port}`}`;
}
