/**
 * Counts how often known events are sent again (`seen_count`, `last_seen_at`). The counts are summed in
 * memory and written from time to time, outside the lane, so a flood of duplicates costs the database almost
 * nothing. A crash loses a few counts.
 */
import { startPolling } from '../limits/poll-loop.js';
import type { Log } from '../node/log.js';
import type { EventStore, SeenAgain } from './store.js';

const FLUSH_MS = 10_000;
/** Ids that are counted between two writes; further ids are not counted (I14). */
const IDS_MAX = 10_000;

export class SeenCounts {
  private counts = new Map<string, SeenAgain>();

  add(community: number, id: string, now: number): void {
    const key = `${community}/${id}`;
    const before = this.counts.get(key);
    if (before === undefined && this.counts.size >= IDS_MAX) return;
    this.counts.set(key, { community, id, times: (before?.times ?? 0) + 1, lastSeenAt: now });
  }

  async flush(store: Pick<EventStore, 'countSeen'>): Promise<void> {
    const seen = [...this.counts.values()];
    this.counts = new Map();
    if (seen.length > 0) await store.countSeen(seen);
  }
}

/** Writes the counts from time to time, and once more when stopped. */
export function startSeenFlush(
  seen: SeenCounts,
  store: Pick<EventStore, 'countSeen'>,
  log: Log,
): () => Promise<void> {
  const flush = () =>
    seen
      .flush(store)
      .catch((error) =>
        log.debug({ error: String(error) }, 'counts of duplicates could not be written and are lost'),
      );
  const stop = startPolling(FLUSH_MS, flush);
  return async () => {
    await stop();
    await flush();
  };
}
