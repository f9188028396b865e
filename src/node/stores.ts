/**
 * Opens what every role of a node stands on: rates, the writer with its event store, wake-ups and live
 * delivery. Erasures that a restore has brought back are repeated before anybody is served (I6). If a step
 * fails, what is open already is closed.
 */
import { replayForgotten } from '../erasure/erase-now.js';
import type { Erasing } from '../erasure/stores/registry.js';
import type { BatchWrites } from '../events/rules/writes.js';
import { Wakeups } from '../events/wakeups.js';
import { BOUNDS, type JobContext } from '../jobs/job.js';
import { Rates } from '../limits/rates.js';
import { openLimits, type SharedLimits } from '../limits/shared.js';
import { RecentChanges } from '../outbox/consumers/recent-changes.js';
import { CursorMaker } from '../relay/cursors/cursor.js';
import { PositionSeal } from '../relay/cursors/sealed-position.js';
import { Fanout } from '../relay/fanout.js';
import { Memory } from '../relay/memory.js';
import { Filling } from '../relay/window/filling.js';
import type { Log } from './log.js';
import type { Role } from './roles.js';
import { fixCursorSecret } from './state.sql.js';
import { startWriter, type Writer, type WriterOptions } from './writer.js';

export interface Stores {
  /** What stands behind the rates, and credentials that are accepted once. */
  readonly limits: SharedLimits;
  readonly rates: Rates;
  readonly writer: Writer;
  readonly wakeups: Wakeups;
  readonly fanout: Fanout;
  readonly memory: Memory;
  /** The cursors of clients that come back. */
  readonly cursors: CursorMaker;
  /** What this process has committed itself, for its consumers; only with the role worker. */
  readonly recentChanges: RecentChanges | undefined;
  readonly jobContext: Omit<JobContext, 'signal'>;
  close(): Promise<void>;
}

export interface StoresFor {
  readonly roles: ReadonlySet<Role>;
  /** The port on which the node listens; known only after it listens. */
  readonly port: () => number;
}

export async function openStores(options: WriterOptions, { roles, port }: StoresFor): Promise<Stores> {
  const { database, config, log, now = Date.now } = options;
  const memory = new Memory();
  const limits = await openLimits(config.redisUrl, database.limitsPool, log);
  const rates = new Rates({ shared: limits, log });
  // Undefined while erasures are repeated below: no client is connected yet.
  let live: Fanout | undefined;
  const isWorker = roles.has('worker');
  const recentChanges = isWorker ? new RecentChanges() : undefined;
  const onCommit = (writes: BatchWrites) => {
    if (roles.has('relay')) live?.onCommit(writes);
    recentChanges?.onCommit(writes);
  };
  const wakeups = new Wakeups(database, log);
  const onLaneSession = (processId: number | undefined) => wakeups.noteLane(processId);
  const hooks = { port, rates, signs: isWorker, onCommit, onLaneSession, notices: wakeups };
  const writer = await startWriter(options, hooks).catch(async (error) => {
    await limits.close();
    throw error;
  });
  const { audit, changed, communities, disk, erasing, keys, metrics, recent, store } = writer;
  const diskLevel = () => disk.now().level;
  const jobContext = {
    database,
    store,
    changed,
    communities,
    now,
    bounds: BOUNDS,
    erasing,
    audit,
    diskLevel,
    metrics,
    log,
  };
  try {
    const { signal } = new AbortController();
    const follow = writer.dynamodb?.follow;
    await replayForgotten({ ...jobContext, keys, signal, follow }, config.dataDir);
    if (isWorker) await keepCertificates(erasing, log);
  } catch (error) {
    await writer.close();
    await limits.close();
    throw error;
  }
  const cursors = new CursorMaker(new PositionSeal(await fixCursorSecret(database.ownPool)), now);
  const rulesOf = (community: number) => communities.get(community);
  const fanout = new Fanout({ events: store, wakeups, memory, recent, metrics, log, now, rulesOf });
  live = fanout;
  const filling = new Filling({
    events: store,
    memory,
    communities: () => communities.all().map(({ id }) => id),
    // The log is behind a store in DynamoDB by a moment, so memory would show what was just deleted (I6).
    budget: () => (writer.dynamodb === undefined ? communities.node()['node.memoryWindowMB'] : 0),
    position: () => fanout.passed,
    log,
  });
  if (roles.has('relay')) {
    await fanout.start();
    writer.replica?.follow(async () => {
      await fanout.caughtUp();
      return fanout.passed;
    });
    filling.kick();
    memory.onCleared = () => filling.kick();
    communities.afterPoll(() => {
      filling.kick();
      metrics.windowEvents.set(memory.window.events);
      metrics.windowBytes.set(memory.window.bytes);
    });
  }
  wakeups.start();
  const close = async (): Promise<void> => {
    await wakeups.stop();
    await filling.stop();
    await fanout.stop();
    await writer.close();
    rates.close();
    await limits.close();
  };
  return { limits, rates, writer, wakeups, fanout, memory, cursors, recentChanges, jobContext, close };
}

/**
 * Other machines may have completed erasures meanwhile. A restore on this machine needs their certificates.
 */
async function keepCertificates({ certificates }: Erasing, log: Log): Promise<void> {
  await certificates.keepFile().catch((error: unknown) => {
    log.warn(
      { error: String(error) },
      'certificates cannot be kept in the data folder; a restore needs them',
    );
  });
}
