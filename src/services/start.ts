/** The consumers of an instance: each on its own, woken together, and what is measured of them. */
import { setTimeout as delay } from 'node:timers/promises';
import type { Communities } from '../communities.js';
import type { Log } from '../log.js';
import type { Metrics } from '../metrics.js';
import type { Database } from '../postgres/database.js';
import { readTurn } from '../store/consumers.js';
import { readHead } from '../store/outbox.js';
import type { Wakeups } from '../wakeups.js';
import { Consuming } from './consume.js';
import type { Consumer } from './consumer.js';
import { startReport } from './report.js';

const STOP_MS_MAX = 20_000;
const DRAIN_MS_MAX = 60_000;
const DRAIN_POLL_MS = 20;

export interface ConsumersOptions {
  readonly database: Database;
  readonly communities: Communities;
  readonly consumers: readonly Consumer[];
  readonly wakeups: Wakeups;
  readonly metrics: Metrics;
  readonly log: Log;
  readonly now: () => number;
  readonly upkeepMs?: number | undefined;
}

export interface RunningConsumers {
  /** Resolves when every consumer, here or on another instance, has passed what was committed before the call. */
  drained(): Promise<void>;
  /** Looks at once, without waiting for the next poll or for more to gather. */
  hurry(): void;
  /** Finishes the batches at hand. */
  stop(): Promise<void>;
}

export function startConsumers(options: ConsumersOptions): RunningConsumers {
  const { consumers, database, wakeups } = options;
  const running = consumers.map((consumer) => new Consuming({ ...options, consumer }));
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
      const deadline = Date.now() + DRAIN_MS_MAX;
      for (const { name } of consumers) {
        while (!(await hasPassed(database, name, head))) {
          if (Date.now() > deadline) throw new Error(`${name} did not come to ${head} in time`);
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
  const turn = await readTurn(ownPool, name);
  return turn !== undefined && turn.generation > 0 && turn.lastSeq >= head;
}
