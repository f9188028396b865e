/**
 * Stands between a node and PostgreSQL and breaks the network at a chosen message: the server gets everything
 * before it and nothing after it. It reads the client's side of the protocol, so "let COMMIT through and lose
 * its answer" is one line in a test.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { createConnection, createServer, type Server, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type { EmbeddedConnection } from '../../../src/postgres/embedded.js';

export type Fault =
  /** The message does not reach the server; the connection is cut. */
  | { readonly kind: 'cut' }
  /** The message reaches the server; the connection is cut at once, whatever the server does with it. */
  | { readonly kind: 'cut-after' }
  /** The server executes it; its answer is lost, then the connection is cut. */
  | { readonly kind: 'lose-answer' }
  /** Nothing passes in either direction until `release()`, and neither side notices. */
  | { readonly kind: 'freeze' }
  /** The message is delayed. */
  | { readonly kind: 'delay'; readonly ms: number }
  /** The server executes it immediately; its answer is delayed. */
  | { readonly kind: 'delay-answer'; readonly ms: number }
  /** The server executes it immediately; its answer waits until `release()`. */
  | { readonly kind: 'hold-answer' };

/**
 * A message of the client: its type (`Q` query, `P` parse, `B` bind …, empty for the first one) and its
 * bytes.
 */
export interface Message {
  readonly type: string;
  readonly body: Buffer;
  /** The name of the prepared statement that an execute (`E`) runs. */
  readonly executes?: string;
}

/** The statement that ends a transaction; not the COMMITTED of an isolation level. */
export const isCommit = ({ type, body, executes }: Message): boolean =>
  executes === 'commit' || (type === 'Q' && /\bCOMMIT\b/.test(body.toString('latin1')));

interface Rule {
  readonly matches: (message: Message) => boolean;
  readonly fault: () => Fault;
  left: number;
  readonly met: () => void;
}

export class FaultProxy {
  private readonly links = new Set<Link>();
  private readonly rules: Rule[] = [];
  private down = false;

  private constructor(
    private readonly server: Server,
    private readonly folder: string,
    /** Connect here instead of to the server. */
    readonly connection: EmbeddedConnection,
    private readonly target: EmbeddedConnection,
  ) {
    server.on('connection', (client) => this.onConnection(client));
  }

  static async start(target: EmbeddedConnection): Promise<FaultProxy> {
    const folder = await mkdtemp(join(tmpdir(), 'minato-proxy-'));
    const server = createServer();
    const proxy = new FaultProxy(server, folder, { ...target, host: folder }, target);
    await new Promise<void>((resolve) => server.listen(socketPath(proxy.connection), resolve));
    return proxy;
  }

  /**
   * Applies the fault to the next `times` messages that contain the text (or match the function). Resolves at
   * the first.
   */
  when(
    what: string | ((message: Message) => boolean),
    fault: Fault | (() => Fault),
    times = 1,
  ): Promise<void> {
    return new Promise((met) => {
      this.rules.push({
        matches: typeof what === 'string' ? (message) => message.body.includes(what) : what,
        fault: typeof fault === 'function' ? fault : () => fault,
        left: times,
        met,
      });
    });
  }

  /** Cuts every connection and refuses new ones, as if the server had stopped. */
  goDown(): void {
    this.down = true;
    for (const link of this.links) link.cut();
  }

  comeBack(): void {
    this.down = false;
  }

  /** Ends every freeze. */
  release(): void {
    for (const link of this.links) link.release();
  }

  async stop(): Promise<void> {
    for (const link of this.links) link.cut();
    await new Promise<void>((resolve) => this.server.close(() => resolve()));
    await rm(this.folder, { recursive: true, force: true });
  }

  private onConnection(client: Socket): void {
    if (this.down) {
      client.on('error', () => undefined);
      client.destroy();
      return;
    }
    this.links.add(
      new Link(client, createConnection(socketPath(this.target)), (message) => this.meet(message)),
    );
  }

