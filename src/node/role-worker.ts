/** The role worker: scheduled jobs, consumers of the outbox, gossip, and a relay key for each community. */
import { startBackupGauge } from '../backup/gauge.js';
import type { Communities } from '../communities/communities.js';
import { startErasureGauge } from '../erasure/jobs-gauge.js';
import type { Job } from '../jobs/job.js';
import { jobsIn } from '../jobs/list.js';
import { type Schedule, startSchedule } from '../jobs/schedule.js';
import type { NodeKeys } from '../keys/keys.js';
import type { Consumer } from '../outbox/consumers/consumer.js';
import { consumersOf } from '../outbox/consumers/list.js';
import { type RunningConsumers, startConsumers } from '../outbox/consumers/start.js';
import { startGossip } from '../p2p/gossip.js';
import type { Database } from '../postgres/database.js';
import { fillFromPeer, type Gap } from '../sync/fill.js';
import { startPeerSchedule } from '../sync/schedule.js';
import type { Config } from './config.js';
import type { Log } from './log.js';
import type { Stores } from './stores.js';

export interface WorkerOptions {
  readonly database: Database;
  readonly log: Log;
  readonly now: () => number;
  /** By default those of src/outbox/consumers/list.ts. A function selects from these. */
  readonly consumers?:
    | readonly Consumer[]
    | ((listed: readonly Consumer[]) => readonly Consumer[])
    | undefined;
  /** Where the embedded server archives its log to. */
  readonly backupDir?: string | undefined;
  /** By default all jobs of src/jobs/list.ts. */
  readonly jobs?: readonly Job[] | undefined;
  /** How often consumers look whether their rules have changed. */
  readonly upkeepMs?: number | undefined;
  readonly config: Pick<Config, 'dataDir' | 'eventStore'>;
}

export interface Worker {
  readonly schedule: Schedule;
  readonly consumers: RunningConsumers;
  /** Finishes the batches in progress. */
  stop(): Promise<void>;
}

export function startWorker(
  { database, log, now, backupDir, consumers: chosen, jobs: given, upkeepMs, config }: WorkerOptions,
  { writer, wakeups, recentChanges, jobContext }: Stores,
): Worker {
  const { communities, erasing, keys, metrics, store } = writer;
  const jobs = given ?? jobsIn(config.eventStore);
  communities.afterPoll(makeRelayKeys(communities, keys, log));
  const stopStream = writer.dynamodb?.follow();
  const schedule = startSchedule({ context: jobContext, jobs, metrics, log });
  const stopGauge = startErasureGauge({ pool: database.ownPool, metrics, log });
  const stopBackupGauge =
    backupDir === undefined
      ? undefined
      : startBackupGauge({ pool: database.ownPool, folder: backupDir, metrics, log, now });
  const { subjectKey } = erasing;
  const listed = consumersOf({ communities, database, store, keys, subjectKey, log, now });
  const consumers = startConsumers({
    database,
    communities,
    consumers: typeof chosen === 'function' ? chosen(listed) : (chosen ?? listed),
    events: writer.changed,
    wakeups,
    metrics,
    log,
    now,
    diskLevel: jobContext.diskLevel,
    upkeepMs,
    recent: recentChanges,
  });
  const { admission, disk } = writer;
  const parts = {
    admission,
    communities,
    store,
    keys,
    pool: database.pool,
    diskLevel: disk.levelFor,
    log,
    now,
  };
  const stopPeers = startPeerSchedule({ database, parts });
  // The ticket of a stranger may name any address, so one of a private network needs the setting here too.
  const fill = async (gap: Gap): Promise<void> => {
    const allowsPrivate = communities.node()['node.syncPrivatePeers'];
    const { ended, why, refused, sentRefused } = await fillFromPeer(gap, { ...parts, allowsPrivate });
    // Also if it was stopped here, for want of space or because the lane was busy: it is tried again.
    if (ended !== 'complete') throw new Error(why);
    const left =
      (refused['rate-limited'] ?? 0) + (sentRefused['rate-limited'] ?? 0) + (sentRefused.error ?? 0);
    if (left > 0) throw new Error(`${left} events could not be exchanged now`);
  };
  const gossip = startGossip({
    admission,
    store,
    pool: database.ownPool,
    communities,
    wakeups,
    metrics,
    log,
    now,
    bases: writer.bases,
    dataDir: config.dataDir,
    fill,
  });
  const stop = async (): Promise<void> => {
    const gauges = [stopGauge(), stopBackupGauge?.()];
    const running = [schedule.stop(), consumers.stop(), gossip.stop(), stopPeers(), stopStream?.()];
    await Promise.all([...running, ...gauges]);
  };
  return { schedule, consumers, stop };
}

/** Makes the relay key of every community that has none yet: NIP-11 names it. */
function makeRelayKeys(communities: Communities, keys: NodeKeys, log: Log): () => Promise<void> {
  let hasFailed = false;
  return async () => {
    if (hasFailed) return;
    try {
      for (const { id, self } of communities.all()) if (self === undefined) await keys.pubkey(id, 'relay');
    } catch (error) {
      hasFailed = true;
      log.warn(
        { error: String(error) },
        'the key of the relay cannot be made; it signs nothing until a restart',
      );
    }
  };
}
