/** Finds any of many texts at any place of another, in one pass with a rolling hash (Rabin and Karp). */

/** The shortest text that is looked for. */
export const FOUND_LENGTH_MIN = 16;
const BASE = 0x01_00_01_93;
const OLDEST = Array.from({ length: FOUND_LENGTH_MIN - 1 }).reduce<number>((all) => Math.imul(all, BASE), 1);
/** Nearly every place ends here, without a look into the map. */
const BITS = 18;

export class Finder {
  private readonly mayBegin = new Uint8Array(1 << BITS);
  private readonly byBeginning = new Map<number, Set<string>>();

  add(wanted: string): void {
    if (wanted.length < FOUND_LENGTH_MIN) throw new Error('too short to be found');
    const hash = hashOfBeginning(wanted);
    this.mayBegin[hash >>> (32 - BITS)] = 1;
    const known = this.byBeginning.get(hash);
    if (known === undefined) this.byBeginning.set(hash, new Set([wanted]));
    else known.add(wanted);
  }

  findIn(text: string, found: (wanted: string) => void): void {
    if (this.byBeginning.size === 0 || text.length < FOUND_LENGTH_MIN) return;
    let hash = hashOfBeginning(text);
    for (let at = 0, next = FOUND_LENGTH_MIN; ; at += 1, next += 1) {
      if (this.mayBegin[hash >>> (32 - BITS)] === 1)
        for (const wanted of this.byBeginning.get(hash) ?? []) if (text.startsWith(wanted, at)) found(wanted);
      if (next === text.length) return;
      const rest = hash - Math.imul(text.charCodeAt(at), OLDEST);
      hash = (Math.imul(rest, BASE) + text.charCodeAt(next)) | 0;
    }
  }
}

function hashOfBeginning(text: string): number {
  let hash = 0;
  for (let at = 0; at < FOUND_LENGTH_MIN; at += 1) hash = (Math.imul(hash, BASE) + text.charCodeAt(at)) | 0;
  return hash;
}
