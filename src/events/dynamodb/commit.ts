/**
 * The transaction that stores one event: its item if the id is unknown, the absence of tombstones and marks,
 * the head of its key moved forward, and the version before it superseded (I3–I6). Each condition is what the
 * decision was made by; if one no longer holds, the transaction fails as a whole and the caller reads again.
 */
import type { Settings } from '../../communities/rules-settings.js';
import { KIND_VANISH } from '../rules/classify.js';
import { isProtectedKind, ownersOf } from '../rules/deletion.js';
import type { NostrEvent } from '../rules/event.js';
import type { Submission } from '../rules/facts.js';
import type { Hidden } from '../rules/hidden.js';
import type { Outcome, Refusal } from '../rules/reply.js';
import type { BatchWrites, NewHead, NewRow } from '../rules/writes.js';
import {
  type Change,
  type Condition,
  Conflict,
  type Dynamodb,
  type RemoveOf,
  TRANSACTION_ITEMS_MAX,
  type UpdateOf,
  type WriteOf,
} from './client.js';
import { type Read, tombstonesOf } from './facts.js';
import {
  type Entry,
  type EventItem,
  entriesOf,
  eventOf,
  hiddenEntries,
  hiddenEntry,
  historyEntry,
  type Indexed,
  indexedOf,
  isServedItem,
  itemOf,
  listedEntries,
  putEntries,
  recipientEntries,
  removeEntries,
} from './items.js';
import { eventKey, headKey, markKey, ownerOf } from './keys.js';
import type { KnownPeople } from './known-people.js';

/**
 * Only a gift wrap has several owners. Each has a tombstone and a mark, beside the item itself. An event with
 * a key needs six: item, head, version before it, two tombstones, mark.
 */
export const OWNERS_MAX = Math.floor((TRANSACTION_ITEMS_MAX - 1) / 2);

export const UNKNOWN_ID: Condition = { text: 'attribute_not_exists(id)' };
export const IS_REMOVED: Condition = {
  text: 'hidden_as = :was',
  values: { ':was': 'removed' satisfies Hidden },
};

/**
 * Writes the entries, then the transaction, then deletes the entries of the superseded version. `own` is the
 * condition on the event's own item.
 */
export async function commitRow(
  db: Dynamodb,
  { row, writes, read, settings, now, own = UNKNOWN_ID, attempts, people }: RowOf,
): Promise<void> {
  const { submission, bound, ingestedAt } = row;
  const { community, event } = submission;
  const item = itemOf(row);
  const superseding = supersede(writes, read, settings, now);
  const entries =
    row.hidden === undefined ? putEntries({ community, event, bound, ingestedAt }) : putHidden(item);
  if (row.hidden === undefined) attempts?.written.push({ community, event, bound, ingestedAt });
  await db.write([...people.entries(row, read.facts), ...entries, ...superseding.before]);
  people.note(row);
  try {
    await db.transact([
      { table: 'events', put: item, if: own },
      ...checksOf(submission),
      ...writes.heads.map((head) => raiseHead(head, read)),
      ...superseding.changes,
    ]);
  } catch (error) {
    if (attempts !== undefined && !(error instanceof Conflict)) attempts.isUnknown = true;
    throw error;
  }
  await tidyLater(db, superseding.after, attempts);
}

/** A version that was refused as deleted still moves the head of its key forward. */
export async function commitHead(
  db: Dynamodb,
  { writes, read, settings, now, attempts }: CommitOf,
): Promise<void> {
  const superseding = supersede(writes, read, settings, now);
  await db.write(superseding.before);
  await db.transact([...writes.heads.map((head) => raiseHead(head, read)), ...superseding.changes]);
  await tidyLater(db, superseding.after, attempts);
}

export interface CommitOf {
  readonly writes: BatchWrites;
  readonly read: Read;
  readonly settings: Settings;
  readonly now: number;
  /** Notes what was written, what is left to tidy, and that the fate of the transaction is not known. */
  readonly attempts?: Attempts;
}

export interface RowOf extends CommitOf {
  readonly row: NewRow;
  /** The condition on the event's own item. */
  readonly own?: Condition;
  readonly people: KnownPeople;
}

