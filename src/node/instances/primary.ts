/**
 * The primary process of `minato serve --instances`: it owns the port and the embedded PostgreSQL, runs the
 * instances, and gives each new connection to one of them. While none serves, connections wait
 * (port/early-port.ts), so neither a crash nor a restart refuses anybody.
 *
 *   launched ──ready──▶ serving ──ended──▶ back-off ──▶ launched …
 *                          │ SIGHUP: only after its successor serves
 *                          ▼
 *                       draining ──▶ ended
 *
 * I14: the back-off, the memory of addresses and the time of a stop are bounded. I15: an instance that does
 * not answer is killed, and does not delay the metrics of the others.
 */
import cluster from 'node:cluster';
import type { Socket } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { LRUCache } from 'lru-cache';
import type { EarlyPort } from '../../port/early-port.js';
import { type Log, passOn } from '../log.js';
import type { Role } from '../roles.js';
import { aggregate } from './aggregate.js';
import { Life } from './life.js';
import type { InstanceStart, ToPrimary } from './messages.js';

const HEALTHY_MS = 60_000;
const BACK_OFF_MS_MAX = 10_000;
/** Restarts of one instance in a row, while no other serves, before the whole node ends. */
const RESTARTS_MAX = 10;
const PING_MS = 5_000;
const SILENT_MS_MAX = 30_000;
const STOP_MS_MAX = 45_000;
const REPORT_MS_MAX = 2_000;
/** Addresses whose last instance is remembered. */
const ADDRESSES_MAX = 10_000;

export interface PrimaryOptions {
  readonly count: number;
  readonly roles: ReadonlySet<Role>;
  readonly ports: readonly EarlyPort[];
  readonly start: Pick<InstanceStart, 'port' | 'database'>;
  readonly log: Log;
  readonly onGiveUp: (why: string) => void;
}

interface Seat {
  readonly name: string;
  readonly roles: readonly Role[];
  life: Life;
}

export class Primary {
  private seats: readonly Seat[] = [];
  private readonly stopping = new AbortController();
  private readonly turns = new LRUCache<string, number>({ max: ADDRESSES_MAX });
  private readonly reports = new Map<number, (metrics: readonly object[]) => void>();
  private requests = 0;
  private nextTurn = 0;
  private restarts = 0;
  private rolling: Promise<void> | undefined;
  private isRollWanted = false;

  constructor(private readonly options: PrimaryOptions) {}

  /** Resolves when all serve. Rejects if the first cannot start: then the others would not either. */
  async start(): Promise<void> {
    const { count, roles, ports } = this.options;
    // Plain JSON would lose NaN and Infinity in the metrics.
    cluster.setupPrimary({ args: ['serve'], serialization: 'advanced', silent: true });
    const served = [...roles].filter((role) => role !== 'worker');
    const names = served.length === 0 ? [] : Array.from({ length: count }, (_, at) => `${at + 1}`);
    const planned: Pick<Seat, 'name' | 'roles'>[] = names.map((name) => ({ name, roles: served }));
    if (roles.has('worker')) planned.push({ name: 'worker', roles: ['worker'] });
    for (const port of ports) port.passTo((socket) => this.give(socket));
    // The first one alone, because it may have to migrate the schema.
    for (const [at, each] of planned.entries()) {
      const seat = { ...each, life: this.launch(each, at === 0) };
      this.seats = [...this.seats, seat];
      if (at === 0) await this.untilServing(seat);
    }
    await Promise.all(this.seats.map(({ life }) => life.ready));
    this.offerHeld();
    for (const seat of this.seats) void this.keep(seat, seat.life);
    this.watch();
  }

  /** Replaces the instances one by one, each after its successor serves. Many wishes are one. */
  async roll(): Promise<void> {
    this.isRollWanted = true;
    this.rolling ??= this.rollAll().finally(() => {
      this.rolling = undefined;
    });
    await this.rolling;
  }

  async stop(): Promise<void> {
    this.stopping.abort();
    await this.rolling;
    await Promise.all(this.seats.map(({ life }) => life.stop(false, STOP_MS_MAX)));
  }

  kill(): void {
    for (const { life } of this.seats) life.kill();
  }

  // ─── Processes ───────────────────────────────────────────────────────────────────────────────────────────

  private launch({ name, roles }: Pick<Seat, 'name' | 'roles'>, isFirst = false): Life {
    const { count: instances, start } = this.options;
    const life = new Life(
      { ...start, name, roles, instances, isFirst },
      {
        onLine: passOn,
        onMessage: (message, from) => this.hear(message, from),
        onReturned: (socket) => this.options.ports[0]?.takeBack(socket),
      },
    );
    void life.ready.then(
      () => this.offerHeld(),
      () => undefined,
    );
    return life;
  }

  private async untilServing({ life }: Seat): Promise<void> {
    const stop = () => void life.stop(false, STOP_MS_MAX);
    this.stopping.signal.addEventListener('abort', stop, { once: true });
    await life.ready;
  }

