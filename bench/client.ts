/**
 * The load generator's side of a WebSocket. It shares the machine with the relay, so it does as little as
 * possible per frame: it keeps frames as bytes, reads their type from two bytes, and parses only unusual
 * answers.
 */
import { WebSocket } from 'ws';
import type { Outgoing } from './corpus.js';

const OPEN_TIMEOUT_MS = 30_000;
/** If the relay sends nothing for this time while answers are due, they count as lost. */
export const STALL_MS = 120_000;

export type FrameType = 'EVENT' | 'EOSE' | 'OK' | 'COUNT' | 'CLOSED' | 'NOTICE' | 'other';

export class Connection {
  /** Set by the current user of the connection. */
  onFrame: (frame: Buffer) => void = () => {};
  onLost: (why: Error) => void = () => {};
  readonly #socket: WebSocket;

  private constructor(socket: WebSocket) {
    this.#socket = socket;
    socket.on('message', (data) => this.onFrame(data as Buffer));
    socket.on('error', (error) => this.onLost(error));
    socket.on('close', (code, reason) => this.onLost(new Error(`the relay closed: ${code} ${reason}`)));
  }

  static open(url: string, headers: Readonly<Record<string, string>> = {}): Promise<Connection> {
    const socket = new WebSocket(url, {
      headers,
      perMessageDeflate: false,
      skipUTF8Validation: true,
      handshakeTimeout: OPEN_TIMEOUT_MS,
    });
    return new Promise((resolve, reject) => {
      socket.once('error', reject);
      socket.once('open', () => {
        socket.off('error', reject);
        resolve(new Connection(socket));
      });
    });
  }

  send(frame: Buffer | string): void {
    this.#socket.send(frame, TEXT);
  }

  close(): void {
    this.onLost = () => {};
    this.onFrame = () => {};
    this.#socket.terminate();
  }
}
const TEXT = { binary: false };

/** Opens connections for `work` and closes them in every case. */
export async function withConnections<T>(
  url: string,
  count: number,
  work: (connections: Connection[]) => Promise<T>,
): Promise<T> {
  const connections: Connection[] = [];
  try {
    while (connections.length < count) connections.push(await Connection.open(url));
    return await work(connections);
  } finally {
    for (const connection of connections) connection.close();
  }
}

/** `["EVENT"` and `["EOSE"` differ in their second letter; so do all the others. */
export function frameType(frame: Buffer): FrameType {
  switch ((frame[2]! << 8) | frame[3]!) {
    case 0x4556:
      return 'EVENT';
    case 0x454f:
      return 'EOSE';
    case 0x4f4b:
      return 'OK';
    case 0x434f:
      return 'COUNT';
    case 0x434c:
      return 'CLOSED';
    case 0x4e4f:
      return 'NOTICE';
    default:
      return 'other';
  }
}

const QUOTE = 0x22;
const ID_KEY = Buffer.from('"id":"');

/** The second element of a frame: the subscription of an EVENT or EOSE. */
export function subscriptionOf(frame: Buffer): string {
  const start = frame.indexOf(QUOTE, frame.indexOf(QUOTE, 2) + 1) + 1;
  return frame.toString('latin1', start, frame.indexOf(QUOTE, start));
}

/**
 * The id of the event in an EVENT frame. Inside a JSON string the quotes are escaped, so only the key itself
 * matches.
 */
export function eventIdOf(frame: Buffer): string {
  const start = frame.indexOf(ID_KEY) + ID_KEY.length;
  return frame.toString('latin1', start, start + 64);
}

export interface Ok {
  readonly id: string;
  readonly accepted: boolean;
  readonly message: string;
}

/** `["OK","<64 hex>",true,""]` is 81 bytes; anything else is parsed. */
export function readOk(frame: Buffer): Ok {
  if (frame.length === 81 && frame[73] === 0x74 && frame[6] === QUOTE) {
    return { id: frame.toString('latin1', 7, 71), accepted: true, message: '' };
  }
  const [, id, accepted, message] = JSON.parse(frame.toString()) as [string, string, boolean, string?];
  return { id, accepted: accepted === true, message: message ?? '' };
}

