/** Lists of kinds as they are written in settings: numbers, and ranges such as "10000-19999". Pure. */

/**
 * NIP-46: messages between a client and a remote signer. Both use keys that need not be members, and a member
 * may use them to sign in, so they need neither a topic nor consent.
 */
export const KIND_REMOTE_SIGNING = 24_133;

export type KindEntry = number | string;
export type KindRange = readonly [from: number, to: number];

/** The list of a setting never changes in place, so it is parsed once. */
const known = new WeakMap<readonly KindEntry[], readonly KindRange[]>();

export function kindRanges(entries: readonly KindEntry[]): readonly KindRange[] {
  let ranges = known.get(entries);
  if (ranges === undefined) {
    ranges = entries.map((entry): KindRange => {
      const [from, to = from] = String(entry).split('-').map(Number) as [number, number?];
      return [from, to];
    });
    known.set(entries, ranges);
  }
  return ranges;
}

export function isAmong(kind: number, entries: readonly KindEntry[]): boolean {
  return isWithin(kind, kindRanges(entries));
}

export function isWithin(kind: number, ranges: readonly KindRange[]): boolean {
  for (const range of ranges) if (kind >= range[0] && kind <= range[1]) return true;
  return false;
}
