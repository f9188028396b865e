/** Addresses of relays, as texts that may be written in several ways and still mean the same. */

/** Case of scheme and host, a default port and a closing slash do not tell two relays apart. No address: undefined. */
export function normalizeRelayUrl(url: string): string | undefined {
  if (!URL.canParse(url)) return undefined;
  const { protocol, host, pathname } = new URL(toHttp(url));
  return `${protocol}//${host}${pathname.replace(/\/$/, '')}`;
}

export function isSameRelay(one: string, other: string): boolean {
  const normal = normalizeRelayUrl(one);
  return normal !== undefined && normal === normalizeRelayUrl(other);
}

/** The same place asked by HTTP. */
export function toHttp(url: string): string {
  return url.replace(/^ws/i, 'http');
}

export function toWebsocket(url: string): string {
  return url.replace(/^http/i, 'ws');
}
