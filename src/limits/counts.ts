/**
 * Counts per key. A key with count 0 is deleted, so that the map does not grow over time (I14).
 */
export class Counts<K> {
  private readonly counts = new Map<K, number>();

  of(key: K): number {
    return this.counts.get(key) ?? 0;
  }

  add(key: K, by: number): void {
    const left = this.of(key) + by;
    if (left > 0) this.counts.set(key, left);
    else this.counts.delete(key);
  }

  /** The key with the highest count above 1; undefined if there is none. */
  largest(): K | undefined {
    let most = 1;
    let largest: K | undefined;
    for (const [key, count] of this.counts)
      if (count > most) {
        most = count;
        largest = key;
      }
    return largest;
  }
}
