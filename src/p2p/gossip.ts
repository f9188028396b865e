/**
 * Gossip of this instance: registers its machine, waits for the lease while gossip is switched on, and then
 * runs a session (session.ts). One instance of a database holds the lease. When its beat stands still for
 * some seconds of the waiting instance's clock, that one takes over, so no clocks are compared. Without the
 * optional package the node runs, and says so.
 */
import { randomUUID } from 'node:crypto';
import { networkInterfaces } from 'node:os';
import { performance } from 'node:perf_hooks';
import { setTimeout as delay } from 'node:timers/promises';
import type { Pool } from 'pg';
import type { Communities } from '../communities/communities.js';
import type { Admission } from '../events/admission.js';
import type { EventStore } from '../events/store.js';
import type { Wakeups } from '../events/wakeups.js';
import type { Log } from '../node/log.js';
import type { Metrics } from '../node/metrics.js';
import type { Fill } from './catch-up.js';
import { NoIroh } from './endpoint.js';
import { type MachineKey, machineKey } from './machine-key.js';
import {
  forgetMachines,
  forgetP2pOffset,
  type P2pLease,
  readP2pLease,
  releaseP2pLease,
  takeP2pLease,
  writeMachine,
  writeP2pState,
} from './p2p.sql.js';
import { nextUnreachedMs, UNREACHED_MS } from './rules-unreached.js';
import { type Ended, Session } from './session.js';
import { MACHINE_MS_MAX, noState } from './ticket.js';

const WATCH_MS = 1_000;
const STANDS_STILL_MS = 5_000;
const MACHINE_MS = 30_000;
const BACK_OFF_MS = 1_000;
const BACK_OFF_MS_MAX = 60_000;
/** A session that ran for this long was well: the pause after the next problem is short again. */
const WELL_MS = 60_000;
const NO_IROH_MS = 600_000;
const STOP_MS_MAX = 10_000;

export interface GossipOptions {
  readonly admission: Admission;
  readonly store: EventStore;
  readonly pool: Pool;
  readonly communities: Communities;
  readonly wakeups: Pick<Wakeups, 'add'>;
  readonly metrics: Metrics;
  readonly log: Log;
  readonly now: () => number;
  /** The addresses at which this node serves. */
  readonly bases: () => readonly string[];
  readonly dataDir: string;
  /** Fills gaps from relays of peers; undefined where there is no engine for it. */
  readonly fill?: Fill | undefined;
}

export interface RunningGossip {
  stop(): Promise<void>;
}

export function startGossip(options: GossipOptions): RunningGossip {
  const gossip = new Gossip(options);
  return { stop: () => gossip.stop() };
}

class Gossip {
  private readonly stopping = new AbortController();
  /** Names this process as a holder of the lease. */
  private readonly holder = randomUUID();
  private readonly running: Promise<void>;
  private wakeSession: () => void = () => undefined;
  private awake: () => void = () => undefined;
  private addresses: readonly string[] | undefined;
  private failures = 0;
  private toldMissing = false;
  private hadNeighbours = false;
  private unreachedMs = UNREACHED_MS;

  constructor(private readonly options: GossipOptions) {
    const wake = () => {
      this.wakeSession();
      this.awake();
    };
    options.wakeups.add({ wake });
    options.communities.afterPoll(wake);
    this.running = this.run();
  }

  async stop(): Promise<void> {
    this.stopping.abort();
    this.awake();
    await Promise.race([this.running, delay(STOP_MS_MAX, undefined, { ref: false })]);
  }

  private get stopped(): boolean {
    return this.stopping.signal.aborted;
  }

  private get isEnabled(): boolean {
    return this.options.communities.node()['p2p.enabled'];
  }

  private async run(): Promise<void> {
    let wasEnabled: boolean | undefined;
    while (!this.stopped) {
      if (!this.isEnabled) {
        if (wasEnabled !== false) await forgetP2pOffset(this.options.pool).catch(() => undefined);
        wasEnabled = false;
        await this.sleep(MACHINE_MS);
        continue;
      }
      wasEnabled = true;
      const problem = await this.takePart().catch((error: unknown) => this.noteProblem(error));
      if (problem === undefined) this.failures = 0;
      else await this.sleep(this.backOff(problem));
    }
  }

