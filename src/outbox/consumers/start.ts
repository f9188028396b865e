/** Starts the consumers of an instance and their metrics. Each runs independently; all are woken together. */
import { setTimeout as delay } from 'node:timers/promises';
import type { Communities } from '../../communities/communities.js';
import type { Wakeups } from '../../events/wakeups.js';
import type { Log } from '../../node/log.js';
import type { Metrics } from '../../node/metrics.js';
import type { DiskLevel } from '../../node/rules-disk.js';
import type { Database } from '../../postgres/database.js';
import type { ChangedEvents } from '../changes.sql.js';
import { readHead } from '../outbox.sql.js';
import { Consuming } from './consume.js';
import type { Consumer } from './consumer.js';
import { readLease } from './consumers.sql.js';
import { Leases } from './lease.js';
import type { RecentChanges } from './recent-changes.js';
import { startReport } from './report.js';

const STOP_MS_MAX = 20_000;
const DRAIN_MS_MAX = 60_000;
const DRAIN_POLL_MS = 20;

export interface ConsumersOptions {
  readonly database: Database;
  readonly communities: Communities;
  readonly consumers: readonly Consumer[];
  readonly wakeups: Wakeups;
  /** Where the events of changes are; by default in the database. */
  readonly events?: ChangedEvents | undefined;
  readonly metrics: Metrics;
  readonly log: Log;
  readonly now: () => number;
  /** How full the disk of the database is; 0 by default. */
  readonly diskLevel?: (() => DiskLevel) | undefined;
  readonly upkeepMs?: number | undefined;
  /** The changes that this process has committed; without it all changes are read from the outbox. */
  readonly recent?: RecentChanges | undefined;
}

export interface RunningConsumers {
  /** Resolves when every consumer, on any instance, has applied what was committed before the call. */
  drained(): Promise<void>;
  /** Wakes all consumers, without waiting for the next poll or for changes to gather. */
  hurry(): void;
  /** Finishes the current batches. */
  stop(): Promise<void>;
}

export function startConsumers(options: ConsumersOptions): RunningConsumers {
  const { consumers, database, wakeups } = options;
  const leases = new Leases(database.ownPool);
  const running = consumers.map((consumer) => new Consuming({ ...options, leases, consumer }));
  wakeups.add({
    wake: () => {
      for (const each of running) each.wake();
    },
  });
  const stopReport = startReport(options);
  const hurry = (): void => {
    for (const each of running) each.hurry();
  };
  return {
    hurry,
    drained: async () => {
      const head = await readHead(database.ownPool);
      const deadline = performance.now() + DRAIN_MS_MAX;
      for (const { name } of consumers) {
        while (!(await hasPassed(database, name, head))) {
          if (performance.now() > deadline) throw new Error(`${name} did not reach offset ${head} in time`);
          hurry();
          await delay(DRAIN_POLL_MS);
        }
      }
    },
    stop: async () => {
      const stopped = Promise.all([...running.map((each) => each.stop()), stopReport()]);
      // Bounded: a database that does not answer must not keep the node from stopping.
      await Promise.race([stopped, delay(STOP_MS_MAX, undefined, { ref: false })]);
    },
  };
}

async function hasPassed({ ownPool }: Database, name: string, head: number): Promise<boolean> {
  const lease = await readLease(ownPool, name);
  return lease !== undefined && lease.generation > 0 && lease.lastSeq >= head;
}
