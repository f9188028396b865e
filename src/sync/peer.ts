/**
 * One connection to another relay, as its client: REQ, EVENT, negentropy and AUTH (NIP-01, 42, 77). The peer
 * is not trusted. Every answer has a deadline (I15). What it may send is bounded: frames by size, events by
 * what was asked for, and what breaks the protocol by number; past a bound the connection ends (I14). While
 * events wait to be stored, its socket is not read.
 */
import WebSocket from 'ws';
import { FRAME_BYTES_MAX } from '../communities/rules-settings.js';
import type { NostrEvent } from '../events/rules/event.js';
import { lookupFor } from './address.js';
import { PeerFailure } from './peer-failure.js';

/** Room for the name of the subscription around the largest event. */
const FRAME_MAX = FRAME_BYTES_MAX + 1_024;
const CONNECT_MS = 10_000;
/** Frames that no request explains, events that were not asked for, broken JSON. */
const OFFENCES_MAX = 100;
/** The part of an offence that a late frame is. */
const LATE_OFFENCE = 0.01;
const ID_PREFIX = 'sync';
const KIND_AUTH = 22_242;
/** A whole answer may take this many times as long as a part of it. */
const WAITS_MAX = 20;

export interface PeerOptions {
  readonly url: string;
  /** Addresses of this machine and of private networks may be used too. */
  readonly allowsPrivate: boolean;
  /** Signs the answer to a challenge (NIP-42). */
  readonly sign: (template: {
    kind: number;
    created_at: number;
    tags: string[][];
    content: string;
  }) => Promise<NostrEvent>;
  /** How long the peer may be silent while an answer is awaited. */
  readonly answerMs: number;
  readonly signal: AbortSignal;
  /** Milliseconds. */
  readonly now: () => number;
}

type Frame = readonly [type: string, ...rest: unknown[]];

/** A request that waits for frames. `take` returns false for a frame that does not belong to it. */
interface Awaiting {
  take(frame: Frame): boolean;
  fail(error: PeerFailure): void;
}

/** In milliseconds: when it was asked, and when a part of the answer last came. */
interface Deadline {
  begunMs: number;
  heardMs: number;
  readonly waitMs: number;
}

export class Peer {
  private readonly awaiting = new Set<Awaiting>();
  /** A subscription to new events has none. */
  private readonly deadlines = new Map<Awaiting, Deadline>();
  private challenge: string | undefined;
  private authenticating: Promise<boolean> | undefined;
  private failure: PeerFailure | undefined;
  private offences = 0;
  private unexplained = 0;
  private serial = 0;
  private isOpen = false;
  private pausedMs: number | undefined;
  private pingedMs: number | undefined;
  private readonly watch: NodeJS.Timeout;
  bytesIn = 0;
  bytesOut = 0;

  private constructor(
    private readonly ws: WebSocket,
    private readonly options: PeerOptions,
  ) {
    ws.on('message', (data: Buffer, isBinary) => {
      this.bytesIn += data.length;
      const frame = isBinary ? undefined : parseFrame(data);
      if (frame === undefined) this.offend('it sends frames that are not a message of a relay');
      else this.take(frame);
    });
    ws.on('pong', () => {
      this.pingedMs = undefined;
    });
    ws.on('close', () => this.fail(new PeerFailure('unreachable', 'the peer closed the connection')));
    ws.on('error', (error: Error) => {
      if (this.isOpen) this.misbehaves(`it breaks the protocol (${error.message})`);
      else this.fail(new PeerFailure('unreachable', error.message));
    });
    options.signal.addEventListener('abort', this.onAbort, { once: true });
    this.watch = setInterval(() => this.checkSilence(), Math.min(1_000, options.answerMs / 4));
  }

