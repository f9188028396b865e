/** Reads how people name an event: its id in hex, or the texts of NIP-19. */
import * as nip19 from 'nostr-tools/nip19';
import { isHex64 } from '../events/rules/event.js';

/** The event or the address that a text names: hex, note, nevent, naddr. */
export type Named =
  | { readonly id: string }
  | { readonly address: { readonly kind: number; readonly author: string; readonly d: string } };

export function parseNamed(text: string): Named | undefined {
  const plain: string = text.startsWith('nostr:') ? text.slice('nostr:'.length) : text;
  const isId: boolean = isHex64(plain);
  if (isId) return { id: plain };
  try {
    const { type, data } = nip19.decode(plain);
    if (type === 'note') return { id: data };
    if (type === 'nevent') return { id: data.id };
    if (type === 'naddr') return { address: { kind: data.kind, author: data.pubkey, d: data.identifier } };
  } catch {
    // Not bech32, or a wrong checksum.
  }
  return undefined;
}
