/**
 * Runs the consumers for a command that erases while no node runs: the outbox is scrubbed only after every
 * consumer has read it. If another process holds the lease of a consumer, that process runs it. The lease of
 * a dead process is taken over after a few seconds (lease.ts). Only consumers that a node has started before
 * are run.
 */
import { performance } from 'node:perf_hooks';
import { setTimeout as delay } from 'node:timers/promises';
import type { Log } from '../../node/log.js';
import type { Metrics } from '../../node/metrics.js';
import type { Database } from '../../postgres/database.js';
import type { ChangedEvents } from '../changes.sql.js';
import { type ConsumerState, readConsumers } from './admin.sql.js';
import { Consuming } from './consume.js';
import type { Consumer } from './consumer.js';
import { Leases } from './lease.js';

const LOOK_MS = 100;
/**
 * The command does not wait for a consumer that makes no progress for this long. It is longer than taking
 * over the lease of a dead process takes.
 */
const STANDS_STILL_MS = 20_000;

export interface AssistOptions {
  readonly database: Database;
  readonly consumers: readonly Consumer[];
  /** Where the events of changes are; by default in the database. */
  readonly events?: ChangedEvents | undefined;
  readonly metrics: Metrics;
  readonly log: Log;
  readonly now: () => number;
}

export interface Assisting {
  /**
   * Waits, while they make progress, until all have read what was committed before the call. `onWait`
   * receives a text about those that it waits for. False if one is paused or makes no progress.
   */
  caughtUp(signal: AbortSignal, onWait?: (about: string) => void): Promise<boolean>;
  /** Finishes the current batches and releases the leases. */
  stop(): Promise<void>;
}

export async function assistConsumers(options: AssistOptions): Promise<Assisting> {
  const { database, consumers, now } = options;
  const states = () => readConsumers(database.ownPool, now());
  const started = new Set((await states()).map(({ consumer }) => consumer));
  const ours = consumers.filter(({ name }) => started.has(name));
  const leases = new Leases(database.ownPool);
  const running = ours.map((consumer) => new Consuming({ ...options, leases, consumer }));
  const names = new Set(ours.map(({ name }) => name));
  const own = async () => (await states()).filter(({ consumer }) => names.has(consumer));
  return {
    caughtUp: async (signal, onWait) => {
      const head = Math.max(0, ...(await own()).map(({ headSeq }) => headSeq));
      let seen = '';
      for (let since = performance.now(); !signal.aborted; ) {
        const behind = (await own()).filter((state) => isBehind(state, head));
        if (behind.length === 0) return true;
        const at = JSON.stringify(
          behind.map(({ lastSeq, generation, rebuild }) => [lastSeq, generation, rebuild]),
        );
        if (at !== seen) since = performance.now();
        seen = at;
        const isHopeless = behind.some(({ pausedAt }) => pausedAt !== null);
        if (isHopeless || performance.now() - since > STANDS_STILL_MS) return false;
        onWait?.(`waits for ${behind.map(waitText).join(', ')}`);
        for (const each of running) each.hurry();
        await delay(LOOK_MS, undefined, { signal }).catch(() => undefined);
      }
      return false;
    },
    stop: async () => {
      await Promise.all(running.map((each) => each.stop()));
    },
  };
}

/** A generation that is being built must have read it too, because it will be the live one. */
const isBehind = ({ lastSeq, rebuild }: ConsumerState, head: number) =>
  lastSeq < head || (rebuild !== undefined && rebuild.startedAt !== null);

const waitText = ({ consumer, lagRows, rebuild }: ConsumerState) =>
  rebuild === undefined ? `${consumer} (${lagRows} changes to read)` : `${consumer} (it is being rebuilt)`;
