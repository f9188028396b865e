/**
 * The sending side of one socket, bounded (I14). Frames of one turn of the event loop are put together in one
 * buffer and go out in one write. A reader that falls behind is first not fed (live events wait in a bounded
 * backlog, the next portion of stored ones is not looked up), then closed with a NOTICE that says why.
 */
import type { Duplex } from 'node:stream';
import type { WebSocket } from 'ws';
import { EVENT_FRAME_END, noticeFrame, refusal } from '../events/rules/reply.js';
import type { Metrics } from '../node/metrics.js';
import { FrameBuffer } from './frame-buffer.js';
import type { Held } from './input/held-bytes.js';

/** Above this the reader is behind: nothing more is fed until it has read. */
const BUFFER_BYTES_MAX = 1_048_576;
/** The same while memory for all readers is short, or this reader's address holds more than its share. */
const BUFFER_BYTES_SHORT = 65_536;
/**
 * Above this the next portion of a stored answer waits: the buffers of the system are full, so that waiting
 * costs a reader nothing.
 */
const FED_BYTES = 65_536;
/** How long a portion may wait: 320 KiB at 5.5 kB/s. */
const FED_MS_MAX = 60_000;
/** Live events that wait while the reader is behind. */
const BACKLOG_BYTES_MAX = 4 * 1_048_576;
/** How long a reader may stay behind before it is closed. */
const BEHIND_MS_MAX = 30_000;
const CLOSE_GRACE_MS = 2_000;
/** A restart is over before clients that try only once try again, after 4 s. */
const CUT_GRACE_MS = 1_000;
/** A slow reader has up to 1 MiB to read before it comes to the reason. */
const SLOW_CLOSE_GRACE_MS = 10_000;
export const CLOSE_SLOW_READER = 4_408;

const END: Buffer = Buffer.from(EVENT_FRAME_END);

interface Waiting {
  readonly head: Buffer;
  readonly payload: Buffer;
  readonly end: Buffer;
}

export class Outgoing {
  private readonly frames = new FrameBuffer();
  private backlog: Waiting[] = [];
  private backlogBytes = 0;
  private behindTimer: NodeJS.Timeout | undefined;
  private waiters: (() => void)[] = [];
  private closing = false;
  private readonly held: Held;
  private pongDue: Buffer | undefined;

  constructor(
    private readonly ws: WebSocket,
    private readonly socket: Duplex,
    private readonly metrics: Metrics,
    join: (giveUp: () => void) => Held,
  ) {
    this.held = join(() => this.giveUp());
    socket.on('drain', () => this.onDrain());
    socket.on('close', () => this.onClose());
  }

  /**
   * True while the reader has more than its share unread. One that is being closed is not waited for any
   * more.
   */
  get behind(): boolean {
    if (!this.open) return false;
    const unread = this.ws.bufferedAmount + this.frames.bytes;
    return unread > BUFFER_BYTES_SHORT && (unread > BUFFER_BYTES_MAX || this.held.isShort);
  }

  /** The socket has not taken the last portion of an answer yet. */
  get isFed(): boolean {
    return this.open && this.ws.bufferedAmount + this.frames.bytes > FED_BYTES;
  }

  private get open(): boolean {
    return !this.closing && this.ws.readyState === this.ws.OPEN;
  }

  /**
   * Answers to the client's own messages; its reading is stopped while it is behind, so these are bounded by
   * it.
   */
  send(frame: string): void {
    if (!this.open) return;
    this.put(Buffer.from(frame));
  }

  /** A stored event; whoever sends them waits for `taken` between two portions. */
  sendEvent(head: Buffer, payload: Buffer, end = END): void {
    if (!this.open) return;
    this.put(head, payload, end);
  }

  /** Live events: in order, after what already waits. */
  sendLive(head: Buffer, payload: Buffer, end = END): void {
    if (this.backlog.length === 0 && !this.behind) {
      this.sendEvent(head, payload, end);
      return;
    }
    if (this.closing) return;
    this.backlog.push({ head, payload, end });
    this.backlogBytes += head.length + payload.length + end.length;
    if (this.backlogBytes > BACKLOG_BYTES_MAX) this.closeSlow();
    else this.watch();
  }