  static async connect(options: PeerOptions): Promise<Peer> {
    const { url, signal, allowsPrivate, answerMs } = options;
    signal.throwIfAborted();
    const lookup = lookupFor(url, allowsPrivate);
    const ws = new WebSocket(url, {
      maxPayload: FRAME_MAX,
      perMessageDeflate: false,
      followRedirects: false,
      handshakeTimeout: Math.min(CONNECT_MS, answerMs),
      ...(lookup === undefined ? {} : { lookup }),
    });
    // It listens before the connection is open: a challenge may come with the handshake.
    const peer = new Peer(ws, options);
    // Bounded also where the handshake never begins: the name may not be resolved.
    const late = setTimeout(() => peer.close(), CONNECT_MS + 1_000);
    try {
      await new Promise<void>((resolve, reject) => {
        ws.once('open', resolve);
        peer.awaiting.add({ take: () => false, fail: reject });
      });
    } catch (error) {
      signal.throwIfAborted();
      throw new PeerFailure('unreachable', `${url} cannot be reached (${reasonOf(error)})`);
    } finally {
      clearTimeout(late);
    }
    peer.awaiting.clear();
    peer.isOpen = true;
    return peer;
  }

  /** Sends nothing more and ends every request. */
  close(): void {
    this.fail(new PeerFailure('unreachable', 'the connection was closed'));
  }

  pause(): void {
    this.pausedMs ??= performance.now();
    this.ws.pause();
  }

  /** The time that it was not read does not count as silence. */
  resume(): void {
    if (this.pausedMs === undefined) return;
    const forMs = performance.now() - this.pausedMs;
    this.pausedMs = undefined;
    for (const deadline of this.deadlines.values()) {
      deadline.begunMs += forMs;
      deadline.heardMs += forMs;
    }
    this.ws.resume();
  }

  /** Sends a ping, and fails when the one before was not answered in time: a watched peer is often quiet. */
  async isAlive(): Promise<void> {
    if (this.failure !== undefined) throw this.failure;
    const nowMs = performance.now();
    if (this.pausedMs !== undefined) this.pingedMs = undefined;
    else if (this.pingedMs === undefined) {
      this.pingedMs = nowMs;
      this.ws.ping();
    } else if (nowMs - this.pingedMs > this.options.answerMs)
      this.fail(new PeerFailure('silent', `the peer did not answer within ${this.options.answerMs} ms`));
  }

  // ── Requests ─────────────────────────────────────────────────────────────────────────────────────────────

  /**
   * The stored events of a filter. `onEvent` returns false for an event that was not asked for. Ends with
   * EOSE.
   */
  async request(filter: object, onEvent: (event: unknown) => boolean): Promise<void> {
    const id = this.nextId();
    let isLive = false;
    const done = await this.ask(
      ['REQ', id, filter],
      (frame) => {
        if (frame[1] !== id) return undefined;
        if (frame[0] === 'EOSE') return 'end';
        if (frame[0] === 'CLOSED') return { refused: String(frame[2] ?? '') };
        if (frame[0] !== 'EVENT' || isLive) return undefined;
        if (!onEvent(frame[2])) this.offend('it sends events that were not asked for');
        return 'more';
      },
      () => this.send(['CLOSE', id]),
    );
    isLive = true;
    if (done === 'end') this.send(['CLOSE', id]);
  }

  /** New events until the connection ends or the signal is given. `onStored`: all stored ones were sent. */
  async follow(
    filter: object,
    signal: AbortSignal,
    onEvent: (event: unknown) => boolean,
    onStored: () => void,
  ): Promise<void> {
    const id = this.nextId();
    const awaiting: Awaiting = {
      take: ([type, of, rest]) => {
        if (of !== id) return false;
        if (type === 'EVENT' && !onEvent(rest)) this.offend('it sends events that were not asked for');
        if (type === 'EOSE') onStored();
        if (type === 'CLOSED') this.fail(new PeerFailure('refused', `the peer closed it: ${String(rest)}`));
        return true;
      },
      fail: () => undefined,
    };
    await new Promise<void>((resolve, reject) => {
      const end = () => {
        this.awaiting.delete(awaiting);
        resolve();
      };
      awaiting.fail = reject;
      signal.addEventListener('abort', end, { once: true });
      if (this.failure !== undefined) return reject(this.failure);
      this.awaiting.add(awaiting);
      this.send(['REQ', id, filter]);
    });
    this.send(['CLOSE', id]);
  }

