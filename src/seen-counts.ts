/**
 * How often known events are sent again (`seen_count`, `last_seen_at`). Summed in memory and written now and then,
 * outside the lane: a flood of duplicates costs the database almost nothing. What a crash loses is a few counts.
 */
import { setTimeout as delay } from 'node:timers/promises';
import type { Pool } from 'pg';
import type { Log } from './log.js';
import { type SeenAgain, writeSeen } from './store/seen.js';

const FLUSH_MS = 10_000;
/** Ids that are counted between two writes; a flood of more different ones is not counted. */
const IDS_MAX = 10_000;

export class SeenCounts {
  private counts = new Map<string, SeenAgain>();

  add(community: number, id: string, now: number): void {
    const key = `${community}/${id}`;
    const before = this.counts.get(key);
    if (before === undefined && this.counts.size >= IDS_MAX) return;
    this.counts.set(key, { community, id, times: (before?.times ?? 0) + 1, lastSeenAt: now });
  }

  async flush(pool: Pool): Promise<void> {
    const seen = [...this.counts.values()];
    this.counts = new Map();
    if (seen.length > 0) await writeSeen(pool, seen);
  }
}

/** Writes the counts from time to time, and once more when stopped. */
export function startSeenFlush(seen: SeenCounts, pool: Pool, log: Log): () => Promise<void> {
  const stopping = new AbortController();
  const flush = () =>
    seen.flush(pool).catch((error) => log.debug({ error: String(error) }, 'seen counts were lost'));
  const loop = async (): Promise<void> => {
    while (!stopping.signal.aborted) {
      await delay(FLUSH_MS, undefined, { signal: stopping.signal }).catch(() => undefined);
      await flush();
    }
  };
  const running = loop();
  return () => {
    stopping.abort();
    return running;
  };
}
