/** Signs one request with the key of the browser extension (NIP-98). */
import { api, dataOf } from '../../../shared/api.js';
import { extensionSigner } from '../../../shared/signers.js';

export async function signedBy(
  path: string,
  query: Readonly<Record<string, string>>,
): Promise<{ readonly authorization: string }> {
  const { relay } = await dataOf(api.POST('/v1/auth/challenge'));
  // The address under which the node knows itself; the one in the browser may be another name of it.
  const base = relay.replace(/^ws/, 'http').replace(/\/$/, '');
  const event = await extensionSigner().sign({
    kind: 27_235,
    created_at: Math.floor(Date.now() / 1_000),
    content: '',
    tags: [
      ['u', `${base}${path}?${searchOf(query)}`],
      ['method', 'GET'],
    ],
  });
  const bytes = new TextEncoder().encode(JSON.stringify(event));
  return { authorization: `Nostr ${btoa(String.fromCharCode(...bytes))}` };
}

/** Spelt as the client of the API spells it. */
function searchOf(query: Readonly<Record<string, string>>): string {
  return Object.entries(query)
    .map(([name, value]) => `${name}=${encodeURIComponent(value)}`)
    .join('&');
}
