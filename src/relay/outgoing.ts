/**
 * The sending side of one socket, bounded (I14). Frames of one turn of the event loop are put together in one
 * buffer and go out in one write. A reader that falls behind is first not fed (live events wait in a bounded
 * backlog, the next portion of stored ones is not looked up), then closed with a NOTICE that says why.
 *
 * Live events are charged to the `LivePayer` of the reader, if there is one (I18). One that is greedy gets
 * them later, from the same backlog, in the turns of its address on the event loop, after its debt.
 */
import type { Duplex } from 'node:stream';
import type { WebSocket } from 'ws';
import { EVENT_FRAME_END, noticeFrame, refusal } from '../events/rules/reply.js';
import type { Metrics } from '../node/metrics.js';
import type { LiveEvent } from './fanout.js';
import { FrameBuffer } from './frame-buffer.js';
import type { Held } from './input/held-bytes.js';
import { WAITING_BYTES, WaitingChanges } from './live/waiting.js';

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
/** The same for one that reads and waits for its turns. Payloads are shared by all who wait for them. */
const SLOWED_BYTES_MAX = 16 * 1_048_576;
/** How long a reader may stay behind before it is closed. */
const BEHIND_MS_MAX = 30_000;
const CLOSE_GRACE_MS = 2_000;
/** A restart is over before clients that try only once try again, after 4 s. */
const CUT_GRACE_MS = 1_000;
/** A slow reader has up to 1 MiB to read before it comes to the reason. */
const SLOW_CLOSE_GRACE_MS = 10_000;
export const CLOSE_SLOW_READER = 4_408;

/** Of the event loop: 3,960 deliveries of a note took 6.3 ms, 450 of 90 kB 45 ms. */
const LIVE_MS = 0.002;
const LIVE_BYTE_MS = 0.000_001_2;
/** The first one to a socket in a pass has it written to: 7 to 11 µs for 1 kB. */
const WRITE_MS = 0.008;
/** So much is charged at once: 50 notes. Charging each of them would be a quarter of its cost. */
const CHARGED_AT_ONCE_MS = 0.1;
/** Live events that are sent in one turn of a greedy reader. */
const TURN_MS = 0.25;
/** One that is not wanted any more. */
const DROPPED_MS = 0.000_5;
/** A debt is looked at this often at most. */
const DEBT_MS_MIN = 50;
const TOO_SLOW = refusal('error', 'closed because you read too slowly; ask again from where you are');
const TOO_MUCH = refusal(
  'rate-limited',
  'closed because your subscriptions get more new events than your share; ask again with narrower filters',
);

/** What it costs to send one live event, without writing to the socket. */
function liveMs(bytes: number): number {
  return LIVE_MS + bytes * LIVE_BYTE_MS;
}

/** Who pays for the live events of a socket. */
export interface LivePayer {
  charge(costMs: number): void;
  /** Until it is out of debt. */
  debtMs(): number;
  isGreedy(): boolean;
  /** Runs at a turn of its address. */
  turn(work: () => void): Promise<void>;
}

const NOBODY: LivePayer = {
  charge: () => undefined,
  debtMs: () => 0,
  isGreedy: () => false,
  turn: async (work) => work(),
};

/** The subscription of a live frame. */
export interface LiveSource {
  /** Is the frame still wanted, with this event in it? */
  isDue(live: LiveEvent | undefined): boolean;
}

export interface LiveFrame {
  readonly source: LiveSource;
  /** The event in it. */
  readonly live: LiveEvent | undefined;
  readonly head: Buffer;
  readonly payload: Buffer;
  readonly end: Buffer | undefined;
}

const END: Buffer = Buffer.from(EVENT_FRAME_END);

export class Outgoing {
  private readonly frames = new FrameBuffer();
  /** Of its subscriptions that are loading. */
  readonly waiting = new WaitingChanges(() => this.note());
  private backlog: LiveFrame[] = [];
  private backlogBytes = 0;
  private unread = 0;
  /** For live events that were sent. */
  private unpaidMs = 0;
  /** It is greedy: live events wait for its turns. */
  private isSlowed = false;
  private isTurnAsked = false;
  private debtTimer: NodeJS.Timeout | undefined;
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
    private readonly payer: LivePayer = NOBODY,
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