export interface Published {
  readonly seconds: number;
  readonly latenciesMs: number[];
  readonly refused: string[];
  /** Events that the relay had already; a fresh relay has none. */
  readonly duplicates: number;
  /** Replaceable events that a newer version superseded. */
  readonly superseded: number;
  readonly notices: string[];
}

/**
 * Publishes all events, with up to `inFlight` unanswered on each connection, and waits for every OK.
 * Connections take the next event from one list, so a slow one does not delay the others.
 */
export async function publish(
  connections: readonly Connection[],
  events: readonly Outgoing[],
  inFlight: number,
): Promise<Published> {
  const run = new PublishRun(events);
  const startMs = performance.now();
  await untilSettled((progress, reject) => {
    const lanes = connections.map((connection) => run.attach(connection, inFlight, progress, reject));
    return Promise.all(lanes);
  }, `waiting for OK`);
  return { seconds: (performance.now() - startMs) / 1000, ...run.outcome() };
}

class PublishRun {
  readonly #events: readonly Outgoing[];
  readonly #latenciesMs: number[] = [];
  readonly #refused: string[] = [];
  readonly #notices: string[] = [];
  #next = 0;
  #duplicates = 0;
  #superseded = 0;

  constructor(events: readonly Outgoing[]) {
    this.#events = events;
  }

  outcome(): Omit<Published, 'seconds'> {
    return {
      latenciesMs: this.#latenciesMs,
      refused: this.#refused,
      duplicates: this.#duplicates,
      superseded: this.#superseded,
      notices: this.#notices,
    };
  }

  /** Resolves when the list is empty and everything this connection sent is answered. */
  attach(
    connection: Connection,
    inFlight: number,
    progress: () => void,
    reject: (why: Error) => void,
  ): Promise<void> {
    const pending = new Map<string, { sentMs: number; event: Outgoing }>();
    const sendNext = (): void => {
      const event = this.#events[this.#next++];
      if (event === undefined) return;
      pending.set(event.id, { sentMs: performance.now(), event });
      connection.send(event.frame);
    };
    return new Promise((resolve) => {
      connection.onLost = reject;
      connection.onFrame = (frame) => {
        const type = frameType(frame);
        if (type === 'NOTICE') this.#notices.push(frame.toString());
        if (type !== 'OK') return;
        progress();
        const ok = readOk(frame);
        const sent = pending.get(ok.id);
        if (sent === undefined) return void this.#refused.push(`an OK that was not due: ${frame}`);
        pending.delete(ok.id);
        this.#latenciesMs.push(performance.now() - sent.sentMs);
        if (!ok.accepted || ok.message !== '') this.#sort(ok, sent.event);
        sendNext();
        if (pending.size === 0) resolve();
      };
      for (let sent = 0; sent < inFlight; sent++) sendNext();
      if (pending.size === 0) resolve();
    });
  }

  /** Relays answer a superseded version differently: `duplicate:` with true, or `replaced:` with false. */
  #sort(ok: Ok, event: Outgoing): void {
    const known = /^(duplicate|replaced):/.test(ok.message);
    if (known && event.replaceable) this.#superseded++;
    else if (ok.message.startsWith('duplicate:')) this.#duplicates++;
    else if (!ok.accepted) this.#refused.push(`${ok.id}: ${ok.message}`);
  }
}

/** Runs `start` and fails when `progress` was not called for STALL_MS. */
export async function untilSettled<T>(
  start: (progress: () => void, reject: (why: Error) => void) => Promise<T>,
  what: string,
  stallMs = STALL_MS,
): Promise<T> {
  let lastMs = performance.now();
  let watch: NodeJS.Timeout | undefined;
  try {
    return await new Promise<T>((resolve, reject) => {
      watch = setInterval(() => {
        if (performance.now() - lastMs > stallMs)
          reject(new Error(`stalled ${stallMs / 1000} s while ${what}`));
      }, STALL_CHECK_MS);
      const progress = (): void => {
        lastMs = performance.now();
      };
      start(progress, reject).then(resolve, reject);
    });
  } finally {
    clearInterval(watch);
  }
}
const STALL_CHECK_MS = 250;
