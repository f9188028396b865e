/** Compares relay URLs: one relay can be written in several ways. Pure. */

/**
 * Ignores the case of scheme and host, a default port and trailing slashes. Undefined when it is not a URL.
 */
export function normalizeRelayUrl(url: string): string | undefined {
  if (!URL.canParse(url)) return undefined;
  const { protocol, host, pathname } = new URL(toHttp(url));
  let end = pathname.length;
  while (pathname[end - 1] === '/') end -= 1;
  return `${protocol}//${host}${pathname.slice(0, end)}`;
}

export function isSameRelay(one: string, other: string): boolean {
  const normal = normalizeRelayUrl(one);
  return normal !== undefined && normal === normalizeRelayUrl(other);
}

/** The same address with an HTTP scheme. */
export function toHttp(url: string): string {
  return url.replace(/^ws/i, 'http');
}

export function toWebsocket(url: string): string {
  return url.replace(/^http/i, 'ws');
}
