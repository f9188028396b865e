/**
 * The endpoint of this node, in a process of its own (endpoint-process.ts). I15: every call has a deadline;
 * after a call without an answer the process is killed, and its owner opens another one.
 */
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { inTime, NoAnswer } from '../limits/in-time.js';
import {
  type Call,
  type EndpointLimits,
  type FromEndpoint,
  IROH,
  NO_IROH,
  type OpenEndpoint,
  type Opened,
  type PeerAddress,
  type ToEndpoint,
} from './protocol.js';

const OPEN_MS_MAX = 30_000;
const CALL_MS_MAX = 10_000;
const CLOSE_MS_MAX = 2_000;

/** In tests the sources use the built process, because it does not go through the test runner's transform. */
const PROCESS_FILE = new URL(
  import.meta.url.endsWith('.ts') ? '../../dist/p2p/endpoint-process.js' : './endpoint-process.js',
  import.meta.url,
);

/** The optional package is not installed. */
export class NoIroh extends Error {
  constructor() {
    super(`gossip needs the package ${IROH}, which is not installed here or has no build for this system`);
    this.name = 'NoIroh';
  }
}

export type EndpointEvent = Exclude<FromEndpoint, { readonly type: 'done' }>;

export interface EndpointOptions extends OpenEndpoint {
  readonly onEvent: (event: EndpointEvent) => void;
  /** It ended without having been closed, or does not answer. */
  readonly onBroken: (why: string) => void;
}

interface Waiting {
  resolve(opened: Opened | undefined): void;
  reject(error: Error): void;
}

export class Endpoint {
  private readonly calls = new Map<number, Waiting>();
  private nextCall = 1;
  private isClosing = false;
  private readonly child: ChildProcess;
  private readonly exited: Promise<unknown>;

  private constructor(private readonly options: EndpointOptions) {
    this.child = fork(fileURLToPath(PROCESS_FILE), [], {
      serialization: 'advanced',
      // Its package has a wrong `main`, about which Node.js would warn at every start.
      execArgv: ['--no-deprecation'],
      stdio: ['ignore', 'ignore', 'ignore', 'ipc'],
    });
    this.exited = once(this.child, 'exit').catch(() => undefined);
    this.child.on('message', (message) => this.onMessage(message as FromEndpoint));
    this.child.on('error', (error) => this.onEnd(error));
    this.child.on('exit', (code) =>
      this.onEnd(code === NO_IROH ? new NoIroh() : new Error('the process of the endpoint has ended')),
    );
  }

  static async open(options: EndpointOptions): Promise<{ endpoint: Endpoint; opened: Opened }> {
    const endpoint = new Endpoint(options);
    try {
      const { secret, bind, port, discovery, limits } = options;
      const opened = await endpoint.call(
        { type: 'open', options: { secret, bind, port, discovery, limits } },
        OPEN_MS_MAX,
      );
      return { endpoint, opened: opened! };
    } catch (error) {
      await endpoint.close();
      throw error;
    }
  }

  async join(topic: string, peers: readonly PeerAddress[]): Promise<void> {
    await this.call({ type: 'join', topic, peers });
  }

  async leave(topic: string): Promise<void> {
    await this.call({ type: 'leave', topic });
  }

  async send(topic: string, contents: readonly Uint8Array[]): Promise<void> {
    await this.call({ type: 'send', topic, contents });
  }

  /** A message of this peer has been processed: the next one may come. */
  took(peer: string): void {
    this.tell({ type: 'took', peer, count: 1 });
  }

  ignore(peer: string, ms: number): void {
    this.tell({ type: 'ignore', peer, ms });
  }

  limit(limits: EndpointLimits): void {
    this.tell({ type: 'limits', limits });
  }

  /** The UDP port is free afterwards. */
  async close(): Promise<void> {
    const isOpen = !this.isClosing;
    this.isClosing = true;
    if (isOpen) await this.call({ type: 'close' }, CLOSE_MS_MAX).catch(() => undefined);
    if (this.child.exitCode === null && this.child.signalCode === null) this.child.kill('SIGKILL');
    await inTime(this.exited, CLOSE_MS_MAX, 'the endpoint').catch(() => undefined);
  }

  private async call(what: Call, msMax = CALL_MS_MAX): Promise<Opened | undefined> {
    if (!this.child.connected) throw new Error('the process of the endpoint has ended');
    const call = this.nextCall++;
    const answer = new Promise<Opened | undefined>((resolve, reject) => {
      this.calls.set(call, { resolve, reject });
      this.tell({ type: 'call', call, what });
    });
    try {
      return await inTime(answer, msMax, 'the endpoint');
    } catch (error) {
      if (error instanceof NoAnswer) this.break(error.message);
      throw error;
    } finally {
      this.calls.delete(call);
    }
  }

  private tell(message: ToEndpoint): void {
    if (this.child.connected) this.child.send(message, () => undefined);
  }

  private onMessage(message: FromEndpoint): void {
    if (message.type !== 'done') {
      if (!this.isClosing) this.options.onEvent(message);
      return;
    }
    const waiting = this.calls.get(message.call);
    if (message.error !== undefined) waiting?.reject(new Error(message.error));
    else waiting?.resolve(message.opened);
  }

  private onEnd(error: Error): void {
    for (const { reject } of this.calls.values()) reject(error);
    this.break(error.message);
  }

  private break(why: string): void {
    if (this.isClosing) return;
    this.isClosing = true;
    this.child.kill('SIGKILL');
    this.options.onBroken(why);
  }
}
