/**
 * An instance's side: it gets its clients from the primary and answers the primary's questions. If the
 * primary is gone, the instance stops as if it had been asked to: nobody could reach it any more.
 */
import type { Socket } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { inTime } from '../../limits/in-time.js';
import type { Metrics } from '../metrics.js';
import type { InstanceStart, ToInstance, ToPrimary } from './messages.js';

/** Clients that have just connected send their request in this time. */
const DRAIN_MS = 1_000;
/** More than the primary waits for each instance. */
const SCRAPE_MS_MAX = 5_000;

/** A port whose connections are accepted by another process. */
export interface PassedPort {
  readonly port: number;
  /** Processes that share it. */
  readonly instances: number;
  onConnection(take: (socket: Socket) => void): void;
}

export interface InstanceWork {
  readonly metrics: Metrics;
  /** Undefined without the role worker. */
  readonly runJob: ((job: string) => Promise<unknown>) | undefined;
}

export class Instance implements PassedPort {
  private take: ((socket: Socket) => void) | undefined;
  private work: InstanceWork | undefined;
  private readonly scrapes = new Map<number, (text: string) => void>();
  private requests = 0;

  private constructor(readonly start: InstanceStart) {}

  /** Waits for the first message. `onStop` is called once, whoever wants it to stop. */
  static async join(onStop: () => void): Promise<Instance> {
    process.once('disconnect', onStop);
    const start = await new Promise<InstanceStart>((resolve) => {
      process.once('message', (message: ToInstance) => {
        if (message.kind === 'start') resolve(message.start);
      });
      tell({ kind: 'hello' });
    });
    const instance = new Instance(start);
    process.on('message', (message: ToInstance, socket?: Socket) => instance.hear(message, socket, onStop));
    return instance;
  }

  get port(): number {
    return this.start.port;
  }
  get instances(): number {
    return this.start.instances;
  }

  onConnection(take: (socket: Socket) => void): void {
    this.take = take;
  }

  serve(work: InstanceWork): void {
    this.work = work;
    tell({ kind: 'ready' });
  }

  /** The metrics of all instances. */
  scrape(): Promise<string> {
    const request = this.requests++;
    const answer = new Promise<string>((resolve) => this.scrapes.set(request, resolve));
    tell({ kind: 'scrape', request });
    return inTime(answer, SCRAPE_MS_MAX, 'the primary process').finally(() => this.scrapes.delete(request));
  }

  /** In the process with the role worker. */
  async runSoon(job: string): Promise<void> {
    tell({ kind: 'run', job });
  }

  private hear(message: ToInstance, socket: Socket | undefined, onStop: () => void): void {
    const { kind } = message;
    if (kind === 'ping') tell({ kind: 'pong' });
    else if (kind === 'connection') this.receive(socket, message.number);
    else if (kind === 'stop') void delay(message.drains ? DRAIN_MS : 0).then(onStop);
    else if (kind === 'scraped') this.scrapes.get(message.request)?.(message.text);
    else if (kind === 'run') void this.work?.runJob?.(message.job).catch(() => undefined);
    else if (kind === 'report') void this.report(message.request);
  }

  private async report(request: number): Promise<void> {
    const metrics = (await this.work?.metrics.report()) ?? [];
    tell({ kind: 'report', request, metrics });
  }

  private receive(socket: Socket | undefined, number: number): void {
    tell({ kind: 'taken', number });
    // Closed by its client on the way.
    if (socket === undefined) return;
    // As for the connections of a server that listens itself.
    socket.allowHalfOpen = true;
    socket.setNoDelay(true);
    socket.on('error', () => undefined);
    if (this.take === undefined) socket.destroy();
    else this.take(socket);
  }
}

/** Why it could not start. Resolves when the primary has it. */
export function tellFailure(why: string): Promise<void> {
  return new Promise((resolve) => {
    process.send?.({ kind: 'failed', why } satisfies ToPrimary, undefined, undefined, () => resolve());
  });
}

function tell(message: ToPrimary): void {
  if (process.connected) process.send?.(message, undefined, undefined, () => undefined);
}