  private async keep(seat: Seat, first: Life): Promise<void> {
    const { log, onGiveUp } = this.options;
    const { signal } = this.stopping;
    let failures = 0;
    for (let life = first; ; life = seat.life) {
      const how = await life.ended;
      if (seat.life !== life || signal.aborted) return;
      failures = Date.now() - life.startedAt > HEALTHY_MS ? 1 : failures + 1;
      log.error({ process: seat.name, how, failures }, 'an instance ended unexpectedly; it is started again');
      if (failures > RESTARTS_MAX && !this.seats.some((other) => other.life.isServing))
        return onGiveUp(`instance ${seat.name} ends again and again: ${how}`);
      await delay(backOffMs(failures), undefined, { signal }).catch(() => undefined);
      // It may have been replaced meanwhile.
      if (signal.aborted || seat.life !== life) return;
      this.restarts += 1;
      seat.life = this.launch(seat);
    }
  }

  private async rollAll(): Promise<void> {
    const { log } = this.options;
    while (this.isRollWanted) {
      this.isRollWanted = false;
      log.info('rolling restart: each instance is replaced after its successor serves');
      for (const seat of this.seats) if (!(await this.replace(seat))) return;
      log.info('rolling restart: done');
    }
  }

  /** False: the successor did not start, and everything stays as it is. */
  private async replace(seat: Seat): Promise<boolean> {
    if (this.stopping.signal.aborted) return false;
    const next = this.launch(seat);
    const abandon = () => next.kill();
    this.stopping.signal.addEventListener('abort', abandon, { once: true });
    try {
      await next.ready;
    } catch (error) {
      const why = (error as Error).message;
      this.options.log.error({ process: seat.name, why }, 'rolling restart: given up, the old ones serve');
      return false;
    } finally {
      this.stopping.signal.removeEventListener('abort', abandon);
    }
    const old = seat.life;
    seat.life = next;
    void this.keep(seat, next);
    await old.stop(true, STOP_MS_MAX);
    return true;
  }

  /** An instance whose event loop hangs is killed, and so restarted. */
  private watch(): void {
    const timer = setInterval(() => {
      if (this.stopping.signal.aborted) return clearInterval(timer);
      for (const { name, life } of this.seats) {
        if (!life.isServing) continue;
        if (Date.now() - life.heardAt <= SILENT_MS_MAX) life.send({ kind: 'ping' });
        else {
          this.options.log.error({ process: name }, 'an instance does not answer; it is killed');
          life.kill();
        }
      }
    }, PING_MS);
    timer.unref();
  }

  // ─── Connections ─────────────────────────────────────────────────────────────────────────────────────────

  /**
   * The connections of one address go to the instances in turn. So each has its share of them, and a limit
   * per address can be divided by the number of instances.
   */
  private give(socket: Socket): boolean {
    const takers = this.seats.flatMap(({ life, roles }) =>
      life.isServing && roles[0] !== 'worker' ? [life] : [],
    );
    if (takers.length === 0 || this.stopping.signal.aborted) return false;
    const address = socket.remoteAddress ?? '';
    const turn = this.turns.get(address) ?? this.nextTurn++;
    this.turns.set(address, turn + 1);
    return takers[turn % takers.length]!.give(socket);
  }

  private offerHeld(): void {
    for (const port of this.options.ports) port.offer();
  }

  // ─── Messages ────────────────────────────────────────────────────────────────────────────────────────────

  private hear(message: ToPrimary, from: Life): void {
    if (message.kind === 'report') this.reports.get(message.request)?.(message.metrics);
    else if (message.kind === 'run') {
      const worker = this.seats.find(({ roles }) => roles.includes('worker'));
      worker?.life.send(message);
    } else if (message.kind === 'scrape') {
      const { request } = message;
      void this.scrape().then((text) => from.send({ kind: 'scraped', request, text }));
    }
  }

  /** The metrics of all instances that answer in time, as one text. */
  private async scrape(): Promise<string> {
    const serving = this.seats.filter(({ life }) => life.isServing);
    const reports = await Promise.all(serving.map(({ life }) => this.reportOf(life)));
    const answered = reports.filter((report) => report !== undefined);
    return aggregate(answered, {
      instances: this.seats.length,
      serving: answered.length,
      restarts: this.restarts,
    });
  }

  private async reportOf(life: Life): Promise<readonly object[] | undefined> {
    const request = this.requests++;
    const answer = new Promise<readonly object[]>((resolve) => this.reports.set(request, resolve));
    const late = new AbortController();
    try {
      life.send({ kind: 'report', request });
      return await Promise.race([answer, delay(REPORT_MS_MAX, undefined, { signal: late.signal })]);
    } finally {
      late.abort();
      this.reports.delete(request);
    }
  }
}

const backOffMs = (failures: number) => Math.min(BACK_OFF_MS_MAX, 100 * 2 ** failures);
