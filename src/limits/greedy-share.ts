/**
 * How much of the event loop all greedy clients (work.ts) have together while others use it too. After each piece
 * of their work they rest. An answer to anybody takes several passes of the event loop: without rests each of these
 * passes had a piece of greedy work in it, and the event loop had no pause as long as such work waited (I18).
 *
 * Short pieces have a tenth of the time: they rest for nine times as long. Long ones have less: whoever comes during
 * one waits for the rest of it, so how many wait is its share of the time, and how long they wait is its length. A
 * piece of 10 ms has a hundredth. While only greedy clients are here they do not rest.
 */
const REST_MIN = 9;
/** For each millisecond that a piece takes. */
const REST_PER_MS = 10;
const REST_MS_MAX = 1_000;
/** Others are here for this long after they have asked for something. */
const OTHERS_MS = 1_000;

export class GreedyShare {
  private restsUntilMs = Number.NEGATIVE_INFINITY;
  private othersUntilMs = Number.NEGATIVE_INFINITY;

  /** `now`: a monotonic clock in milliseconds. */
  constructor(private readonly now: () => number = () => performance.now()) {}

  /** A client that is not greedy asks for something. */
  noteOther(): void {
    this.othersUntilMs = this.now() + OTHERS_MS;
  }

  get hasOthers(): boolean {
    return this.now() < this.othersUntilMs;
  }

  /** Greedy work has taken this long. */
  use(tookMs: number): void {
    if (!this.hasOthers) return;
    const now = this.now();
    const restMs = tookMs * Math.max(REST_MIN, tookMs * REST_PER_MS);
    this.restsUntilMs = Math.min(Math.max(now, this.restsUntilMs) + restMs, now + REST_MS_MAX);
  }

  /** Milliseconds until greedy work may continue; 0 when it may. */
  restMs(): number {
    return Math.max(0, this.restsUntilMs - this.now());
  }
}
