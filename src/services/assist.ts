/**
 * The consumers' part of an erasure, in a process that is no node: the outbox is scrubbed when every consumer has read it, and where no node
 * runs nobody reads. A consumer whose lease another process holds is left to that process; a lease whose holder is dead is taken over
 * after a few seconds (turn.ts). Only consumers that a node has started before are worked on.
 */
import { performance } from 'node:perf_hooks';
import { setTimeout as delay } from 'node:timers/promises';
import type { Log } from '../log.js';
import type { Metrics } from '../metrics.js';
import type { Database } from '../postgres/database.js';
import { type ConsumerState, readConsumers } from '../store/consumer-admin.js';
import { Consuming } from './consume.js';
import type { Consumer } from './consumer.js';

const LOOK_MS = 100;
/** One that has not moved for so long is not waited for: longer than it takes to take over the lease of a dead process. */
const STANDS_STILL_MS = 20_000;

export interface AssistOptions {
  readonly database: Database;
  readonly consumers: readonly Consumer[];
  readonly metrics: Metrics;
  readonly log: Log;
  readonly now: () => number;
}

export interface Assisting {
  /**
   * Waits, as long as they move, until all have read what was committed before the call; `onWait` hears for which. False when one is
   * paused or stands still.
   */
  caughtUp(signal: AbortSignal, onWait?: (about: string) => void): Promise<boolean>;
  /** Finishes the batches at hand and gives the leases back. */
  stop(): Promise<void>;
}

export async function assistConsumers(options: AssistOptions): Promise<Assisting> {
  const { database, consumers, now } = options;
  const states = () => readConsumers(database.ownPool, now());
  const started = new Set((await states()).map(({ consumer }) => consumer));
  const ours = consumers.filter(({ name }) => started.has(name));
  const running = ours.map((consumer) => new Consuming({ ...options, consumer }));
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

/** A generation in the making has to have read it as well, because it will be the live one. */
const isBehind = ({ lastSeq, rebuild }: ConsumerState, head: number) =>
  lastSeq < head || (rebuild !== undefined && rebuild.startedAt !== null);

const waitText = ({ consumer, lagRows, rebuild }: ConsumerState) =>
  rebuild === undefined ? `${consumer} (${lagRows} changes to read)` : `${consumer} (it is being rebuilt)`;
