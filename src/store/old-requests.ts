/**
 * Deletion requests past `deletion.keepRequestsDays`, with the tombstones that they left. Inside the lane's transaction: the request
 * and its tombstones end together, and no event is decided in between.
 */
import type { Client } from 'pg';
import { KIND_DELETION } from '../core/classify.js';
import { Keep } from '../core/keep.js';
import { hexArray } from './binary.js';
import { bounded, COLUMNS, countByKind, type KindCount, type SweptRow, selectEvents } from './sweeps.js';
import type { WouldGo } from './would-go.js';

const OLD_REQUESTS = `FROM events e WHERE e.keep = ${Keep.request} AND e.kind = ${KIND_DELETION} AND e.hidden IS NULL
    AND e.community = $1 AND e.ingested_at < $2`;
export const OLD_REQUESTS_SQL = bounded(`SELECT ${COLUMNS} ${OLD_REQUESTS} ORDER BY e.ingested_at LIMIT $3`);

/** Takes their tombstones with them. One that a later request has renewed names that one, and stays. */
export async function takeOldRequests(
  client: Client,
  community: number,
  ingestedBefore: number,
  limit: number,
): Promise<SweptRow[]> {
  const requests = await selectEvents(client, OLD_REQUESTS_SQL, [community, ingestedBefore, limit]);
  if (requests.length > 0)
    await client.query(
      'DELETE FROM deletion_tombstones WHERE community = $1 AND deletion_event = ANY ($2::bytea[])',
      [community, hexArray(requests.map(({ event }) => event.id))],
    );
  return requests;
}

export function countOldRequests(
  client: Client,
  community: number,
  ingestedBefore: number,
  gone: WouldGo,
): Promise<KindCount[]> {
  return countByKind(client, { from: OLD_REQUESTS, values: [community, ingestedBefore], served: true }, gone);
}
