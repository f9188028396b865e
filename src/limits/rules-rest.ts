/**
 * How long work that others wait for rests after each piece. The share of the time that it has is how many of
 * the others meet a piece, and the length of the piece is how long they wait. So short pieces have a fixed
 * share, and the longer a piece is, the smaller its share: 10 ms in each 100 would be in everybody's p99.
 */
export interface Rest {
  /** The least rest, as a multiple of the piece. */
  readonly times: number;
  /** The multiple for each millisecond of the piece, where that is more. */
  readonly timesPerMs: number;
  readonly msMax: number;
}

export function restMsAfter(tookMs: number, { times, timesPerMs, msMax }: Rest): number {
  return Math.min(msMax, tookMs * Math.max(times, tookMs * timesPerMs));
}