  private put(...parts: readonly Buffer[]): void {
    let length = 0;
    for (const part of parts) length += part.length;
    if (this.frames.isFullFor(length)) this.flush();
    if (this.frames.bytes === 0) process.nextTick(() => this.flush());
    this.frames.add(parts, length);
  }

  /** Writes what was sent in this turn of the event loop now, so that `isFed` says what the socket takes. */
  flush(): void {
    const frames = this.frames.take();
    if (frames === undefined) return;
    if (this.ws.readyState !== this.ws.OPEN) {
      frames.release();
      return;
    }
    this.metrics.bytesOut.inc(frames.bytes.length);
    this.socket.write(frames.bytes, frames.release);
    this.watch();
  }

  /** Answers a ping, the last one of a turn (RFC 6455, 5.5.3), unless the peer does not read the answers. */
  pong(data: Buffer): void {
    if (this.closing || this.behind) return;
    if (this.pongDue === undefined) process.nextTick(() => this.sendPong());
    this.pongDue = data;
  }

  private sendPong(): void {
    const data = this.pongDue;
    this.pongDue = undefined;
    if (!this.open) return;
    this.ws.pong(data);
    this.watch();
  }

  private watch(): void {
    const unread = this.ws.bufferedAmount;
    // The rest of a small write is on its way, and nobody says when it has gone.
    this.held.set(unread > this.socket.writableHighWaterMark ? unread : 0);
    if (this.behind) this.behindTimer ??= setTimeout(() => this.closeSlow(), BEHIND_MS_MAX);
  }

  /** Resolves when there is room again, or the socket is gone. */
  room(): Promise<void> {
    // A write that the system takes at once is followed by no `drain`.
    this.flush();
    if (!this.behind) return Promise.resolve();
    this.watch();
    return new Promise((resolve) => this.waiters.push(resolve));
  }

  /** Resolves when the socket has taken what was sent, or is gone. */
  async taken(): Promise<void> {
    this.flush();
    if (!this.isFed) return;
    const late = setTimeout(() => this.closeSlow(), FED_MS_MAX);
    await new Promise<void>((resolve) => this.waiters.push(resolve));
    clearTimeout(late);
  }

  /** Says why, then closes; a peer that does not answer is cut off. */
  close(code: number, why: string, graceMs = CLOSE_GRACE_MS): void {
    if (this.closing) return;
    this.flush();
    this.closing = true;
    this.ws.close(code, why);
    setTimeout(() => this.ws.terminate(), graceMs).unref();
  }

  /** Ends the stream after what is due, without a goodbye; a peer that does not read it is cut off. */
  cut(): void {
    if (this.closing) return;
    this.flush();
    this.closing = true;
    this.socket.end();
    setTimeout(() => this.ws.terminate(), CUT_GRACE_MS).unref();
  }

  private closeSlow(): void {
    if (this.closing) return;
    this.metrics.slowReaders.inc();
    this.backlog = [];
    this.send(
      noticeFrame(refusal('error', 'closed because you read too slowly; ask again from where you are')),
    );
    this.close(CLOSE_SLOW_READER, 'slow reader', SLOW_CLOSE_GRACE_MS);
  }

  /**
   * All unread answers together are too large, and those of this client exceed its share. A NOTICE would wait
   * behind what it has not read, so the socket is cut.
   */
  private giveUp(): void {
    this.metrics.slowReaders.inc();
    this.ws.terminate();
  }

  private onDrain(): void {
    this.held.set(0);
    if (this.behind) return;
    clearTimeout(this.behindTimer);
    this.behindTimer = undefined;
    const waiting = this.backlog;
    this.backlog = [];
    this.backlogBytes = 0;
    for (const { head, payload, end } of waiting) this.sendLive(head, payload, end);
    this.releaseWaiters();
  }

  private onClose(): void {
    clearTimeout(this.behindTimer);
    this.backlog = [];
    this.closing = true;
    this.held.leave();
    this.releaseWaiters();
  }

  private releaseWaiters(): void {
    const waiters = this.waiters;
    this.waiters = [];
    for (const resolve of waiters) resolve();
  }
}