  private meet(message: Message): Fault | undefined {
    const rule = this.rules.find((known) => known.left > 0 && known.matches(message));
    if (rule === undefined) return undefined;
    rule.left -= 1;
    rule.met();
    return rule.fault();
  }
}

function socketPath({ host, port }: EmbeddedConnection): string {
  return join(host, `.s.PGSQL.${port}`);
}

/** ReadyForQuery, which ends every answer and nothing else: length 5, then the state. */
const READY = Buffer.from([0x5a, 0, 0, 0, 5]);

/** One connection. Messages are forwarded one after another, so a fault delays all later messages. */
class Link {
  private received: Buffer = Buffer.alloc(0);
  private started = false;
  /** The prepared statement that was bound last. */
  private bound = '';
  private up: Promise<void> = Promise.resolve();
  private downward: Promise<void> = Promise.resolve();
  private losing = false;
  private thaw: (() => void) | undefined;

  constructor(
    private readonly client: Socket,
    private readonly server: Socket,
    private readonly meet: (message: Message) => Fault | undefined,
  ) {
    client.on('data', (data: Buffer) => this.onClientData(data));
    server.on('data', (data: Buffer) => this.onServerData(data));
    for (const socket of [client, server]) {
      socket.on('error', () => undefined);
      // In order: messages before the end still arrive, and a frozen link hides the end.
      socket.on('close', () => void Promise.all([this.up, this.downward]).then(() => this.cut()));
    }
  }

  cut(): void {
    this.client.destroy();
    this.server.destroy();
  }

  release(): void {
    this.thaw?.();
  }

  private onClientData(data: Buffer): void {
    this.received = Buffer.concat([this.received, data]);
    for (let message = this.nextMessage(); message !== undefined; message = this.nextMessage()) {
      const { bytes, ...rest } = message;
      this.up = this.up.then(() => this.pass(bytes, rest));
    }
  }

  /** The first message of a connection has no type byte. */
  private nextMessage(): (Message & { bytes: Buffer }) | undefined {
    const head = this.started ? 1 : 0;
    if (this.received.length < head + 4) return undefined;
    const length = head + this.received.readInt32BE(head);
    if (this.received.length < length) return undefined;
    const bytes = this.received.subarray(0, length);
    const type = this.started ? String.fromCharCode(bytes[0]!) : '';
    this.received = this.received.subarray(length);
    this.started = true;
    const body = bytes.subarray(head + 4);
    // A bind names its portal, then its statement.
    if (type === 'B') this.bound = body.toString('latin1').split('\0', 2)[1]!;
    return { type, body, bytes, ...(type === 'E' ? { executes: this.bound } : {}) };
  }

  private async pass(bytes: Buffer, message: Message): Promise<void> {
    const fault = this.meet(message);
    switch (fault?.kind) {
      case 'cut':
        return this.cut();
      case 'freeze':
        await this.holdAnswers();
        break;
      case 'delay':
        await delay(fault.ms);
        break;
      case 'delay-answer':
        this.downward = this.downward.then(() => delay(fault.ms));
        break;
      case 'hold-answer':
        void this.holdAnswers();
        break;
      case 'lose-answer':
        this.losing = true;
        break;
    }
    this.server.write(bytes);
    if (fault?.kind === 'cut-after') {
      // Ended, not destroyed: the server first reads what was sent.
      this.client.destroy();
      this.server.end();
    }
  }

  private holdAnswers(): Promise<void> {
    const frozen = new Promise<void>((resolve) => {
      this.thaw = resolve;
    });
    this.downward = this.downward.then(() => frozen);
    return frozen;
  }

  private onServerData(data: Buffer): void {
    if (this.losing) {
      if (data.includes(READY)) this.cut();
      return;
    }
    this.downward = this.downward.then(() => void this.client.write(data));
  }
}
