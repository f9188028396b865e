/**
 * Deletion requests past `deletion.keepRequestsDays`, with their tombstones. Inside the lane's transaction:
 * the request and its tombstones end together, and no event is decided in between.
 */
import type { ClientBase } from 'pg';
import { hexArray } from '../../postgres/binary.js';
import { KIND_DELETION } from '../rules/classify.js';
import type { PlacedEvent } from '../rules/facts.js';
import { Keep } from '../rules/keep.js';
import type { DryRunState } from './dry-run.js';
import { bounded, COLUMNS, countByKind, type KindCount, selectEvents } from './sweeps.js';

const OLD_REQUESTS = `FROM events e
    WHERE e.keep = ${Keep.request} AND e.kind = ${KIND_DELETION} AND e.hidden IS NULL
    AND e.community = $1 AND e.ingested_at < $2`;
export const OLD_REQUESTS_SQL = bounded(`SELECT ${COLUMNS} ${OLD_REQUESTS} ORDER BY e.ingested_at LIMIT $3`);

/**
 * Deletes their tombstones too. A tombstone that a later request has renewed names that request, and stays.
 */
export async function takeOldRequests(
  client: ClientBase,
  community: number,
  ingestedBefore: number,
  limit: number,
): Promise<PlacedEvent[]> {
  const requests = await selectEvents(client, OLD_REQUESTS_SQL, [community, ingestedBefore, limit]);
  if (requests.length > 0)
    await client.query(
      'DELETE FROM deletion_tombstones WHERE community = $1 AND deletion_event = ANY ($2::bytea[])',
      [community, hexArray(requests.map(({ event }) => event.id))],
    );
  return requests;
}

export function countOldRequests(
  client: ClientBase,
  community: number,
  ingestedBefore: number,
  state: DryRunState,
): Promise<KindCount[]> {
  return countByKind(
    client,
    { from: OLD_REQUESTS, values: [community, ingestedBefore], served: true },
    state,
  );
}
