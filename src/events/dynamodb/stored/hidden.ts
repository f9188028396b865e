/** Hidden events in DynamoDB: found by author or by when they were removed, and purged after their days. */

import type { Settings } from '../../../communities/rules-settings.js';
import { keptRemovals } from '../../../moderation/pending-actions.sql.js';
import type { Db } from '../../../postgres/values.js';
import { topicsOf } from '../../../topics/rules.js';
import { factKey } from '../../rules/facts.js';
import {
  HIDDEN_ROWS_MAX,
  type HiddenOf,
  type HiddenPlaces,
  type ListedPlace,
  type PurgeOfRemoved,
} from '../../stored-events.js';
import { type Dynamodb, eachOf } from '../client.js';
import { hiding, tidy } from '../commit.js';
import { boundOf, type EventItem, eventOf } from '../items.js';
import { END, newestKey, partitions, placeOf, timeKey, timeOf } from '../keys.js';
import { pageOf } from '../read/scans.js';
import { itemsByRef, page } from '../selections.js';

/** None where only the id is left. */
export function placesOf(item: EventItem, at: number): ListedPlace[] {
  const { event_id: id, payload, ingested_at: ingestedAt, keep } = item;
  return payload === undefined
    ? []
    : [{ at, id, bytes: Buffer.byteLength(payload), seq: 0, ingestedAt, keep }];
}

/** An author's deletion is physical here, so nothing is hidden as deleted. */
export async function placesOfHidden(db: Dynamodb, asked: HiddenOf): Promise<HiddenPlaces> {
  const { community, by, limit } = asked;
  if (by.hidden === 'deleted') return { places: [], next: undefined };
  const { keys, isMore } = 'author' in by ? await ofAuthor(db, asked, by.author) : await removed(db, asked);
  const items = await itemsByRef(
    db,
    keys.map(({ id }) => ({ community, id })),
  );
  const found = keys.flatMap(({ at, id }) => {
    const item = items.get(factKey(community, id));
    return item !== undefined && isAsked(item, asked) ? placesOf(item, at) : [];
  });
  const places = found.slice(0, limit);
  const last = found.length > limit ? places.at(-1) : isMore ? keys.at(-1) : undefined;
  return { places, next: last && { at: last.at, id: last.id } };
}

interface Keys {
  readonly keys: readonly { readonly at: number; readonly id: string }[];
  readonly isMore: boolean;
}

/** The newest first, by the time of the event. */
async function ofAuthor(
  db: Dynamodb,
  { community, after, since, until }: HiddenOf,
  author: string,
): Promise<Keys> {
  const [pk] = partitions.hidden(community, author);
  const first = newestKey(until ?? Number.MAX_SAFE_INTEGER, '');
  const from = after === undefined ? first : [first, `${newestKey(after.at, after.id)} `].sort()[1]!;
  const to = `${newestKey(since ?? 0, '')}${END}`;
  const { entries, more } = await page(db, pk!, { from, to, limit: HIDDEN_ROWS_MAX });
  const keys = entries.map(({ sk }) => placeOf(sk)).map(({ createdAt, id }) => ({ at: createdAt, id }));
  return { keys, isMore: more };
}

/** The newest first, by when they were removed. Those of one millisecond come by falling id. */
async function removed(db: Dynamodb, { community, after }: HiddenOf): Promise<Keys> {
  const [pk] = partitions.removed(community);
  const to = after === undefined ? END : before(timeKey(after.at, after.id));
  const range = { from: ' ', to, limit: HIDDEN_ROWS_MAX, isBackwards: true };
  const { entries, last } = await pageOf(db, { pk: pk!, of: 'index' }, range);
  const keys = entries.map(({ sk }) => timeOf(sk)).map(({ time, id }) => ({ at: time, id }));
  return { keys, isMore: last !== undefined };
}

/** Follows every key below this one: keys end with a hex digit. */
const before = (key: string) =>
  `${key.slice(0, -1)}${String.fromCharCode(key.charCodeAt(key.length - 1) - 1)}${END}`;

function isAsked(item: EventItem, { by, kinds, since = 0, until, tags }: HiddenOf): boolean {
  if (item.hidden_as === undefined || item.payload === undefined) return false;
  if (by.hidden !== undefined && item.hidden_as !== by.hidden) return false;
  // A gift wrap is also listed for its recipients.
  if ('author' in by && item.pubkey !== by.author) return false;
  if (item.created_at < since || item.created_at > (until ?? Number.MAX_SAFE_INTEGER)) return false;
  if (kinds !== undefined && !kinds.includes(item.kind)) return false;
  const event = eventOf(item);
  const topics = [...boundOf(item), ...topicsOf(event)];
  const has = ([name, value]: readonly [string, string]) =>
    event.tags.some((tag) => tag[0] === name && tag[1] === value) || (name === 't' && topics.includes(value));
  return tags.every(has);
}

// ── Purging ────────────────────────────────────────────────────────────────────────────────────────────────

export interface PurgeOptions {
  readonly db: Dynamodb;
  readonly settingsOf: (community: number) => Settings;
}

const PURGES_AT_ONCE = 16;
/** Held events that one batch passes: they wait for their moderator without a limit. */
const HELD_MAX = 10_000;

/**
 * The content of what was removed and not restored in time. The id stays and refuses the event for ever. A
 * restoration in the meantime is first: the purge has the condition that the event is still removed.
 */
export async function purgeRemoved(
  { db, settingsOf }: PurgeOptions,
  control: Db,
  { community, removedBefore, now, limit }: PurgeOfRemoved,
): Promise<number> {
  const [pk] = partitions.removed(community);
  const to = timeKey(removedBefore, END);
  const settings = settingsOf(community);
  let purged = 0;
  let from = '';
  for (let passed = 0; passed < limit + HELD_MAX && purged < limit; ) {
    const { entries, more } = await page(db, pk!, { from, to, limit: Math.min(limit, 100) });
    const ids = entries.map(({ sk }) => timeOf(sk).id);
    const kept = await keptRemovals(control, community, ids, removedBefore);
    const due = ids.filter((id) => !kept.has(id)).map((id) => ({ community, id }));
    const items = [...(await itemsByRef(db, due)).values()].filter(
      ({ hidden_as, payload }) => hidden_as === 'removed' && payload !== undefined,
    );
    await eachOf(items, PURGES_AT_ONCE, async (item) => {
      const {
        before: first,
        change,
        after,
      } = hiding(item, { hidden: 'removed', purge: true, settings, now });
      await db.write(first);
      if (!(await db.change(change))) return;
      await tidy(db, after);
      purged += 1;
    });
    passed += Math.max(1, entries.length);
    if (!more) break;
    from = `${entries.at(-1)!.sk} `;
  }
  return purged;
}