  /** Live events: in order, after what already waits. Returns what it took of the event loop, in ms. */
  sendLive(frame: LiveFrame): number {
    if (this.backlog.length === 0 && !this.isSlowed && !this.behind)
      return this.open ? this.putLive(frame) : 0;
    if (this.closing) return 0;
    this.backlog.push(frame);
    frame.live?.waits.hold();
    this.backlogBytes += bytesOf(frame);
    if (this.backlogBytes > (this.behind ? BACKLOG_BYTES_MAX : SLOWED_BYTES_MAX)) this.closeSlow();
    else this.watch();
    this.askTurn();
    return 0;
  }

  /** Charged before it is done, for many at once. */
  private putLive(frame: LiveFrame): number {
    const costMs = liveMs(bytesOf(frame)) + (this.frames.bytes === 0 ? WRITE_MS : 0);
    this.unpaidMs += costMs;
    if (this.unpaidMs >= CHARGED_AT_ONCE_MS) {
      this.payer.charge(this.unpaidMs);
      this.unpaidMs = 0;
      this.isSlowed = this.payer.isGreedy();
    }
    this.put(frame.head, frame.payload, frame.end ?? END);
    return costMs;
  }

  /** For a reader who is slowed: what waits is sent in turns, after its debt. */
  private askTurn(): void {
    if (!this.isSlowed || this.isTurnAsked || this.debtTimer !== undefined) return;
    if (this.backlog.length === 0 || this.behind || !this.open) return;
    const debtMs = this.payer.debtMs();
    if (debtMs > 0) {
      this.debtTimer = setTimeout(() => this.onPaid(), Math.max(debtMs, DEBT_MS_MIN));
      return;
    }
    this.isTurnAsked = true;
    void this.payer.turn(() => this.onTurn()).then(() => this.afterTurn());
  }

  private onPaid(): void {
    this.debtTimer = undefined;
    this.askTurn();
  }

  private onTurn(): void {
    this.feed();
    this.flush();
  }

  private afterTurn(): void {
    this.isTurnAsked = false;
    this.isSlowed = this.payer.isGreedy();
    if (!this.isSlowed) this.feed();
    this.askTurn();
  }

  /** Sends what waits, in order: to a reader who is slowed, for one turn. */
  private feed(): void {
    let fed = 0;
    for (let ms = 0; fed < this.backlog.length && this.open && !this.behind; fed += 1) {
      if (this.isSlowed && ms >= TURN_MS) break;
      const frame = this.backlog[fed]!;
      this.backlogBytes -= bytesOf(frame);
      ms += frame.source.isDue(frame.live) ? this.putLive(frame) : DROPPED_MS;
      frame.live?.waits.release();
    }
    this.backlog.splice(0, fed);
    this.note();
  }

  private dropBacklog(): void {
    for (const { live } of this.backlog) live?.waits.release();
    this.backlog = [];
    this.backlogBytes = 0;
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
    this.unread = unread > this.socket.writableHighWaterMark ? unread : 0;
    this.note();
    if (this.behind) this.behindTimer ??= setTimeout(() => this.closeSlow(), BEHIND_MS_MAX);
  }

  private note(): void {
    this.held.set(this.unread + (this.backlog.length + this.waiting.count) * WAITING_BYTES);
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
    this.dropBacklog();
    this.send(noticeFrame(this.isSlowed && !this.behind ? TOO_MUCH : TOO_SLOW));
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
    this.unread = 0;
    this.note();
    if (this.behind) return;
    clearTimeout(this.behindTimer);
    this.behindTimer = undefined;
    if (!this.isSlowed) this.feed();
    this.askTurn();
    this.releaseWaiters();
  }

  private onClose(): void {
    clearTimeout(this.behindTimer);
    clearTimeout(this.debtTimer);
    this.closing = true;
    this.dropBacklog();
    this.held.leave();
    this.releaseWaiters();
  }

  private releaseWaiters(): void {
    const waiters = this.waiters;
    this.waiters = [];
    for (const resolve of waiters) resolve();
  }
}

function bytesOf({ head, payload, end = END }: LiveFrame): number {
  return head.length + payload.length + end.length;
}
