/**
 * What the tables hold of a member: entries of the index, page by page, and the events that they name,
 * strongly consistent. Counting and deleting use the same walks, so that what is counted is what is deleted.
 * A mark refuses everything that is erased here. So an entry without its event is one that was left behind,
 * and nobody is about to write its event.
 */
import { KIND_MEMBERS } from '../../../members/rules-joining.js';
import { KIND_ASSERTION } from '../../../trust/rules.js';
import { KIND_VANISH } from '../../rules/classify.js';
import { isOwner, KIND_GIFT_WRAP } from '../../rules/deletion.js';
import { factKey } from '../../rules/facts.js';
import type { Authored } from '../../store.js';
import type { Dynamodb, Item } from '../client.js';
import { type Entry, type EventItem, entriesOf, eventOf, indexedOf, isServedItem } from '../items.js';
import { END, GSI_PK_KIND_D, newestKey, partitions, pkKindD, placeOf } from '../keys.js';
import { itemsByRef, page } from '../selections.js';

/** Entries that are read at once, with their events. */
const PAGE = 100;

/** What an entry of the index names. */
export type Found =
  /** `by`: the entry that found it. It is deleted last: an interrupted erasure finds the event again. */
  | { readonly type: 'served'; readonly item: EventItem; readonly by: Entry }
  | { readonly type: 'hidden'; readonly item: EventItem; readonly by?: Entry }
  | { readonly type: 'left'; readonly entry: Entry };

export interface Erased extends Authored {
  /** The keys of the node itself. What they have signed about a member is erased with the member. */
  readonly nodeKeys: readonly string[];
}

/** Everything of a member, and about them. */
export async function* everythingOf(db: Dynamodb, erased: Erased): AsyncGenerator<Found[]> {
  yield* servedOf(db, erased);
  yield* hiddenOf(db, erased);
  yield* wrapsTo(db, erased);
  if (!erased.sparesRequest) yield* nodesWordsAbout(db, erased);
}

type Walked = Pick<Authored, 'community' | 'until'>;

/** The entries of a partition up to a time, the newest first, each with its item. */
export async function* entriesIn(
  db: Dynamodb,
  pk: string,
  { community, until }: Walked,
  isAsked: (entry: Entry) => boolean = () => true,
): AsyncGenerator<{ readonly entry: Entry; readonly item: EventItem | undefined }[]> {
  for (let from = newestKey(until, ''); ; ) {
    const { entries, more } = await page(db, pk, { from, to: END, limit: PAGE });
    const asked = entries.filter(isAsked);
    const idOf = ({ sk }: Entry) => placeOf(sk).id;
    const items = await itemsByRef(
      db,
      asked.map((entry) => ({ community, id: idOf(entry) })),
    );
    if (asked.length > 0)
      yield asked.map((entry) => ({ entry, item: items.get(factKey(community, idOf(entry))) }));
    if (!more) return;
    from = `${entries.at(-1)!.sk} `;
  }
}

/** Their events that are served. */
export async function* servedOf(db: Dynamodb, { pubkey, ...of }: Authored): AsyncGenerator<Found[]> {
  for (const pk of partitions.author(of.community, pubkey))
    for await (const found of entriesIn(db, pk, of))
      yield found.map(({ entry, item }) =>
        isServedItem(item) ? { type: 'served', item, by: entry } : { type: 'left', entry },
      );
}

/** Their events that are not served any more, also those of which only the id is left; and wraps to them. */
export async function* hiddenOf(
  db: Dynamodb,
  { pubkey, sparesRequest, ...of }: Authored,
): AsyncGenerator<Found[]> {
  for (const pk of partitions.hidden(of.community, pubkey))
    for await (const found of entriesIn(db, pk, of))
      yield found.flatMap(({ entry, item }): Found[] => {
        // It is about to be hidden: the entry is written first.
        if (isServedItem(item)) return [];
        if (sparesRequest && item?.kind === KIND_VANISH) return [];
        const isTheirs = item !== undefined && (item.pubkey === pubkey || isTo(item, pubkey));
        return [isTheirs ? { type: 'hidden', item } : { type: 'left', entry }];
      });
}

type BareItem = EventItem & { readonly hidden_as: 'erased' | 'vanished' };

