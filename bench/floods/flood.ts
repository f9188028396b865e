/**
 * What a flood is: sockets from a few addresses, the messages they send, and the pace, which is the same
 * against the node and against the sink. The messages are made before the flood starts, so that the
 * attacker's process needs little CPU.
 */
import { randomBytes } from 'node:crypto';
import type { BenchEvent, Sign } from '../sign.js';

/** What a flood makes its messages from. */
export interface Material {
  /** Events that the node has stored. */
  readonly stored: readonly BenchEvent[];
  /** The node's port. A signed request names it, even when it is sent to the sink. */
  readonly nodePort: number;
  /** How many different messages to prepare. */
  readonly variants: number;
  readonly sign: Sign;
}

/** What a flood needs to know of one socket of the attacker. */
export interface Attacking {
  /** Counted from 0, for as long as the flood runs. */
  readonly number: number;
  readonly address: string;
  /** The last NIP-42 challenge received. */
  readonly challenge: string;
  /** Messages sent since it was opened. */
  readonly sent: number;
}

export interface Volley {
  /** Sent once, right after the handshake. */
  first?(socket: Attacking): Buffer;
  /** The next message; `index` counts over all sockets. */
  next(index: number, socket: Attacking): Buffer;
}

export interface Flood {
  readonly name: string;
  /** A function where the title names the number of sockets, which differs in a quick run. */
  readonly title: string | ((sockets: number) => string);
  /** For the report, where the target is not met: what makes a well-behaved client wait. */
  readonly cause: string;
  /** How many addresses the sockets come from; 3 by default. */
  readonly addresses?: number;
  /** The addresses are /64 networks of one IPv6 /48, as one customer has. */
  readonly oneNetwork?: true;
  readonly sockets: number;
  /** Messages a second, over all sockets. */
  readonly perSecond: number;
  /** Plain HTTP, not a websocket. */
  readonly http?: true;
  /** The attacker never reads the answers. */
  readonly unread?: true;
  prepare(material: Material): Volley;
}

export const ADDRESSES = 3;

/** How many sockets a flood opens in a run with at most `socketsMax`. */
export function socketsOf({ sockets }: Pick<Flood, 'sockets'>, socketsMax: number): number {
  return Math.min(sockets, socketsMax);
}

export function titleOf(flood: Pick<Flood, 'title' | 'sockets'>, socketsMax: number): string {
  return typeof flood.title === 'string' ? flood.title : flood.title(socketsOf(flood, socketsMax));
}

export const sockets = (count: number): string => `${count.toLocaleString('en')} sockets`;

const FIN = 0x80;
export const OPCODE = { continuation: 0, text: 1, ping: 9, pong: 10 } as const;

/** A frame of a client. The mask is zero, which is valid and leaves the payload unchanged. */
export function clientFrame(payload: Buffer | string, opcode: number = OPCODE.text, isLast = true): Buffer {
  const body = typeof payload === 'string' ? Buffer.from(payload) : payload;
  const [marker, extra] = body.length < 126 ? [body.length, 0] : body.length < 65_536 ? [126, 2] : [127, 8];
  const head = Buffer.alloc(2 + extra + 4);
  head[0] = (isLast ? FIN : 0) | opcode;
  head[1] = 0x80 | marker;
  if (extra === 2) head.writeUInt16BE(body.length, 2);
  if (extra === 8) head.writeBigUInt64BE(BigInt(body.length), 2);
  return Buffer.concat([head, body]);
}

export const message = (value: unknown): Buffer => clientFrame(JSON.stringify(value));

/** Repeats a list of prepared messages. */
export function roundRobin(messages: readonly Buffer[]): Volley {
  return { next: (index) => messages[index % messages.length]! };
}

/** Prepares `count` messages, each made from its number. */
export function prepared(count: number, make: (number: number) => Buffer): Volley {
  return roundRobin(Array.from({ length: count }, (_, number) => make(number)));
}

export function request(
  method: string,
  path: string,
  address: string,
  headers: Readonly<Record<string, string>> = {},
): Buffer {
  const lines = Object.entries({ Host: '127.0.0.1', 'X-Forwarded-For': address, ...headers });
  return Buffer.from(
    `${method} ${path} HTTP/1.1\r\n${lines.map(([name, value]) => `${name}: ${value}\r\n`).join('')}\r\n`,
  );
}

/** The request that opens a WebSocket, from an address behind the proxy. */
export function handshake(address: string): Buffer {
  return request('GET', '/', address, {
    Upgrade: 'websocket',
    Connection: 'Upgrade',
    'Sec-WebSocket-Key': randomBytes(16).toString('base64'),
    'Sec-WebSocket-Version': '13',
  });
}

/** Whether the answer to a handshake accepts it. */
export const isAccepted = (answer: Buffer): boolean => answer.toString('latin1', 0, 12) === 'HTTP/1.1 101';

export const isPing = (frame: Buffer): boolean => frame[0] === (FIN | OPCODE.ping);
export const PONG = clientFrame('', OPCODE.pong);

export const nowSeconds = (): number => Math.floor(Date.now() / 1_000);