  /** Undefined when the peer accepted the event, or had it already; otherwise why not. */
  async publish(event: { readonly id: string }, payload: string): Promise<string | undefined> {
    let why: string | undefined;
    let hasAsked = false;
    await this.ask(`["EVENT",${payload}]`, ([type, id, accepted, text]) => {
      if (type !== 'OK' || id !== event.id) return undefined;
      why = accepted === true ? undefined : String(text ?? '');
      if (why === undefined || !needsAuth(why) || hasAsked) return 'end';
      hasAsked = true;
      return { refused: why };
    });
    return why;
  }

  /** Opens negentropy and returns the first answer, in hex. */
  negentropy(filter: object, hex: string, waitMs: number): NegentropySession {
    const id = this.nextId();
    const round = (message: Frame, canBeUnknown: boolean): Promise<string> => {
      let answer = '';
      const asked = this.ask(
        message,
        (frame) => {
          if (canBeUnknown && frame[0] === 'NOTICE' && isAboutUnknown(String(frame[1])))
            return { unsupported: String(frame[1]) };
          if (frame[1] !== id) return undefined;
          if (frame[0] === 'NEG-ERR') return negentropyError(String(frame[2] ?? ''));
          if (frame[0] === 'CLOSED') return { unsupported: String(frame[2] ?? '') };
          if (frame[0] !== 'NEG-MSG' || typeof frame[2] !== 'string') return undefined;
          answer = frame[2];
          return 'end';
        },
        undefined,
        canBeUnknown ? waitMs : undefined,
      );
      return asked.then(() => answer);
    };
    return {
      first: () => round(['NEG-OPEN', id, filter, hex], true),
      next: (message) => round(['NEG-MSG', id, message], false),
      close: () => this.send(['NEG-CLOSE', id]),
    };
  }

  // ── Frames ───────────────────────────────────────────────────────────────────────────────────────────────

  /** Authenticates once where the peer asks for it, and asks again. */
  private async ask(
    message: Frame | string,
    take: (frame: Frame) => Step | undefined,
    onGivenUp?: () => void,
    waitMs?: number,
  ): Promise<'end'> {
    for (let tries = 1; ; tries += 1) {
      const end = await this.askOnce(message, take, waitMs).catch((error: unknown) => {
        onGivenUp?.();
        throw error;
      });
      if (end === 'end') return end;
      if ('unsupported' in end) throw new PeerFailure('unsupported', end.unsupported);
      if (tries > 1 || !needsAuth(end.refused) || !(await this.authenticate()))
        throw new PeerFailure('refused', `the peer refuses: ${end.refused.slice(0, 200)}`);
    }
  }

  private askOnce(
    message: Frame | string,
    take: (frame: Frame) => Step | undefined,
    waitMs = this.options.answerMs,
  ): Promise<Exclude<Step, 'more'>> {
    return new Promise((resolve, reject) => {
      if (this.failure !== undefined) return reject(this.failure);
      const begunMs = performance.now();
      const deadline = { begunMs, heardMs: begunMs, waitMs };
      const awaiting: Awaiting = {
        take: (frame) => {
          const step = take(frame);
          if (step === undefined) return false;
          deadline.heardMs = performance.now();
          if (step !== 'more') {
            this.awaiting.delete(awaiting);
            this.deadlines.delete(awaiting);
            resolve(step);
          }
          return true;
        },
        fail: reject,
      };
      this.deadlines.set(awaiting, deadline);
      this.awaiting.add(awaiting);
      this.send(message);
    });
  }

  /** False when there is nothing to answer. Requests that wait for it share one proof. */
  private authenticate(): Promise<boolean> {
    this.authenticating ??= this.prove();
    return this.authenticating;
  }

