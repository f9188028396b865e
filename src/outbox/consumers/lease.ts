/**
 * The lease of a consumer. Its holder raises a beat in the database. An instance that sees an unchanged beat
 * for some seconds of its own clock takes the lease over. So no clocks are compared, and the lease of a
 * killed process is taken over within seconds. If two instances believe that they hold it, no harm is done:
 * only the holder in the database can save an offset (outbox/consumers/consumers.sql.ts).
 *
 * One statement renews all leases of an instance, and its result says whether there is work. So a consumer
 * without work makes no other query.
 */
import { performance } from 'node:perf_hooks';
import { setTimeout as delay } from 'node:timers/promises';
import type { Pool } from 'pg';
import { type Beat, beatAll, type Held, type Lease, readLease, takeLease } from './consumers.sql.js';

/** Seldom, because each beat is a write (docs/decisions/0019-fewer-bytes.md). */
const BEAT_MS = 2_000;
const WATCH_MS = 1_000;
const STANDS_STILL_MS = 5_000;

export interface Claim extends Held {
  readonly pool: Pool;
}

/** True if this instance got the lease, false if it stops. */
export async function awaitLease({ pool, consumer, holder }: Claim, signal: AbortSignal): Promise<boolean> {
  let seen: Lease | undefined;
  let since = 0;
  while (!signal.aborted) {
    // A failed read does not count as an unchanged beat.
    const lease = await readLease(pool, consumer).catch(() => undefined);
    if (lease?.holder !== seen?.holder || lease?.beat !== seen?.beat) since = performance.now();
    seen = lease;
    const isFree = lease?.holder === null || performance.now() - since >= STANDS_STILL_MS;
    if (lease !== undefined && isFree && (await takeLease(pool, consumer, lease, holder).catch(() => false)))
      return true;
    await delay(WATCH_MS, undefined, { signal }).catch(() => undefined);
  }
  return false;
}

export interface Keeper extends Held {
  /** Receives the state of the consumer; undefined if another instance holds the lease. */
  onBeat(beat: Beat | undefined): void;
}

/** The leases that this instance holds. */
export class Leases {
  private readonly keepers = new Set<Keeper>();
  private beating: Promise<void> | undefined;
  private timer: NodeJS.Timeout | undefined;

  constructor(private readonly pool: Pool) {}

  /** Renews a lease until it is released or another instance has taken it over. */
  keep(keeper: Keeper): { release(): Promise<void> } {
    this.keepers.add(keeper);
    this.timer ??= setInterval(() => {
      this.beating ??= this.beat().finally(() => {
        this.beating = undefined;
      });
    }, BEAT_MS);
    return {
      release: async () => {
        this.keepers.delete(keeper);
        if (this.keepers.size === 0) {
          clearInterval(this.timer);
          this.timer = undefined;
        }
        await this.beating;
      },
    };
  }

  private async beat(): Promise<void> {
    const kept = [...this.keepers];
    // If the database is unreachable, the lease is kept; another instance that reaches it may take over.
    const beats = await beatAll(this.pool, kept).catch(() => undefined);
    if (beats === undefined) return;
    const found = new Map(beats.map((beat) => [beat.consumer, beat]));
    for (const keeper of kept) {
      const beat = found.get(keeper.consumer);
      if (beat === undefined) this.keepers.delete(keeper);
      keeper.onBeat(beat);
    }
  }
}
