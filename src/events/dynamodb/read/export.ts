/**
 * Reads a community page by page for an export: its served events, the newest first, or its history in the
 * order in which it was superseded. Versions that a deletion has not reached yet are left out (I6).
 */

import { addressOf } from '../../rules/classify.js';
import { factKey } from '../../rules/facts.js';
import { type HistoryRetention, historySince } from '../../rules/retention.js';
import { keyText } from '../client.js';
import { boundOf, type EventItem, eventOf } from '../items.js';
import { addressTombstoneKey, END, type Placed, partitions, timeKey, timeOf } from '../keys.js';
import { itemsByRef, page } from '../selections.js';
import { isVanished, type Reading } from './find.js';

const PAGE_ROWS = 250;

export interface StoredEvent {
  readonly payload: string;
  readonly bound: readonly string[];
  readonly ingestedAt: number;
}

export interface HistoryPageRead {
  readonly events: readonly StoredEvent[];
  /** Where the next page begins; undefined at the end. */
  readonly next: string | undefined;
}

export async function readHistoryPage(
  { db, marks }: Reading,
  rules: HistoryRetention & { readonly id: number },
  after: string,
  now: number,
): Promise<HistoryPageRead> {
  const community = rules.id;
  const from = after === '' ? timeKey(historySince(rules, now), '') : `${after} `;
  const [pk] = partitions.history(community);
  const { entries, more } = await page(db, pk!, { from, to: END, limit: PAGE_ROWS });
  const refs = entries.map(({ sk }) => ({ community, id: timeOf(sk).id }));
  const items = await itemsByRef(db, refs);
  const pending = await marks.of(community);
  const versions = refs
    .map(({ id }) => items.get(factKey(community, id)))
    .filter((item): item is EventItem => item?.hidden_as === 'superseded' && item.payload !== undefined)
    .filter((item) => !isVanished(item as EventItem & { payload: string }, pending));
  const keyOf = (item: EventItem) =>
    addressTombstoneKey(community, addressOf(eventOf(item)) ?? '', item.pubkey);
  const dead = await db.read(versions.map((item) => ({ table: 'state', key: keyOf(item) })));
  const isDeleted = (item: EventItem) => {
    const tombstone = dead.get(keyText('state', keyOf(item)));
    return tombstone !== undefined && (tombstone.requested_at as number) >= item.created_at;
  };
  return {
    events: versions
      .filter((item) => !isDeleted(item))
      .map((item) => ({ payload: item.payload!, bound: boundOf(item), ingestedAt: item.ingested_at })),
    next: more ? entries.at(-1)!.sk : undefined,
  };
}

/** A place of a walk as a text, for a file. */
export const placeText = ({ createdAt, id }: Placed) => `${createdAt}/${id}`;
export function placeFrom(text: string): Placed | undefined {
  const [createdAt, id] = text.split('/');
  return id === undefined ? undefined : { createdAt: Number(createdAt), id };
}
