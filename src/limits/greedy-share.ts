/**
 * How much of the event loop all greedy clients (work.ts) have together while others use it too. After each
 * piece of their work they rest. An answer to anybody takes several passes of the event loop: without rests
 * each of these passes had a piece of greedy work in it, and the event loop had no pause as long as such work
 * waited (I18).
 *
 * Short pieces have a tenth of the time, one of 10 ms has a hundredth. While only greedy clients are here
 * they do not rest.
 */
import { restMsAfter } from './rules-rest.js';

const REST = { times: 9, timesPerMs: 10, msMax: 1_000 };
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
    const untilMs = Math.max(now, this.restsUntilMs) + restMsAfter(tookMs, REST);
    this.restsUntilMs = Math.min(untilMs, now + REST.msMax);
  }

  /** Milliseconds until greedy work may continue; 0 when it may. */
  restMs(): number {
    return Math.max(0, this.restsUntilMs - this.now());
  }
}

/** Continues greedy work when it has rested. */
export class RestAlarm {
  private timer: NodeJS.Timeout | undefined;

  constructor(
    private readonly share: GreedyShare,
    private readonly goOn: () => void,
  ) {}

  /** At once if nothing has to rest. */
  set(): void {
    const restMs = this.share.restMs();
    if (restMs === 0) this.goOn();
    else
      this.timer ??= setTimeout(() => {
        this.timer = undefined;
        this.goOn();
      }, restMs);
  }
}
