/** The tombstones that refuse an event which arrives after them. Pure. */
import { addressOf } from '../classify.js';
import { type DeletionTarget, isWithinWindow, ownersOf } from '../deletion.js';
import type { Submission } from '../facts.js';

export interface AppliedTombstone {
  readonly community: number;
  readonly target: DeletionTarget;
  readonly author: string;
}

/**
 * The store finds out whether a tombstone is applied for the first time. `requestedAt` gives the request time
 * of the tombstone for this target by this author.
 */
export function appliedTombstones(
  { community, event }: Submission,
  requestedAt: (target: string, author: string) => number | undefined,
): AppliedTombstone[] {
  const applied: AppliedTombstone[] = [];
  for (const author of ownersOf(event)) {
    if (requestedAt(event.id, author) !== undefined)
      applied.push({ community, author, target: { type: 'id', id: event.id } });
  }
  const address = addressOf(event);
  if (address === undefined) return applied;
  const until = requestedAt(address, event.pubkey);
  if (until !== undefined && isWithinWindow(event.created_at, until))
    applied.push({ community, author: event.pubkey, target: { type: 'address', address } });
  return applied;
}
