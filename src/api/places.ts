/**
 * Limits the streams that this process sends at the same time: in total, and per key (I14).
 */
import type { Readable } from 'node:stream';
import { Counts } from '../limits/counts.js';

export interface PlacesMax {
  readonly all: number;
  readonly perKey: number;
  /** The longest duration of a stream: a very slow reader must not hold its place for ever. */
  readonly ms?: number;
}

export class Places {
  private readonly held = new Counts<string>();
  private all = 0;

  constructor(private readonly max: PlacesMax) {}

  hasRoom(keys: readonly string[]): boolean {
    return this.all < this.max.all && keys.every((key) => this.heldBy(key) < this.max.perKey);
  }

  heldBy(key: string): number {
    return this.held.of(key);
  }

  /** Counts the stream until it closes or its time is over. */
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
    for (const key of keys) this.held.add(key, by);
  }
}