/** An erasure has deleted its content, and not its id yet. */
export const isBare = (item: EventItem | undefined): item is BareItem =>
  item !== undefined &&
  item.payload === undefined &&
  (item.hidden_as === 'erased' || item.hidden_as === 'vanished');

const isTo = (item: EventItem, pubkey: string) =>
  item.payload !== undefined && isOwner(eventOf(item), pubkey);

/** Gift wraps to them that are served. */
export async function* wrapsTo(db: Dynamodb, { pubkey, ...of }: Authored): AsyncGenerator<Found[]> {
  const isWrap = ({ kind, author }: Entry) => kind === KIND_GIFT_WRAP && author !== pubkey;
  for (const pk of partitions.tag(of.community, 'p', pubkey))
    for await (const found of entriesIn(db, pk, of, isWrap))
      yield found.flatMap(({ entry, item }): Found[] => {
        // An erasure that was interrupted has deleted the content.
        if (isBare(item)) return [{ type: 'hidden', item, by: entry }];
        if (!isServedItem(item)) return [{ type: 'left', entry }];
        return isTo(item, pubkey) ? [{ type: 'served', item, by: entry }] : [];
      });
}

/**
 * Assertions, labels and lists of members that the node has signed and that name them. The node signs new
 * ones about a member who vanishes and comes back.
 */
async function* nodesWordsAbout(
  db: Dynamodb,
  { pubkey, until, community, nodeKeys }: Erased,
): AsyncGenerator<Found[]> {
  const isWord = (item: EventItem) =>
    nodeKeys.includes(item.pubkey) && item.created_at <= until && (item.payload?.includes(pubkey) ?? false);
  const seen = new Set<string>();
  const isNew = ({ event_id }: EventItem) => !seen.has(event_id) && seen.add(event_id);
  const ofNode = ({ author }: Entry) => nodeKeys.includes(author);
  for (const letter of ['p', 'd'])
    for (const pk of partitions.tag(community, letter, pubkey))
      for await (const found of entriesIn(db, pk, { community, until }, ofNode))
        yield found.flatMap(({ entry, item }): Found[] =>
          isServedItem(item) && isWord(item) && isNew(item) ? [{ type: 'served', item, by: entry }] : [],
        );
  for (const key of nodeKeys)
    for (const address of [`${KIND_ASSERTION}:${key}:${pubkey}`, `${KIND_MEMBERS}:${key}:`])
      for await (const versions of versionsOf(db, community, address))
        yield versions
          .filter((item) => isWord(item) && isNew(item))
          .map((item) =>
            isServedItem(item) ? { type: 'served', item, by: authorEntry(item) } : { type: 'hidden', item },
          );
}

/** All versions that are still stored with their content. */
async function* versionsOf(db: Dynamodb, community: number, address: string): AsyncGenerator<EventItem[]> {
  let next: Item | undefined;
  do {
    const found = await db.query('events', {
      IndexName: GSI_PK_KIND_D,
      KeyConditionExpression: 'pk_kind_d = :address',
      ExpressionAttributeValues: { ':address': pkKindD(community, address) },
      ExclusiveStartKey: next,
      Limit: PAGE,
    });
    const items = await db.read(found.items.map(({ id }) => ({ table: 'events', key: { id } })));
    yield [...items.values()] as EventItem[];
    next = found.next;
  } while (next !== undefined);
}

export function authorEntry(item: EventItem): Entry {
  const [pk] = partitions.author(item.community, item.pubkey);
  return entriesOf(indexedOf(item)).find((entry) => entry.pk === pk)!;
}

// ── People ─────────────────────────────────────────────────────────────────────────────────────────────────

/** All authors of a community, in portions. */
export async function* peopleIn(db: Dynamodb, community: number): AsyncGenerator<string[]> {
  for (const pk of partitions.people(community)) {
    let next: Item | undefined;
    do {
      const found = await db.query('index', {
        KeyConditionExpression: 'pk = :pk',
        ExpressionAttributeValues: { ':pk': pk },
        ExclusiveStartKey: next,
      });
      yield found.items.map(({ sk }) => sk as string);
      next = found.next;
    } while (next !== undefined);
  }
}
