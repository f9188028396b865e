/** Collects what each part of the node knows about one event, for its timeline. Reads only. */
import type { Pool } from 'pg';
import type { Community } from '../communities/communities.js';
import type { StoredEvents } from '../events/stored-events.js';
import { labelsAbout } from '../labels/labels.sql.js';
import { actionsOnEvent, casesOfEvent } from '../moderation/cases.sql.js';
import { isIndexed } from '../search/documents.sql.js';
import { type Life, lifeOf } from './rules.js';

export interface WholeLife extends Life {
  readonly author: string | undefined;
  /** Undefined once the event is purged. Times of Nostr events are seconds. */
  readonly event:
    | { readonly kind: number; readonly createdAt: number; readonly expiresAt: number | null }
    | undefined;
  /** Whether search can find its words. */
  readonly indexed: boolean;
}

/** Undefined if nothing is known about this id in this community (I13). */
export async function readLife(
  pool: Pool,
  events: StoredEvents,
  { id: community, blocks, refused }: Pick<Community, 'id' | 'blocks' | 'refused'>,
  id: string,
  now: number,
): Promise<WholeLife | undefined> {
  const store = await events.life(pool, { community, id });
  const { known, tombstones } = store;
  const actions = await actionsOnEvent(pool, community, id);
  const labels = await labelsAbout(pool, { community, event: id });
  if (known === undefined && tombstones.length + actions.length + labels.length === 0) return undefined;
  const author = known?.author;
  const others = {
    actions,
    labels,
    cases: author === undefined ? [] : await casesOfEvent(pool, community, id, author),
    isBlocked: author !== undefined && blocks.authors.has(author),
    refusedAs: author === undefined ? undefined : refused.get(author),
  };
  const stored = known?.stored;
  return {
    ...lifeOf(id, store, others, now),
    author,
    event: stored && {
      kind: stored.event.kind,
      createdAt: stored.event.created_at,
      expiresAt: stored.expiresAt,
    },
    indexed: await isIndexed(pool, { community, id }),
  };
}
