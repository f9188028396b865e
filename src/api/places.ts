/** How much is being sent at the same time in this process: in all, and by each of the keys that it is counted for (I14). */
import type { Readable } from 'node:stream';

export interface PlacesMax {
  readonly all: number;
  readonly perKey: number;
  /** Longest duration of one; a reader who takes a little now and then is not to hold a place for ever. */
  readonly ms?: number;
}

export class Places {
  private readonly held = new Map<string, number>();
  private all = 0;

  constructor(private readonly max: PlacesMax) {}

  hasRoom(keys: readonly string[]): boolean {
    return this.all < this.max.all && keys.every((key) => (this.held.get(key) ?? 0) < this.max.perKey);
  }

  /** Counts it until it closes, by itself or because its time is over. */
  hold(keys: readonly string[], stream: Readable): void {
    this.change(keys, 1);
    const { ms } = this.max;
    const tooLong = ms === undefined ? undefined : setTimeout(() => stream.destroy(), ms).unref();
    stream.once('close', () => {
      clearTimeout(tooLong);
      this.change(keys, -1);
    });
  }

  private change(keys: readonly string[], by: 1 | -1): void {
    this.all += by;
    for (const key of keys) {
      const left = (this.held.get(key) ?? 0) + by;
      if (left === 0) this.held.delete(key);
      else this.held.set(key, left);
    }
  }
}