  private async prove(): Promise<boolean> {
    const { challenge } = this;
    if (challenge === undefined) return false;
    const { sign, url, now } = this.options;
    const event = await sign({
      kind: KIND_AUTH,
      created_at: Math.floor(now() / 1_000),
      tags: [
        ['relay', url],
        ['challenge', challenge],
      ],
      content: '',
    });
    const answer = await this.askOnce(['AUTH', event], ([type, id, accepted, text]) => {
      if (type !== 'OK' || id !== event.id) return undefined;
      return accepted === true ? 'end' : { refused: String(text ?? '') };
    });
    if (answer === 'end') return true;
    const why = 'refused' in answer ? answer.refused : answer.unsupported;
    throw new PeerFailure('refused', `the peer does not accept our key: ${why.slice(0, 200)}`);
  }

  private take(frame: Frame): void {
    if (frame[0] === 'AUTH') {
      if (typeof frame[1] === 'string' && frame[1].length <= 1_024) this.challenge = frame[1];
      return;
    }
    for (const awaiting of [...this.awaiting]) if (awaiting.take(frame)) return;
    // What follows the end of a request crossed its CLOSE.
    const isLate = typeof frame[1] === 'string' && frame[1].startsWith(ID_PREFIX);
    this.unexplained += isLate || frame[0] === 'NOTICE' ? LATE_OFFENCE : 1;
    if (this.unexplained > OFFENCES_MAX) this.misbehaves('it sends frames that no request explains');
  }

  private offend(how: string): void {
    this.offences += 1;
    if (this.offences > OFFENCES_MAX) this.misbehaves(how);
  }

  private misbehaves(how: string): void {
    this.fail(new PeerFailure('misbehaved', `the peer misbehaves: ${how}`));
  }

  private checkSilence(): void {
    if (this.pausedMs !== undefined) return;
    const nowMs = performance.now();
    for (const { begunMs, heardMs, waitMs } of this.deadlines.values()) {
      const isLate = nowMs - heardMs >= waitMs || nowMs - begunMs >= waitMs * WAITS_MAX;
      if (!isLate) continue;
      this.fail(new PeerFailure('silent', `the peer did not answer within ${waitMs} ms`));
      return;
    }
  }

  private send(message: Frame | string): void {
    if (this.ws.readyState !== this.ws.OPEN) return;
    const text = typeof message === 'string' ? message : JSON.stringify(message);
    this.bytesOut += text.length;
    this.ws.send(text);
  }

  private readonly onAbort = (): void => {
    this.fail(new PeerFailure('unreachable', 'stopped'));
  };

  private fail(why: PeerFailure): void {
    if (this.failure !== undefined) return;
    this.failure = why;
    clearInterval(this.watch);
    this.options.signal.removeEventListener('abort', this.onAbort);
    // A peer that hangs never answers a close frame.
    this.ws.terminate();
    const failed = [...this.awaiting];
    this.awaiting.clear();
    this.deadlines.clear();
    for (const awaiting of failed) awaiting.fail(why);
  }

  private nextId(): string {
    this.serial += 1;
    return `${ID_PREFIX}${this.serial}`;
  }
}

export interface NegentropySession {
  first(): Promise<string>;
  next(message: string): Promise<string>;
  close(): void;
}

type Step = 'more' | 'end' | { readonly refused: string } | { readonly unsupported: string };

function needsAuth(why: string): boolean {
  return why.startsWith('auth-required:');
}

/** `blocked` without a reason that is about this query: the peer has turned it off. */
function negentropyError(why: string): Step {
  return /negentropy|disabled|unsupported/i.test(why) ? { unsupported: why } : { refused: why };
}

/** What relays say that do not know the message. */
function isAboutUnknown(notice: string): boolean {
  return /negentropy|NEG-|bad msg|unknown|unrecogni|unsupported|invalid/i.test(notice);
}

function parseFrame(data: Buffer): Frame | undefined {
  try {
    const frame: unknown = JSON.parse(data.toString());
    return Array.isArray(frame) && typeof frame[0] === 'string' ? (frame as unknown as Frame) : undefined;
  } catch {
    return undefined;
  }
}

export function reasonOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
