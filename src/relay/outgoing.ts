/**
 * The sending side of one socket, bounded (I14). Frames of one turn of the event loop go out in one write.
 * A reader that falls behind is first not fed (live events wait in a bounded backlog, stored ones are not read from the
 * database), then closed with a NOTICE that says why.
 */
import type { Duplex } from 'node:stream';
import type { WebSocket } from 'ws';
import { noticeFrame, refusal } from '../core/reply.js';
import type { Metrics } from '../metrics.js';

/** Above this the reader is behind: nothing more is fed until it has read. */
const BUFFER_BYTES_MAX = 1_048_576;
/** Live events that wait while the reader is behind. */
const BACKLOG_BYTES_MAX = 4 * 1_048_576;
/** How long a reader may stay behind before it is closed. */
const BEHIND_MS_MAX = 30_000;
const CLOSE_GRACE_MS = 2_000;
/** A slow reader has up to 1 MiB to read before it comes to the reason. */
const SLOW_CLOSE_GRACE_MS = 10_000;
export const CLOSE_SLOW_READER = 4_408;

export class Outgoing {
  private corked = false;
  private backlog: string[] = [];
  private backlogBytes = 0;
  private behindTimer: NodeJS.Timeout | undefined;
  private waiters: (() => void)[] = [];
  private closing = false;

  constructor(
    private readonly ws: WebSocket,
    private readonly socket: Duplex,
    private readonly metrics: Metrics,
  ) {
    socket.on('drain', () => this.onDrain());
    socket.on('close', () => this.onClose());
  }

  /** True while the reader has more than its share unread. */
  get behind(): boolean {
    return this.ws.bufferedAmount > BUFFER_BYTES_MAX;
  }

  /** Answers to the client's own messages; its reading is stopped while it is behind, so these are bounded by it. */
  send(frame: string): void {
    if (this.closing || this.ws.readyState !== this.ws.OPEN) return;
    if (!this.corked) {
      this.corked = true;
      this.socket.cork();
      process.nextTick(() => {
        this.corked = false;
        this.socket.uncork();
      });
    }
    this.metrics.bytesOut.inc(Buffer.byteLength(frame));
    this.ws.send(frame);
    this.watch();
  }

  /** Answers a ping, unless the peer does not read the answers. */
  pong(data: Buffer): void {
    if (this.closing || this.behind) return;
    this.ws.pong(data);
    this.watch();
  }

  private watch(): void {
    if (this.behind) this.behindTimer ??= setTimeout(() => this.closeSlow(), BEHIND_MS_MAX);
  }

  /** Live events: in order, after what already waits. */
  sendLive(frame: string): void {
    if (this.backlog.length === 0 && !this.behind) {
      this.send(frame);
      return;
    }
    if (this.closing) return;
    this.backlog.push(frame);
    this.backlogBytes += Buffer.byteLength(frame);
    if (this.backlogBytes > BACKLOG_BYTES_MAX) this.closeSlow();
  }

  /** Resolves when there is room again, or the socket is gone. */
  room(): Promise<void> {
    if (!this.behind || this.closing || this.ws.readyState !== this.ws.OPEN) return Promise.resolve();
    return new Promise((resolve) => this.waiters.push(resolve));
  }

  /** Says why, then closes; a peer that does not answer is cut off. */
  close(code: number, why: string, graceMs = CLOSE_GRACE_MS): void {
    if (this.closing) return;
    this.closing = true;
    this.ws.close(code, why);
    setTimeout(() => this.ws.terminate(), graceMs).unref();
  }

  private closeSlow(): void {
    if (this.closing) return;
    this.metrics.slowReaders.inc();
    this.backlog = [];
    this.ws.send(
      noticeFrame(refusal('error', 'closed because you read too slowly; ask again from where you are')),
    );
    this.close(CLOSE_SLOW_READER, 'slow reader', SLOW_CLOSE_GRACE_MS);
  }

  private onDrain(): void {
    if (this.behind) return;
    clearTimeout(this.behindTimer);
    this.behindTimer = undefined;
    const frames = this.backlog;
    this.backlog = [];
    this.backlogBytes = 0;
    for (const frame of frames) this.sendLive(frame);
    this.releaseWaiters();
  }

  private onClose(): void {
    clearTimeout(this.behindTimer);
    this.backlog = [];
    this.closing = true;
    this.releaseWaiters();
  }

  private releaseWaiters(): void {
    const waiters = this.waiters;
    this.waiters = [];
    for (const resolve of waiters) resolve();
  }
}
