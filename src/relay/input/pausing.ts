/**
 * Pauses the reading of a client's socket (I14, I18): while the client has too much in progress, does not
 * read its replies, or is in debt.
 */
import type { WebSocket } from 'ws';
import type { Outgoing } from '../outgoing.js';

/** A client in debt is checked this often at most. */
const DEBT_MS_MIN = 50;

export interface PausingOptions {
  readonly ws: WebSocket;
  readonly outgoing: Outgoing;
  /** Too much of the client is in progress or waiting. */
  readonly isFull: () => boolean;
  /** How long it must wait because of its debt; 0 when it has none. */
  readonly debtMs: () => number;
  /** The debt is paid: waiting frames can be processed. */
  readonly onPaid: () => void;
  /** The socket is read again, after this many milliseconds. */
  readonly onResume: (pausedMs: number) => void;
  /** The client disconnected in debt: what it sent is not processed. */
  readonly onLeftInDebt: () => void;
}

export class Pausing {
  private paused = false;
  private pausedAt = 0;
  private debtTimer: NodeJS.Timeout | undefined;
  private awaitingRoom = false;
  private stopped = false;
  private gone = false;

  constructor(private readonly options: PausingOptions) {}

  get isPaused(): boolean {
    return this.paused;
  }

  /** True until the debt is paid; then reading resumes automatically. */
  isInDebt(): boolean {
    if (this.debtTimer !== undefined) return true;
    const waitMs = this.options.debtMs();
    if (waitMs === 0) return false;
    if (this.gone) this.options.onLeftInDebt();
    else this.debtTimer = setTimeout(() => this.endDebt(), Math.max(waitMs, DEBT_MS_MIN));
    return true;
  }

  private endDebt(): void {
    this.debtTimer = undefined;
    this.options.onPaid();
    this.regulate();
  }

  regulate(): void {
    if (this.stopped) return;
    const { ws, outgoing, isFull, onResume } = this.options;
    const { behind } = outgoing;
    if (behind) this.awaitRoom();
    const full = behind || isFull() || this.isInDebt();
    if (full === this.paused) return;
    this.paused = full;
    if (full) {
      this.pausedAt = performance.now();
      ws.pause();
    } else {
      onResume(performance.now() - this.pausedAt);
      ws.resume();
    }
  }

  private awaitRoom(): void {
    if (this.awaitingRoom) return;
    this.awaitingRoom = true;
    void this.options.outgoing.room().then(() => {
      this.awaitingRoom = false;
      this.regulate();
    });
  }

  /** The client was rejected: its socket is never read again. */
  stop(): void {
    this.stopped = true;
    this.options.ws.pause();
  }

  /** The connection has ended. */
  leave(): void {
    this.gone = true;
    if (this.debtTimer !== undefined) this.options.onLeftInDebt();
    clearTimeout(this.debtTimer);
    this.debtTimer = undefined;
  }
}
