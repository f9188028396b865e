/**
 * Checks what arrives on one socket before anything is done with it: it is charged to the sender (I18) and
 * bounded (I14). An unfinished message has a deadline and counts against the budget of all input; control
 * frames have a rate.
 */
import { BYTE_MS, CONTROL_MS, FRAME_MS, READ_MS } from '../../limits/costs.js';
import type { Work } from '../../limits/work.js';
import { FrameMeter } from './frame-meter.js';
import type { Held } from './held-bytes.js';
import type { Client } from './incoming.js';

/** Pings and pongs of one connection; each beyond is an offence. Clients ping once in some seconds. */
export const CONTROLS_BURST = 100;
const CONTROLS_PER_SECOND = 10;
/**
 * A message has this long from its first byte on, and a second more for every 4 KiB of it: half a megabyte
 * over GPRS arrives.
 */
export const UNFINISHED_MS_MAX = 30_000;
const UNFINISHED_BYTES_PER_SECOND = 4_096;
const UNFINISHED_MS_LIMIT = 150_000;
/** Browsers cut a message into pieces of 128 KiB, some libraries into pieces of 4 KiB. */
export const FRAGMENTS_MAX = 256;
/** Reads of the socket that one frame may take: a megabyte in the smallest segments that TCP knows of. */
export const FRAME_READS_MAX = 2_048;

export interface ArrivalsOptions {
  readonly client: Client;
  readonly work: Work;
  readonly held: Held;
  readonly isExempt: () => boolean;
  /** The connection is to be closed, with this reason. */
  readonly reject: (why: string) => void;
}

export class Arrivals {
  private readonly meter = new FrameMeter();
  private waitingBytes = 0;
  private controls = 0;
  private controlsAt = performance.now();

  constructor(private readonly options: ArrivalsOptions) {}

  /** False when the client had closed the connection itself: nothing may follow. */
  take(chunk: Buffer): boolean {
    const { meter } = this;
    if (meter.closed) return false;
    const now = performance.now();
    meter.take(chunk, now);
    this.hold();
    const { client, work, isExempt, reject } = this.options;
    if (meter.fragments > FRAGMENTS_MAX) reject(`invalid: a message of more than ${FRAGMENTS_MAX} fragments`);
    if (isExempt()) return true;
    const { frames, controls } = meter;
    work.charge(client, READ_MS + frames * FRAME_MS + controls * CONTROL_MS + chunk.length * BYTE_MS);
    if (controls === 0) return true;
    const beyond = this.countControls(controls, now);
    if (beyond > 0 && work.offend(client, beyond)) reject('rate-limited: too many pings and pongs');
    return true;
  }

  /** Bytes of complete messages that are not processed yet. */
  wait(bytes: number): void {
    this.waitingBytes = bytes;
    this.hold();
  }

  /** Nothing more arrives. Waiting messages are still processed. */
  end(): void {
    this.meter.end();
    this.hold();
  }

  /** The socket was not read for this time. */
  postpone(ms: number): void {
    this.meter.postpone(ms);
  }

  /** The client has started a message and does not finish it. */
  isOverdue(): boolean {
    const { begunMs, heldBytes } = this.meter;
    if (begunMs === undefined) return false;
    const allowed = UNFINISHED_MS_MAX + (heldBytes / UNFINISHED_BYTES_PER_SECOND) * 1_000;
    return performance.now() - begunMs > Math.min(allowed, UNFINISHED_MS_LIMIT);
  }

  private hold(): void {
    this.options.held.set(this.meter.heldBytes + this.waitingBytes);
  }

  /** How many of them exceed the rate. */
  private countControls(controls: number, now: number): number {
    const drained = ((now - this.controlsAt) / 1_000) * CONTROLS_PER_SECOND;
    this.controlsAt = now;
    this.controls = Math.max(0, this.controls - drained) + controls;
    const beyond = Math.max(0, Math.ceil(this.controls - CONTROLS_BURST));
    this.controls -= beyond;
    return beyond;
  }
}
