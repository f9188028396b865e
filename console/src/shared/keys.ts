/** Public keys as people read them. */
import * as nip19 from 'nostr-tools/nip19';

export function npubOf(pubkey: string): string {
  return /^[0-9a-f]{64}$/.test(pubkey) ? nip19.npubEncode(pubkey) : pubkey;
}

export function shortKey(pubkey: string): string {
  const npub = npubOf(pubkey);
  return npub.length <= 18 ? npub : `${npub.slice(0, 10)}…${npub.slice(-5)}`;
}

/** Hex of a key that a person typed as npub, nprofile or hex; undefined if it is none. */
export function pubkeyOf(text: string): string | undefined {
  const typed = text.trim().replace(/^nostr:/, '');
  if (/^[0-9a-f]{64}$/i.test(typed)) return typed.toLowerCase();
  try {
    const decoded = nip19.decode(typed);
    if (decoded.type === 'npub') return decoded.data;
    return decoded.type === 'nprofile' ? decoded.data.pubkey : undefined;
  } catch {
    return undefined;
  }
}
