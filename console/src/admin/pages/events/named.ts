/** The event that a typed text names: its id, or an address whose versions are listed. */
import * as nip19 from 'nostr-tools/nip19';

export function namedBy(text: string): { readonly id?: string } | undefined {
  const typed = text.replace(/^nostr:/, '');
  if (/^[0-9a-f]{64}$/.test(typed)) return { id: typed };
  if (!/^(note|nevent|naddr)1/.test(typed)) return undefined;
  try {
    const decoded = nip19.decode(typed);
    if (decoded.type === 'note') return { id: decoded.data };
    if (decoded.type === 'nevent') return { id: decoded.data.id };
    return decoded.type === 'naddr' ? {} : undefined;
  } catch {
    return undefined;
  }
}
