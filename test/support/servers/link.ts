/**
 * A link between two processes, as a TCP proxy that knows no protocol: it passes bytes, or breaks in the ways
 * in which networks break. fault-proxy.ts breaks at a chosen message of PostgreSQL instead.
 */
import { once } from 'node:events';
import {
  type AddressInfo,
  connect,
  createServer,
  type NetConnectOpts,
  type Server,
  type Socket,
} from 'node:net';

export type LinkState =
  | 'open'
  /** New connections are closed at once, and open ones are cut. */
  | 'refused'
  /** Nothing passes in either direction, and neither side notices. New connections are accepted. */
  | 'stalled'
  /** What the client sends arrives; what the server answers does not. */
  | 'answers-stalled'
  /** A few kilobytes a second, a chunk at a time. */
  | 'slow';

const SLOW_BYTES = 2_048;
const SLOW_MS = 25;

export class Link {
  private readonly pairs = new Set<Pair>();
  private readonly deserted = new Set<Socket>();
  private state: LinkState = 'open';

  private constructor(
    private readonly server: Server,
    private readonly target: NetConnectOpts,
  ) {
    server.on('connection', (client) => this.onConnection(client));
  }

  static async start(target: NetConnectOpts): Promise<Link> {
    const server = createServer();
    const link = new Link(server, target);
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    return link;
  }

  get port(): number {
    return (this.server.address() as AddressInfo).port;
  }

  get connections(): number {
    return this.pairs.size;
  }

  become(state: LinkState): void {
    this.state = state;
    if (state === 'refused') this.cut();
    for (const pair of this.pairs) pair.become(state);
  }

  /** Cuts every open connection. */
  cut(): void {
    for (const pair of [...this.pairs]) pair.cut();
  }

  /**
   * The server's side of every open connection ends, and the client never hears of it: as after a restart of
   * a machine, or when a router forgets a connection. New connections work.
   */
  desert(): void {
    for (const pair of [...this.pairs]) {
      this.pairs.delete(pair);
      const client = pair.desert();
      this.deserted.add(client);
      client.once('close', () => this.deserted.delete(client));
    }
  }

  /** Deserted clients hear at last that their connection has ended. */
  tellDeserted(): void {
    for (const client of this.deserted) client.destroy();
  }

  async stop(): Promise<void> {
    this.cut();
    this.tellDeserted();
    const closed = once(this.server, 'close');
    this.server.close();
    await closed;
  }

  private onConnection(client: Socket): void {
    if (this.state === 'refused') {
      client.on('error', () => undefined);
      client.destroy();
      return;
    }
    const pair = new Pair(client, connect(this.target), () => this.pairs.delete(pair));
    this.pairs.add(pair);
    pair.become(this.state);
  }
}

/** One connection: a pump in each direction. */
class Pair {
  private readonly up: Pump;
  private readonly down: Pump;
  private isDeserted = false;

  constructor(
    private readonly client: Socket,
    private readonly server: Socket,
    private readonly ended: () => void,
  ) {
    this.up = new Pump(client, server);
    this.down = new Pump(server, client);
    for (const [one, pump] of [
      [client, this.up],
      [server, this.down],
    ] as const) {
      one.setNoDelay(true);
      one.on('error', () => undefined);
      one.on('close', () => {
        // A stalled link hides the end too.
        if (!this.isDeserted) pump.whenEmpty(() => this.cut());
      });
    }
  }

  become(state: LinkState): void {
    this.up.become(state === 'answers-stalled' ? 'open' : state);
    this.down.become(state === 'answers-stalled' ? 'stalled' : state);
  }

  cut(): void {
    this.client.destroy();
    this.server.destroy();
    this.ended();
  }

  desert(): Socket {
    this.isDeserted = true;
    this.server.destroy();
    this.up.become('stalled');
    this.client.resume();
    return this.client;
  }
}

/** Bytes in one direction. What has arrived waits here while nothing passes. */
class Pump {
  private readonly waiting: Buffer[] = [];
  private state: LinkState = 'open';
  private timer: NodeJS.Timeout | undefined;
  private onEmpty: (() => void) | undefined;

  constructor(
    from: Socket,
    private readonly to: Socket,
  ) {
    from.on('data', (data: Buffer) => {
      this.waiting.push(data);
      this.pump();
    });
  }

  become(state: LinkState): void {
    this.state = state;
    this.pump();
  }

  /** When everything has passed that has arrived. */
  whenEmpty(then: () => void): void {
    this.onEmpty = then;
    this.pump();
  }

  private pump(): void {
    if (this.state === 'stalled' || this.timer !== undefined) return;
    if (this.state === 'slow') this.passSlowly();
    else for (const data of this.waiting.splice(0)) this.to.write(data);
    if (this.waiting.length === 0) this.onEmpty?.();
  }

  private passSlowly(): void {
    const data = this.waiting.shift();
    if (data === undefined) return;
    this.to.write(data.subarray(0, SLOW_BYTES));
    if (data.length > SLOW_BYTES) this.waiting.unshift(data.subarray(SLOW_BYTES));
    this.timer = setTimeout(() => {
      this.timer = undefined;
      this.pump();
    }, SLOW_MS);
  }
}
