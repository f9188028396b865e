/** A WebSocket client without a library: the test chooses every byte of every frame. */
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';

export const TEXT = 0x1;
export const BINARY = 0x2;
export const CONTINUATION = 0x0;
export const CLOSE = 0x8;
export const PING = 0x9;
export const PONG = 0xa;
const MASK = 0x5a;

/** A masked frame. `claimed` is a wrong length for its head. */
export function frame(
  opcode: number,
  payload: string | Buffer = '',
  { fin = true, claimed }: { fin?: boolean; claimed?: number } = {},
): Buffer {
  const body = Buffer.from(payload);
  const length = claimed ?? body.length;
  const first = (fin ? 0x80 : 0) | opcode;
  const head =
    length < 126
      ? Buffer.from([first, 0x80 | length])
      : length < 65_536
        ? Buffer.from([first, 0x80 | 126, length >> 8, length & 255])
        : Buffer.concat([Buffer.from([first, 0x80 | 127]), bigEndian(length)]);
  const mask = Buffer.alloc(4, MASK);
  return Buffer.concat([head, mask, body.map((byte) => byte ^ MASK)]);
}

function bigEndian(length: number): Buffer {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64BE(BigInt(length));
  return bytes;
}

export interface ServerFrame {
  readonly opcode: number;
  readonly payload: Buffer;
}

export class RawSocket {
  /** The status of the answer to the handshake, and its head. */
  status = 0;
  head = '';
  gone = false;
  /** Complete frames of the server so far. The client answers pings. */
  readonly frames: ServerFrame[] = [];
  private received: Buffer = Buffer.alloc(0);

  private constructor(readonly socket: Socket) {
    socket.on('data', (chunk) => {
      this.received = Buffer.concat([this.received, chunk]);
      if (this.status === 0) this.readHead();
      if (this.status === 101) this.readFrames();
    });
    socket.on('error', () => undefined);
    socket.on('close', () => {
      this.gone = true;
    });
  }

  /** `halfOpen`: keeps sending after the server has ended. */
  static async connect(port: number, address?: string, { halfOpen = false } = {}): Promise<RawSocket> {
    const socket = connect({ port, host: '127.0.0.1', noDelay: true, allowHalfOpen: halfOpen });
    const client = new RawSocket(socket);
    await once(socket, 'connect');
    const key = randomBytes(16).toString('base64');
    socket.write(
      'GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n' +
        `Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: ${key}\r\n${
          address === undefined ? '' : `X-Forwarded-For: ${address}\r\n`
        }\r\n`,
    );
    while (client.status === 0) {
      if (client.gone) throw new Error('no answer to the handshake');
      await Promise.race([once(socket, 'data'), once(socket, 'close')]);
    }
    return client;
  }

  private readHead(): void {
    const end = this.received.indexOf('\r\n\r\n') + 4;
    if (end < 4) return;
    this.head = this.received.subarray(0, end).toString();
    this.status = Number(this.head.split(' ')[1]);
    this.received = this.received.subarray(end);
  }

  private readFrames(): void {
    for (;;) {
      const { received } = this;
      if (received.length < 2) return;
      const short = received[1]!;
      const start = short === 126 ? 4 : short === 127 ? 10 : 2;
      if (received.length < start) return;
      const length =
        short === 126
          ? received.readUInt16BE(2)
          : short === 127
            ? Number(received.readBigUInt64BE(2))
            : short;
      if (received.length < start + length) return;
      const opcode = received[0]! & 0x0f;
      const payload = received.subarray(start, start + length);
      this.frames.push({ opcode, payload });
      this.received = received.subarray(start + length);
      if (opcode === PING) this.write(frame(PONG, payload));
    }
  }

  write(...parts: Buffer[]): void {
    if (!this.gone) this.socket.write(Buffer.concat(parts));
  }

  /** The close frame of the server, if it has arrived. */
  get closed(): { code: number; reason: string } | undefined {
    const close = this.frames.find(({ opcode }) => opcode === CLOSE);
    if (close === undefined) return undefined;
    return { code: close.payload.readUInt16BE(0), reason: close.payload.subarray(2).toString() };
  }

  end(): void {
    this.socket.destroy();
  }
}
