/**
 * Puts a node together and takes it apart. It opens the stores (stores.ts) and the port (entry.ts), adds the
 * relay and the API, listens, and then starts the worker. Closing goes in the reverse order.
 */
import type { Communities } from '../communities/communities.js';
import type { Erasing } from '../erasure/stores/registry.js';
import type { EventStore } from '../events/store.js';
import type { Verifier } from '../events/verify/pool.js';
import type { Job } from '../jobs/job.js';
import type { Schedule } from '../jobs/schedule.js';
import type { Rates } from '../limits/rates.js';
import type { SharedLimits } from '../limits/shared.js';
import type { Work } from '../limits/work.js';
import type { Consumer } from '../outbox/consumers/consumer.js';
import type { RunningConsumers } from '../outbox/consumers/start.js';
import { startSampler } from '../overview/sampler.js';
import { BuiltPages } from '../pages/built.js';
import type { EarlyPort } from '../port/early-port.js';
import type { ServerBounds } from '../port/server.js';
import type { Database } from '../postgres/database.js';
import type { Fanout } from '../relay/fanout.js';
import type { HeldBytes } from '../relay/input/held-bytes.js';
import type { Memory } from '../relay/memory.js';
import { listen, openEntry } from './entry.js';
import type { PassedPort } from './instances/instance.js';
import type { Log, LogLines } from './log.js';
import type { Metrics } from './metrics.js';
import type { Privileges } from './privileges.js';
import { startApi } from './role-api.js';
import { startRelay } from './role-relay.js';
import { startWorker, type Worker } from './role-worker.js';
import { ROLES, type Role } from './roles.js';
import { openStores } from './stores.js';
import type { WriterOptions } from './writer.js';

/** I15: a database that hangs does not keep a node from stopping. Every call that is answered takes less. */
const CLOSE_MS_MAX = 30_000;

export interface NodeOptions extends WriterOptions {
  /** All roles by default. */
  readonly roles?: ReadonlySet<Role>;
  /** By default those of src/outbox/consumers/list.ts. A function selects from these. */
  readonly consumers?: readonly Consumer[] | ((listed: readonly Consumer[]) => readonly Consumer[]);
  /** The jobs on a schedule; by default all of src/jobs/list.ts. */
  readonly jobs?: readonly Job[];
  /** How often consumers look whether their rules have changed. */
  readonly upkeepMs?: number;
  /** A process that was started by root drops these before it serves anybody. */
  readonly privileges?: Privileges | undefined;
  /** Replaces some of the default limits of HTTP connections. */
  readonly httpBounds?: Partial<ServerBounds>;
  /** The newest lines of the log, for operators of the node. */
  readonly logLines?: LogLines | undefined;
  /** The port, if it is open already. */
  readonly early?: EarlyPort | undefined;
  /** The port of another process, which passes its connections to this one and others. */
  readonly passed?: PassedPort | undefined;
  /** What /metrics answers; by default the metrics of this process. */
  readonly scrape?: (() => Promise<string>) | undefined;
  /** Runs a job soon in the process with the role worker, if that is another one. */
  readonly runSoon?: ((job: string) => Promise<void>) | undefined;
}

export interface Node {
  readonly port: number;
  readonly communities: Communities;
  readonly fanout: Fanout;
  /** The newest events, as this relay has them at hand. */
  readonly memory: Memory;
  readonly store: EventStore;
  readonly erasing: Erasing;
  readonly schedule: Schedule | undefined;
  readonly consumers: RunningConsumers | undefined;
  readonly metrics: Metrics;
  readonly verifier: Verifier;
  /** How often a client may do what, over all instances. */
  readonly rates: Rates;
  /** Open HTTP connections. */
  readonly httpConnections: () => number;
  /** The work that clients cause in this process. */
  readonly work: Work;
  /** Bytes that clients have sent and that are not processed yet. */
  readonly input: HeldBytes;
  /** Bytes that clients have not read yet. */
  readonly output: HeldBytes;
  /** What stands behind the rates, and credentials that are accepted once. */
  readonly limits: SharedLimits;
  /** Stops accepting, writes what is queued, closes the sockets. The caller closes the database. */
  close(): Promise<void>;
}

export async function startNode(options: NodeOptions): Promise<Node> {
  const { database, config, log, now = Date.now, roles = new Set(ROLES) } = options;
  const parts = { ...options, now };
  let port = config.port;
  let worker: Worker | undefined;
  const stores = await openStores(options, { roles, port: () => port });
  const entry = await openEntry(parts, stores);
  const { http } = entry;
  const hasApi = roles.has('api');
  const pages = hasApi ? await BuiltPages.open() : undefined;
  const relay = roles.has('relay') ? startRelay({ ...parts, hasApi, pages }, stores, entry) : undefined;
  const runSoon = options.runSoon ?? (async (job: string) => worker?.schedule.trigger(job));
  const sessions = pages && (await startApi({ ...parts, pages, runSoon }, stores, entry));
  const closeStores = async (): Promise<void> => {
    await stores.close();
    await sessions?.close();
  };
  // If the port is taken, nothing may keep running.
  port = await listen(http, options).catch(async (error) => {
    await relay?.close();
    await closeStores();
    throw error;
  });
  const backupDir = config.databaseUrl === undefined ? config.backupDir : undefined;
  if (roles.has('worker')) worker = startWorker({ ...parts, backupDir }, stores);
  const { communities, disk, erasing, metrics, store, verifier } = stores.writer;
  const stopSampler = startSampler({
    pool: database.ownPool,
    metrics,
    log,
    now,
    isWorker: roles.has('worker'),
    diskFreeBytes: () => disk.now().freeBytes,
  });
  return {
    port,
    communities,
    fanout: stores.fanout,
    memory: stores.memory,
    store,
    erasing,
    schedule: worker?.schedule,
    consumers: worker?.consumers,
    metrics,
    verifier,
    rates: stores.rates,
    httpConnections: () => http.connections,
    work: entry.work,
    input: entry.input,
    output: entry.output,
    limits: stores.limits,
    close: () =>
      inLimitedTime(database, log, async () => {
        http.stopAccepting();
        await stopSampler();
        await worker?.stop();
        await store.close();
        await relay?.close();
        await http.close();
        await closeStores();
      }),
  };
}

/** After CLOSE_MS_MAX the connections to the database are cut, so that whatever waits for it ends. */
async function inLimitedTime(database: Database, log: Log, close: () => Promise<void>): Promise<void> {
  const timer = setTimeout(() => {
    log.error('not everything stopped in time; the connections to PostgreSQL are cut');
    database.cut();
  }, CLOSE_MS_MAX);
  try {
    await close();
  } finally {
    clearTimeout(timer);
  }
}
