/** Host names: the one that a request names, and the addresses of the one that the node listens on. */
import { lookup } from 'node:dns/promises';

/** The host name of the request. It selects a community and proves nothing. */
export function hostOf(headers: { readonly host?: string | undefined }): string | undefined {
  return headers.host?.replace(/:\d+$/, '').toLowerCase();
}

/** The IPv4 and the IPv6 address of `localhost`; any other host unchanged. */
export async function addressesOf(host: string): Promise<string[]> {
  if (host !== 'localhost') return [host];
  const found = await lookup(host, { all: true }).catch(() => []);
  return found.length === 0 ? [host] : [...new Set(found.map(({ address }) => address))];
}
