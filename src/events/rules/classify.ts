/** The four classes of events (NIP-01), and the key under which at most one version is effective (I4). */
import { firstTagValue, type NostrEvent } from './event.js';

export type EventClass = 'regular' | 'replaceable' | 'addressable' | 'ephemeral';

export const KIND_DELETION = 5;
export const KIND_VANISH = 62;

export function classify(kind: number): EventClass {
  if (kind === 0 || kind === 3 || (kind >= 10_000 && kind < 20_000)) return 'replaceable';
  if (kind >= 20_000 && kind < 30_000) return 'ephemeral';
  if (kind >= 30_000 && kind < 40_000) return 'addressable';
  return 'regular';
}

/**
 * `kind:pubkey:d`, the address of NIP-01; `d` is empty for a replaceable kind. Undefined for the other
 * classes.
 */
export function addressOf(event: NostrEvent): string | undefined {
  switch (classify(event.kind)) {
    case 'replaceable':
      return `${event.kind}:${event.pubkey}:`;
    case 'addressable':
      return `${event.kind}:${event.pubkey}:${firstTagValue(event, 'd') ?? ''}`;
    default:
      return undefined;
  }
}

/** The kind in an address. */
export function kindOf(address: string): number {
  return Number(address.slice(0, address.indexOf(':')));
}

export interface Version {
  readonly created_at: number;
  readonly id: string;
}

/** Newest `created_at` wins; on a tie the lowest id (NIP-01). The order of arrival does not matter (I4). */
export function isNewer(a: Version, b: Version): boolean {
  return a.created_at !== b.created_at ? a.created_at > b.created_at : a.id < b.id;
}