/** What the attempts of one call have done. */
export interface Attempts {
  /** The targets of a deletion request count for the day. */
  isCounted?: boolean;
  /** A transaction was sent and its answer did not arrive: the event may be stored. */
  isUnknown?: boolean;
  /** The entries that were written for each attempt. */
  readonly written: Indexed[];
  /** To delete when the client has its answer. */
  readonly after: WriteOf[];
}

/**
 * What to do after the outcome of the last attempt; undefined if nothing is left. What is left is harmless:
 * reads check the event itself.
 */
export function tidyingOf(
  db: Dynamodb,
  submission: Submission,
  { written, after }: Attempts,
  outcome: Outcome | Refusal,
): (() => Promise<void>) | undefined {
  const isWritten = written.length > (outcome === 'stored' ? 1 : 0);
  if (!isWritten && after.length === 0) return undefined;
  return async () => {
    await tidy(db, after);
    if (isWritten) await tidyAttempts(db, submission, written).catch(() => undefined);
  };
}

/**
 * Deletes the entries of attempts that stored nothing, so that no entry names an event that is not here. Any
 * other writer of the event gets the same decision. If it is hidden, its entries belong to whoever hid it.
 */
async function tidyAttempts(
  db: Dynamodb,
  { community, event }: Submission,
  written: readonly Indexed[],
): Promise<void> {
  const item = (await db.get('events', eventKey(community, event.id))) as EventItem | undefined;
  if (item !== undefined && !isServedItem(item)) return;
  const keyOf = ({ pk, sk }: Entry) => `${pk} ${sk}`;
  const kept = new Set(item === undefined ? [] : entriesOf(indexedOf(item)).map(keyOf));
  const entries = new Map(written.flatMap(entriesOf).map((entry) => [keyOf(entry), entry]));
  await db.write(removeAll([...entries].flatMap(([key, entry]) => (kept.has(key) ? [] : [entry]))));
}

/** Without attempts nobody tidies later. */
async function tidyLater(db: Dynamodb, writes: readonly WriteOf[], attempts?: Attempts): Promise<void> {
  if (attempts === undefined) await tidy(db, writes);
  else attempts.after.push(...writes);
}

/** The change is done; entries that stay are harmless and cost a little of each read. */
export async function tidy(db: Dynamodb, writes: readonly WriteOf[]): Promise<void> {
  await db.write(writes).catch(() => undefined);
}

function checksOf(submission: Submission): Change[] {
  const { community, event } = submission;
  const { created_at } = event;
  // A request to vanish is stored whatever marks there are.
  if (event.kind === KIND_VANISH) return [];
  const marks = ownersOf(event).map(
    (owner): Change => ({
      table: 'state',
      check: markKey(community, owner),
      if: { text: 'attribute_not_exists(pk) OR until_at < :at', values: { ':at': created_at } },
    }),
  );
  if (isProtectedKind(event.kind)) return marks;
  const tombstones = tombstonesOf(submission).map(({ key, name }): Change => {
    const isId = name === event.id;
    return {
      table: 'state',
      check: key,
      if: isId
        ? { text: 'attribute_not_exists(pk)' }
        : { text: 'attribute_not_exists(pk) OR requested_at < :at', values: { ':at': created_at } },
    };
  });
  return [...tombstones, ...marks];
}
/** Only forward: the decision has compared the versions, and the head is still the one that it saw. */
function raiseHead({ community, address, id, created_at, pubkey }: NewHead, { head }: Read): Change {
  return {
    table: 'state',
    put: { ...headKey(community, address), id, created_at, owner_key: ownerOf(community, pubkey) },
    if:
      head === undefined
        ? { text: 'attribute_not_exists(pk)' }
        : { text: 'id = :seen', values: { ':seen': head.id } },
  };
}

interface Superseding {
  readonly before: WriteOf[];
  readonly changes: Change[];
  readonly after: WriteOf[];
}

function supersede({ hidden }: BatchWrites, { items }: Read, settings: Settings, now: number): Superseding {
  const all = hidden.map(({ row, hidden: why, purge }) => {
    const item = items.get(row.seq)!;
    return hiding(item, { hidden: why, purge, settings, now });
  });
  return {
    before: all.flatMap(({ before }) => before),
    changes: all.map(({ change }) => change),
    after: all.flatMap(({ after }) => after),
  };
}

// ── Taking an item out of the view ─────────────────────────────────────────────────────────────────────────