  /** Until this instance no longer holds the lease, or never gets it. */
  private async takePart(): Promise<undefined> {
    const { dataDir, pool, log } = this.options;
    const key = await machineKey(dataDir);
    const lease = await this.awaitLease(key);
    if (lease === undefined) return;
    log.info({ machine: key.id }, 'gossip: this instance holds the endpoint');
    const begunMs = performance.now();
    try {
      const ended = await Session.run(
        {
          ...this.options,
          fill: this.options.fill,
          holder: this.holder,
          key,
          hadNeighbours: this.hadNeighbours,
          unreachedMs: this.unreachedMs,
          signal: this.stopping.signal,
          onOpened: async ({ addresses }) => {
            this.addresses = addresses;
            await this.register(key);
          },
        },
        (wake) => {
          this.wakeSession = wake;
        },
      );
      this.note(ended);
      if (ended.problem !== undefined) throw new Error(ended.problem);
    } finally {
      if (performance.now() - begunMs >= WELL_MS) this.failures = 0;
      this.wakeSession = () => undefined;
      this.addresses = undefined;
      await releaseP2pLease(pool, this.holder).catch(() => undefined);
    }
  }

  private note(ended: Ended): void {
    this.hadNeighbours ||= ended.hadNeighbours;
    this.unreachedMs = nextUnreachedMs(this.unreachedMs, ended);
  }

  /** Undefined if gossip is switched off or the node stops. */
  private async awaitLease(key: MachineKey): Promise<P2pLease | undefined> {
    const { pool } = this.options;
    let seen: P2pLease | undefined;
    let since = 0;
    let nextRegistration = 0;
    while (!this.stopped && this.isEnabled) {
      if (performance.now() >= nextRegistration) {
        await this.register(key);
        nextRegistration = performance.now() + MACHINE_MS;
      }
      // A failed read does not count as an unchanged beat.
      const lease = await readP2pLease(pool).catch(() => undefined);
      if (lease?.holder !== seen?.holder || lease?.beat !== seen?.beat) since = performance.now();
      seen = lease;
      const isFree = lease?.holder === null || performance.now() - since >= STANDS_STILL_MS;
      if (lease !== undefined && isFree && (await takeP2pLease(pool, lease, this.holder))) return lease;
      await this.sleep(WATCH_MS);
    }
    return undefined;
  }

  private async register({ id: machine }: MachineKey): Promise<void> {
    const { pool, now, bases, communities } = this.options;
    const node = communities.node();
    const own = this.addresses ?? guessAddresses(node['p2p.bind'], node['p2p.port']);
    const addresses = [...new Set([...node['p2p.announce'], ...own])];
    await writeMachine(pool, { machine, seenAt: now(), addresses, bases: bases() });
    await forgetMachines(pool, now() - MACHINE_MS_MAX);
  }

  private async noteProblem(error: unknown): Promise<unknown> {
    const { pool, log, now, dataDir } = this.options;
    const text = error instanceof Error ? error.message : String(error);
    const isMissing = error instanceof NoIroh;
    if (!isMissing || !this.toldMissing) log.warn({ error: text }, 'gossip does not run');
    this.toldMissing ||= isMissing;
    await machineKey(dataDir)
      .then(({ id }) => writeP2pState(pool, id, noState(text, now()), now()))
      .catch(() => undefined);
    return error;
  }

  private backOff(problem: unknown): number {
    if (problem instanceof NoIroh) return NO_IROH_MS;
    const ms = Math.min(BACK_OFF_MS_MAX, BACK_OFF_MS * 2 ** this.failures);
    this.failures += 1;
    return ms;
  }

  /** Woken when settings have changed. */
  private async sleep(ms: number): Promise<void> {
    const before = this.settings();
    const deadline = performance.now() + ms;
    while (!this.stopped && performance.now() < deadline && this.settings() === before) {
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, Math.max(1, deadline - performance.now()));
        this.awake = () => {
          clearTimeout(timer);
          resolve();
        };
      });
    }
  }

  private settings(): unknown {
    return this.options.communities.node();
  }
}

/** Where this machine would listen if it took over: all its addresses, or the configured one. */
function guessAddresses(bind: string, port: number): string[] {
  if (port === 0) return [];
  const written = (ip: string) => (ip.includes(':') ? `[${ip}]:${port}` : `${ip}:${port}`);
  if (bind !== '0.0.0.0' && bind !== '::') return [written(bind)];
  const found = Object.values(networkInterfaces()).flatMap((each) => each ?? []);
  const usable = found.filter(({ internal, scopeid }) => !internal && (scopeid ?? 0) === 0);
  return usable.map(({ address }) => written(address));
}
