/** Duplicates (`event_dedupe`): whether an event is served, and how often it was sent again. */
import type { Pool } from 'pg';
import { hexArray, int4Array, int8Array } from '../../postgres/binary.js';
import { ownersOf } from '../rules/deletion.js';
import type { NostrEvent } from '../rules/event.js';
import type { SeenAgain } from '../store.js';

export async function writeSeen(pool: Pool, seen: readonly SeenAgain[]): Promise<void> {
  await pool.query(
    `UPDATE event_dedupe d SET seen_count = d.seen_count + s.times, last_seen_at = s.last_seen_at
     FROM unnest($1::int[], $2::bytea[], $3::int[], $4::bigint[])
       AS s (community, event_id, times, last_seen_at)
     WHERE d.community = s.community AND d.event_id = s.event_id`,
    [
      int4Array(seen.map((s) => s.community)),
      hexArray(seen.map((s) => s.id)),
      int4Array(seen.map((s) => s.times)),
      int8Array(seen.map((s) => s.lastSeenAt)),
    ],
  );
}

/** By its id alone. False for events covered by a request to vanish, which may not be erased yet. */
export async function isServed(pool: Pool, community: number, event: NostrEvent): Promise<boolean> {
  const { rows } = await pool.query<{ served: boolean }>({
    name: 'is-served',
    text: `SELECT EXISTS (SELECT 1 FROM event_dedupe
        WHERE community = $1 AND event_id = $2 AND hidden IS NULL)
      AND NOT EXISTS (SELECT 1 FROM vanish_marks
        WHERE community = $1 AND pubkey = ANY ($3::bytea[]) AND until >= $4)
      AS served`,
    values: [community, Buffer.from(event.id, 'hex'), hexArray(ownersOf(event)), event.created_at],
  });
  return rows[0]!.served;
}
