/** The counters of duplicates in `event_dedupe`. */
import type { Pool } from 'pg';
import { hexArray, int4Array, int8Array } from './binary.js';

export interface SeenAgain {
  readonly community: number;
  readonly id: string;
  readonly times: number;
  readonly lastSeenAt: number;
}

export async function writeSeen(pool: Pool, seen: readonly SeenAgain[]): Promise<void> {
  await pool.query(
    `UPDATE event_dedupe d SET seen_count = d.seen_count + s.times, last_seen_at = s.last_seen_at
     FROM unnest($1::int[], $2::bytea[], $3::int[], $4::bigint[]) AS s (community, event_id, times, last_seen_at)
     WHERE d.community = s.community AND d.event_id = s.event_id`,
    [
      int4Array(seen.map((s) => s.community)),
      hexArray(seen.map((s) => s.id)),
      int4Array(seen.map((s) => s.times)),
      int8Array(seen.map((s) => s.lastSeenAt)),
    ],
  );
}
