/**
 * Whose turn it is. The holder's beat stands in the database; a watcher that sees it stand still, by its own clock, takes the turn
 * over. So no clocks are compared, and nobody waits for a process that was killed longer than a few seconds. That two believe to
 * have it does no harm: a number is saved only by the one whose name is there (store/consumers.ts).
 */
import { performance } from 'node:perf_hooks';
import { setTimeout as delay } from 'node:timers/promises';
import type { Pool } from 'pg';
import { beat, readTurn, type Turn, takeTurn } from '../store/consumers.js';

const WATCH_MS = 1_000;
const BEAT_MS = 1_000;
const STANDS_STILL_MS = 3_000;

export interface Claim {
  readonly pool: Pool;
  readonly consumer: string;
  readonly holder: string;
}

/** True when the turn is ours, false when it is time to stop. */
export async function awaitTurn({ pool, consumer, holder }: Claim, signal: AbortSignal): Promise<boolean> {
  let seen: Turn | undefined;
  let since = 0;
  while (!signal.aborted) {
    // What could not be looked at has not been seen to stand still.
    const turn = await readTurn(pool, consumer).catch(() => undefined);
    if (turn?.holder !== seen?.holder || turn?.beat !== seen?.beat) since = performance.now();
    seen = turn;
    const isFree = turn?.holder === null || performance.now() - since >= STANDS_STILL_MS;
    if (turn !== undefined && isFree && (await takeTurn(pool, consumer, turn, holder).catch(() => false)))
      return true;
    await delay(WATCH_MS, undefined, { signal }).catch(() => undefined);
  }
  return false;
}

/** Beats until it is stopped, or until the turn is found to be another's. */
export function keepTurn({ pool, consumer, holder }: Claim, onLost: () => void): { stop(): Promise<void> } {
  let beating: Promise<void> | undefined;
  const once = async (): Promise<void> => {
    // While the database cannot be reached nobody is told anything; whoever reaches it may take over.
    const kept = await beat(pool, consumer, holder).catch(() => true);
    if (!kept) onLost();
    beating = undefined;
  };
  const timer = setInterval(() => {
    beating ??= once();
  }, BEAT_MS);
  return {
    stop: async () => {
      clearInterval(timer);
      await beating;
    },
  };
}
