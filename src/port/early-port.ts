/**
 * Opens the port before the database, and holds connections until the node serves. A client that is refused
 * may not retry: NDK tries once, a second after a disconnect, and snort once, after four. The number of held
 * connections, of an address too, and their time are bounded (I14), and nothing is read from them. With
 * several instances it stays the port of all of them.
 */
import { once } from 'node:events';
import { createServer, isIP, type Server, type Socket } from 'node:net';
import type { EarlyPeers } from './early-peers.js';
import { SAFE_HEADERS } from './safe-headers.js';

const HELD_MAX = 10_000;
/**
 * Longer than a start takes, also on a busy machine. The recovery of a database after a crash may take
 * longer: then the client gets 503.
 */
const HELD_MS_MAX = 30_000;
const NOT_YET = [
  'HTTP/1.1 503 Service Unavailable',
  'Retry-After: 5',
  'Connection: close',
  'Content-Length: 0',
  ...Object.entries(SAFE_HEADERS).map(([name, value]) => `${name}: ${value}`),
  '\r\n',
].join('\r\n');

export interface EarlyPortOptions {
  readonly heldMax?: number;
  readonly heldMsMax?: number;
  readonly perAddressMax?: number;
  /** By default those of the environment. */
  readonly trustedProxies?: readonly string[];
}

export class EarlyPort {
  private readonly held = new Map<Socket, NodeJS.Timeout>();
  private give: ((socket: Socket) => boolean) | undefined;

  private constructor(
    private readonly server: Server,
    private readonly peers: EarlyPeers,
    private readonly options: EarlyPortOptions,
  ) {
    server.on('connection', (socket: Socket) => this.hold(socket));
  }

  /**
   * Undefined if the port cannot be opened: the node gets the error when it listens, and reports it. Also
   * undefined for a host name, which may have several addresses: the node opens them later.
   */
  static async open(
    host: string,
    port: number,
    options: EarlyPortOptions = {},
  ): Promise<EarlyPort | undefined> {
    if (isIP(host) === 0) return undefined;
    return EarlyPort.openAt(host, port, options).catch(() => undefined);
  }

  /** Rejects if the port cannot be opened. */
  static async openAt(host: string, port: number, options: EarlyPortOptions = {}): Promise<EarlyPort> {
    // Commands that open no port do not load it.
    const { EarlyPeers, earlyProxies } = await import('./early-peers.js');
    const { readDescriptorLimit, roomFor } = await import('./descriptors.js');
    const { trustedProxies = earlyProxies(process.env), perAddressMax } = options;
    const { heldMax = roomFor(await readDescriptorLimit(), { http: 0, websockets: HELD_MAX }).websockets } =
      options;
    const server = createServer({ pauseOnConnect: true, allowHalfOpen: true, noDelay: true });
    const early = new EarlyPort(server, new EarlyPeers(trustedProxies, perAddressMax), {
      ...options,
      heldMax,
    });
    server.listen(port, host);
    await once(server, 'listening');
    return early;
  }

  get size(): number {
    return this.held.size;
  }

  get port(): number {
    const address = this.server.address();
    return typeof address === 'object' && address !== null ? address.port : 0;
  }

  /** The open port for `listen`, so that no connection is refused in between. */
  get handle(): object {
    return { _handle: (this.server as unknown as { _handle: object })._handle };
  }

  /** Passes the held connections to the server that listens now. */
  transfer(to: Server): void {
    for (const socket of [...this.held.keys()]) {
      this.release(socket);
      to.emit('connection', socket);
      socket.resume();
    }
  }

  /** From now on each connection is offered to `give`. One that it does not take is held. */
  passTo(give: (socket: Socket) => boolean): void {
    this.give = give;
    this.offer();
  }

  /** Offers the held connections again. */
  offer(): void {
    for (const socket of this.held.keys()) if (this.give?.(socket) === true) this.release(socket);
  }

  /** A connection that was given to a process that has ended. It is given to another, or held. */
  takeBack(socket: Socket): void {
    if (!socket.destroyed) this.hold(socket);
  }

  /** After a start that failed, or when the node stops. */
  close(): void {
    for (const socket of [...this.held.keys()]) {
      this.release(socket);
      socket.destroy();
    }
    this.server.close();
  }

  private hold(socket: Socket): void {
    socket.on('error', () => undefined);
    if (this.give?.(socket) === true) return;
    const { heldMax = HELD_MAX, heldMsMax = HELD_MS_MAX } = this.options;
    if (this.held.size >= heldMax || !this.peers.hold(socket)) {
      socket.destroy();
      return;
    }
    const refuse = () => {
      this.release(socket);
      socket.end(NOT_YET, () => socket.destroy());
    };
    this.held.set(socket, setTimeout(refuse, heldMsMax));
    socket.once('close', () => this.release(socket));
  }

  private release(socket: Socket): void {
    clearTimeout(this.held.get(socket));
    this.held.delete(socket);
    this.peers.release(socket);
  }
}