export interface HidingOf {
  readonly hidden: Hidden;
  readonly purge: boolean;
  readonly settings: Settings;
  readonly now: number;
}

export interface HidingOfItem {
  /** Written before: whoever looks for the ids of an author finds it at any moment. */
  readonly before: WriteOf[];
  readonly change: UpdateOf;
  /** Deleted afterwards. */
  readonly after: WriteOf[];
}

/**
 * A hidden item keeps its content until it is purged; a purged one is only the id, which refuses the event,
 * until TTL removes it after `retention.dedupeDays`. What a moderator removed is never forgotten.
 */
export function hiding(item: EventItem, { hidden, purge, settings, now }: HidingOf): HidingOfItem {
  const { community } = item;
  const event = eventOf(item);
  const wasServed = item.hidden_as === undefined;
  const ttl = ttlOf(hidden, purge, settings, now);
  const removed = ['pk_kind', ...(ttl === undefined ? ['ttl_at'] : [])];
  if (purge) removed.push('pk_kind_d', 'payload', 'bound');
  const set = ['hidden_as = :hidden', 'hidden_at = :now'];
  if (purge) set.push('gone_at = :now');
  if (ttl !== undefined) set.push('ttl_at = :ttl');
  const history = historyEntry(community, event, item.hidden_at ?? 0);
  return {
    before: [
      ...(purge
        ? [{ table: 'index' as const, put: hiddenEntry(item) }]
        : putHidden({ ...item, hidden_as: hidden, hidden_at: now })),
      ...(hidden === 'superseded' && !purge
        ? [{ table: 'index' as const, put: historyEntry(community, event, now) }]
        : []),
    ],
    change: {
      table: 'events',
      update: eventKey(community, item.event_id),
      set: {
        text: `SET ${set.join(', ')} REMOVE ${removed.join(', ')}`,
        values: { ':hidden': hidden, ':now': now, ...(ttl === undefined ? {} : { ':ttl': ttl }) },
      },
      if: isAsRead(item),
    },
    after: wasServed
      ? removeEntries(indexedOf(item))
      : removeAll([history, ...listedEntries(item), ...(purge ? recipientEntries(item) : [])]),
  };
}

/** Served, or superseded, as it was read. */
export function isAsRead({ hidden_as: hidden }: EventItem): Condition {
  return hidden === undefined
    ? { text: 'attribute_exists(id) AND attribute_not_exists(hidden_as)' }
    : { text: 'hidden_as = :was', values: { ':was': hidden } };
}

const SECONDS_PER_DAY = 86_400;

function ttlOf(hidden: Hidden, purge: boolean, settings: Settings, now: number): number | undefined {
  const after = (days: number) => Math.ceil(now / 1_000) + days * SECONDS_PER_DAY;
  if (purge) return hidden === 'removed' ? undefined : after(settings['retention.dedupeDays']);
  const days = settings['retention.historyDays'];
  // A day later, so that the job of the node purges it first.
  return hidden === 'superseded' && typeof days === 'number' ? after(days + 1) : undefined;
}

/** Deletes an item with its content and its id, and then its entries. */
export function removal(item: EventItem): { readonly change: RemoveOf; readonly after: WriteOf[] } {
  const { community, event_id } = item;
  const change = { table: 'events' as const, remove: eventKey(community, event_id), if: isAsRead(item) };
  return { change, after: [...entriesLeft(item), ...removeAll(hiddenEntries(item))] };
}

const putHidden = (item: EventItem): WriteOf[] => hiddenEntries(item).map((put) => ({ table: 'index', put }));
export const removeAll = (entries: readonly Pick<Entry, 'pk' | 'sk'>[]): WriteOf[] =>
  entries.map(({ pk, sk }) => ({ table: 'index', remove: { pk, sk } }));

function entriesLeft(item: EventItem): WriteOf[] {
  if (item.payload === undefined) return [];
  if (item.hidden_as === undefined) return removeEntries(indexedOf(item));
  const { pk, sk } = historyEntry(item.community, eventOf(item), item.hidden_at ?? 0);
  return item.hidden_as === 'superseded' ? [{ table: 'index', remove: { pk, sk } }] : [];
}

/** Whether one transaction can check all owners of an event. */
export const hasRoom = (event: NostrEvent) => ownersOf(event).length <= OWNERS_MAX;
