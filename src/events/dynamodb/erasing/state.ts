/**
 * The items of `EventState` about a member: heads, tombstones, quotas and removals that are left. The index
 * that finds them is behind by a moment; an erasure counts again at its end. Marks are not among them: they
 * are the fence, and end with the erasure.
 */
import type { Owner } from '../../store.js';
import type { Dynamodb, Item, WriteOf } from '../client.js';
import { GSI_OWNER, markKey, ownerOf, pendingMarks, seenKey, type TableKey } from '../keys.js';

const PAGE = 100;
const DAY_SECONDS = 86_400;

export interface HeadState {
  readonly type: 'head';
  readonly key: TableKey;
  readonly id: string;
  readonly createdAt: number;
}
export interface TombstoneState {
  readonly type: 'tombstone';
  readonly key: TableKey;
  /** An id, or the hash of an address. */
  readonly target: string;
  readonly isAddress: boolean;
  /** Seconds. */
  readonly requestedAt: number;
  readonly requestId: string;
}
export interface QuotaState {
  readonly type: 'quota';
  readonly key: TableKey;
  readonly day: number;
  readonly targets: number;
}
export interface RemovalState {
  readonly type: 'removal';
  readonly key: TableKey;
  readonly target: string;
  readonly requestedAt: number;
}
export type OwnedState = HeadState | TombstoneState | QuotaState | RemovalState;

export async function* stateOf(db: Dynamodb, { community, pubkey }: Owner): AsyncGenerator<OwnedState[]> {
  let next: Item | undefined;
  do {
    const found = await db.query('state', {
      IndexName: GSI_OWNER,
      KeyConditionExpression: 'owner_key = :owner',
      ExpressionAttributeValues: { ':owner': ownerOf(community, pubkey) },
      ExclusiveStartKey: next,
      Limit: PAGE,
    });
    const items = await db.read(found.items.map(({ pk, sk }) => ({ table: 'state', key: { pk, sk } })));
    yield [...items.values()].flatMap((item) => stateIn(item) ?? []);
    next = found.next;
  } while (next !== undefined);
}

function stateIn(item: Item): OwnedState | undefined {
  const key = { pk: item.pk as string, sk: item.sk as string };
  const [, type, ...rest] = key.pk.split('/');
  switch (type) {
    case 'head':
      return { type, key, id: item.id as string, createdAt: item.created_at as number };
    case 'tombstone': {
      const isAddress = rest.length > 1;
      const { requested_at, request_id } = item as { requested_at: number; request_id: string };
      return { type, key, target: rest.at(-1)!, isAddress, requestedAt: requested_at, requestId: request_id };
    }
    case 'quota':
      return { type, key, day: Number(key.sk), targets: item.targets as number };
    case 'removals':
      return {
        type: 'removal',
        key,
        target: item.target as string,
        requestedAt: item.requested_at as number,
      };
    default:
      return undefined;
  }
}

/** The count of a day in which the member came back belongs to the new account. */
export function isErased(state: OwnedState, until: number): boolean {
  switch (state.type) {
    case 'head':
      return state.createdAt <= until;
    case 'quota':
      return state.day < Math.floor(until / DAY_SECONDS);
    default:
      return state.requestedAt <= until;
  }
}

/** A tombstone by id is all that names an event which its author has deleted; so is its counter. */
export function eraseState(community: number, states: readonly OwnedState[]): WriteOf[] {
  return states.flatMap((state): WriteOf[] => [
    { table: 'state', remove: { ...state.key } },
    ...(state.type === 'tombstone' && !state.isAddress
      ? [{ table: 'state' as const, remove: seenKey(community, state.target) }]
      : []),
  ]);
}

/** The mark of an erasure names the member, so it is deleted at the end. */
export async function forgetMark(db: Dynamodb, { community, pubkey }: Owner): Promise<void> {
  await db.write([
    { table: 'state', remove: { pk: pendingMarks(community), sk: pubkey } },
    { table: 'state', remove: markKey(community, pubkey) },
  ]);
}
