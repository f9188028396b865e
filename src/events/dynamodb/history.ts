/**
 * Superseded versions of an address, and removals that deletions have left for later: versions that did not
 * fit into one request, removals that failed, and one more look at an address after the index has caught up.
 */
import { type DeletionTarget, deletionTargets, isOwner, isProtectedKind } from '../rules/deletion.js';
import type { Submission } from '../rules/facts.js';
import type { HistoryDeleted } from '../store.js';
import { type Dynamodb, eachOf, type Item } from './client.js';
import { removeItem } from './deletion.js';
import { type EventItem, eventOf } from './items.js';
import { eventKey, GSI_PK_KIND_D, hashOf, newestKey, ownerOf, pkKindD, removals, timeKey } from './keys.js';

/** Versions of one address that a request reads; the rest is left to the job. */
const VERSIONS_MAX = 100;
/** Addresses or versions at the same time. */
const VERSIONS_AT_ONCE = 8;
/** The index of versions is behind by less than this. */
const INDEX_LAG_MS = 60_000;

export interface LeftRemoval {
  readonly community: number;
  readonly author: string;
  /** Seconds. */
  readonly requestedAt: number;
  /** An id or an address. */
  readonly target: string;
  readonly type: DeletionTarget['type'];
  /** Milliseconds. */
  readonly dueAt: number;
}

/**
 * The versions that a request names by address, and what is left for later: more versions, or one more look
 * when the index has caught up.
 */
export async function findVersions(
  db: Dynamodb,
  { community, event: request }: Submission,
  now: number,
): Promise<{ readonly items: EventItem[]; readonly left: LeftRemoval[] }> {
  const items: EventItem[] = [];
  const left: LeftRemoval[] = [];
  const { pubkey: author, created_at: requestedAt } = request;
  const addresses = deletionTargets(request).flatMap((target) => (target.type === 'address' ? [target] : []));
  await eachOf(addresses, VERSIONS_AT_ONCE, async (target) => {
    const page = await versionsOf(db, community, target.address, request.created_at, VERSIONS_MAX);
    items.push(...page.items);
    const dueAt = page.more ? now : now + INDEX_LAG_MS;
    if (page.items.length > 0)
      left.push({ community, author, requestedAt, target: target.address, type: 'address', dueAt });
  });
  return { items, left };
}

/** Up to a time, the newest first. */
async function versionsOf(
  db: Dynamodb,
  community: number,
  address: string,
  until: number,
  limit: number,
): Promise<{ readonly items: EventItem[]; readonly more: boolean }> {
  const { items: keys, next } = await db.query('events', {
    IndexName: GSI_PK_KIND_D,
    KeyConditionExpression: 'pk_kind_d = :address AND newest >= :from',
    ExpressionAttributeValues: { ':address': pkKindD(community, address), ':from': newestKey(until, '') },
    Limit: limit,
  });
  const found = await db.read(keys.map(({ id }) => ({ table: 'events', key: { id } })));
  return { items: [...found.values()] as EventItem[], more: next !== undefined };
}

// ── In the job ─────────────────────────────────────────────────────────────────────────────────────────────

const sortKeyOf = ({ dueAt, target, requestedAt }: LeftRemoval) =>
  timeKey(dueAt, `${hashOf(target)}${requestedAt}`);

export async function leaveRemoval(db: Dynamodb, left: LeftRemoval): Promise<void> {
  const { community, author, requestedAt, target, type } = left;
  const put = {
    pk: removals(community),
    sk: sortKeyOf(left),
    author,
    requested_at: requestedAt,
    target,
    type,
    owner_key: ownerOf(community, author),
  };
  await db.write([{ table: 'state', put }]);
}

/** Carries out one of the removals that are due. */
export async function deleteLeft(
  db: Dynamodb,
  communities: readonly number[],
  rowsMax: number,
  now: number,
): Promise<HistoryDeleted> {
  for (const community of communities) {
    const { items } = await db.query('state', {
      KeyConditionExpression: 'pk = :pk AND sk <= :now',
      ExpressionAttributeValues: { ':pk': removals(community), ':now': timeKey(now, '~') },
      Limit: 1,
    });
    const [left] = items;
    if (left !== undefined)
      return { versions: await carryOut(db, community, left, rowsMax, now), found: true };
  }
  return { versions: 0, found: false };
}

/** The events that the removals which are due would delete, for dry runs. */
export async function leftItems(
  db: Dynamodb,
  communities: readonly number[],
  itemsMax: number,
  now: number,
): Promise<{ readonly item: EventItem; readonly author: string }[]> {
  const found: { item: EventItem; author: string }[] = [];
  for (const community of communities) {
    const { items } = await db.query('state', {
      KeyConditionExpression: 'pk = :pk AND sk <= :now',
      ExpressionAttributeValues: { ':pk': removals(community), ':now': timeKey(now, '~') },
    });
    for (const left of items as unknown as LeftItem[]) {
      const { author, requested_at, target, type } = left;
      const versions =
        type === 'id'
          ? [(await db.get('events', eventKey(community, target))) as EventItem | undefined]
          : (await versionsOf(db, community, target, requested_at, itemsMax)).items;
      for (const item of versions) if (item?.payload !== undefined) found.push({ item, author });
      if (found.length >= itemsMax) return found.slice(0, itemsMax);
    }
  }
  return found;
}

/** As `leaveRemoval` writes it. */
interface LeftItem extends Item {
  readonly pk: string;
  readonly sk: string;
  readonly author: string;
  readonly requested_at: number;
  readonly target: string;
  readonly type: DeletionTarget['type'];
}

async function carryOut(
  db: Dynamodb,
  community: number,
  left: Item,
  rowsMax: number,
  now: number,
): Promise<number> {
  const { pk, sk, author, requested_at, target, type } = left as LeftItem;
  let deleted = 0;
  const remove = async (item: EventItem): Promise<void> => {
    if (await removeItem(db, item)) deleted += 1;
  };
  if (type === 'id') {
    const item = (await db.get('events', eventKey(community, target))) as EventItem | undefined;
    if (item?.payload !== undefined && !isProtectedKind(item.kind) && isOwner(eventOf(item), author))
      await remove(item);
  } else {
    const { items, more } = await versionsOf(db, community, target, requested_at, rowsMax);
    await eachOf(items, VERSIONS_AT_ONCE, remove);
    // Another page, or a last look when the index has certainly caught up.
    const isLast = !more && deleted === 0;
    if (!isLast) {
      const dueAt = more ? now : now + INDEX_LAG_MS;
      const again = { community, author, requestedAt: requested_at, target, type, dueAt };
      await leaveRemoval(db, again);
      if (sortKeyOf(again) === sk) return deleted;
    }
  }
  await db.write([{ table: 'state', remove: { pk, sk } }]);
  return deleted;
}
