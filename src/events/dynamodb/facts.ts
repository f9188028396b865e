/**
 * Reads what the store knows about one event before it is decided (events/rules/batch/batch.ts). All reads
 * are strongly consistent. The transaction that follows checks that they still hold (commit.ts).
 */
import type { Settings } from '../../communities/rules-settings.js';
import { allTopics } from '../../topics/rules.js';
import type { Superseded } from '../rules/batch/history.js';
import { addressOf, KIND_DELETION, type Version } from '../rules/classify.js';
import { type DeletionTarget, deletionTargets, ownersOf, targetName } from '../rules/deletion.js';
import {
  type BatchFacts,
  factKey,
  type Head,
  type StoredEvent,
  type Submission,
  tombstoneKey,
} from '../rules/facts.js';
import { DAY_MS, type TopicRule } from '../rules/retention.js';
import { type Dynamodb, type Item, keyText } from './client.js';
import type { ControlFacts } from './control.sql.js';
import { type EventItem, isServedItem, placedOf } from './items.js';
import {
  addressTombstoneKey,
  eventKey,
  headKey,
  idTombstoneKey,
  markKey,
  quotaKey,
  type Table,
  type TableKey,
} from './keys.js';

export interface FactOptions {
  readonly settingsOf: (community: number) => Settings;
  readonly topicsOf?: (community: number) => ReadonlyMap<string, TopicRule>;
  readonly keptSinceOf?: (community: number) => number;
  /** From the control plane. */
  readonly controlOf?: (community: number, owners: readonly string[]) => Promise<ControlFacts>;
}

export interface HeadItem extends Item, Version {}

/** What was read, for the conditions of the transaction. */
export interface Read {
  readonly facts: BatchFacts;
  /** The head as it was read. */
  readonly head: HeadItem | undefined;
  /** Stored items by the `seq` that names them in this decision. */
  readonly items: ReadonlyMap<number, EventItem>;
}

export const dayOf = (now: number) => Math.floor(now / DAY_MS);

const atEvents = (community: number, id: string) => ({
  table: 'events' as Table,
  key: eventKey(community, id),
});
const atState = (key: TableKey) => ({ table: 'state' as Table, key });

export function tombstoneKeyOf(community: number, target: DeletionTarget, author: string): TableKey {
  return target.type === 'id'
    ? idTombstoneKey(community, target.id, author)
    : addressTombstoneKey(community, target.address, author);
}

/** The tombstones that could refuse an event: by its id and each owner, by its address and its author. */
export function tombstonesOf({
  community,
  event,
}: Submission): { key: TableKey; name: string; author: string }[] {
  // A deletion request is protected, so no tombstone refuses it.
  if (event.kind === KIND_DELETION) return [];
  const byId = ownersOf(event).map((author) => ({
    key: idTombstoneKey(community, event.id, author),
    name: event.id,
    author,
  }));
  const address = addressOf(event);
  if (address === undefined) return byId;
  const { pubkey: author } = event;
  return [...byId, { key: addressTombstoneKey(community, address, author), name: address, author }];
}

/** Names stored items within one decision. New rows get the numbers after 0. */
export class Numbered {
  readonly items = new Map<number, EventItem>();

  add(item: EventItem): StoredEvent & { readonly community: number } {
    const seq = -1 - this.items.size;
    this.items.set(seq, item);
    return placedOf(item, seq);
  }
}

export async function readFacts(
  db: Dynamodb,
  submission: Submission,
  options: FactOptions,
  now: number,
): Promise<Read> {
  const { community, event } = submission;
  const owners = ownersOf(event);
  const address = addressOf(event);
  const tombstones = tombstonesOf(submission);
  const controlling = options.controlOf?.(community, owners);
  controlling?.catch(() => undefined);
  const asked = [
    atEvents(community, event.id),
    ...tombstones.map(({ key }) => atState(key)),
    ...owners.map((owner) => atState(markKey(community, owner))),
    ...(address === undefined ? [] : [atState(headKey(community, address))]),
    ...(event.kind === KIND_DELETION ? [atState(quotaKey(community, event.pubkey, dayOf(now)))] : []),
  ];
  const found = await db.read(asked);
  const stateAt = (key: TableKey) => found.get(keyText('state', key));
  const known = found.get(keyText('events', eventKey(community, event.id))) as EventItem | undefined;
  const head =
    address === undefined ? undefined : (stateAt(headKey(community, address)) as HeadItem | undefined);
  const numbered = new Numbered();
  const heads = new Map<string, Head>();
  if (address !== undefined && head !== undefined)
    heads.set(factKey(community, address), await readHead(db, community, head, numbered));
  const vanished = new Map<string, number>();
  for (const owner of owners) {
    const mark = stateAt(markKey(community, owner));
    if (mark !== undefined) vanished.set(factKey(community, owner), mark.until_at as number);
  }
  const dead = new Map<string, number>();
  for (const { key, name, author } of tombstones) {
    const tombstone = stateAt(key);
    if (tombstone !== undefined)
      dead.set(tombstoneKey(community, name, author), tombstone.requested_at as number);
  }
  if (event.kind === KIND_DELETION && vanished.size > 0) await readOwnTombstones(db, submission, dead);
  const settings = options.settingsOf(community);
  const used =
    event.kind === KIND_DELETION ? stateAt(quotaKey(community, event.pubkey, dayOf(now))) : undefined;
  const left = settings['deletion.targetsPerDayMax'] - ((used?.targets as number | undefined) ?? 0);
  return {
    facts: {
      lastSeq: 0,
      known: new Map(
        known === undefined ? [] : [[factKey(community, event.id), known.hidden_as ?? 'served'] as const],
      ),
      heads,
      targets: new Map(),
      tombstones: dead,
      vanished,
      ...(await controlling),
      deletionsLeft: new Map([[factKey(community, event.pubkey), left]]),
      ...rulesOf(community, options),
    },
    head,
    items: numbered.items,
  };
}

/** The rules of the community for a decision. An author's deletion is always physical in this store. */
export function rulesOf(
  community: number,
  { settingsOf, topicsOf, keptSinceOf }: FactOptions,
): Pick<BatchFacts, 'purgesDeleted' | 'keepsNoHistory' | 'retention' | 'topicSettings'> {
  const settings = settingsOf(community);
  const retention = {
    settings,
    topics: topicsOf?.(community) ?? new Map<string, TopicRule>(),
    keptSince: keptSinceOf?.(community),
  };
  return {
    purgesDeleted: new Set([community]),
    keepsNoHistory: new Set(settings['retention.historyDays'] === 0 ? [community] : []),
    retention: new Map([[community, retention]]),
    topicSettings: new Map([[community, settings]]),
  };
}

async function readHead(
  db: Dynamodb,
  community: number,
  { id, created_at }: HeadItem,
  numbered: Numbered,
): Promise<Head> {
  const item = (await db.get('events', eventKey(community, id as string))) as EventItem | undefined;
  const stored = isServedItem(item) ? numbered.add(item) : undefined;
  const topics = stored === undefined ? [] : allTopics(stored.event, stored.bound);
  return { id, created_at, topics, row: stored?.row };
}

/** Of a vanished author: they tell whether the request is a repeat. */
async function readOwnTombstones(
  db: Dynamodb,
  { community, event }: Submission,
  dead: Map<string, number>,
): Promise<void> {
  const targets = deletionTargets(event);
  const keyOf = (target: DeletionTarget) => tombstoneKeyOf(community, target, event.pubkey);
  const found = await db.read(targets.map((target) => atState(keyOf(target))));
  for (const target of targets) {
    const tombstone = found.get(keyText('state', keyOf(target)));
    if (tombstone !== undefined)
      dead.set(tombstoneKey(community, targetName(target), event.pubkey), tombstone.requested_at as number);
  }
}

/**
 * The stored events that a deletion request names, by id and by the heads of addresses. It is called after
 * the tombstones are written: whatever is not found here meets them (I5).
 */
export async function readTargets(
  db: Dynamodb,
  { community, event: request }: Submission,
  superseded: readonly EventItem[],
): Promise<Pick<Read, 'items'> & Pick<BatchFacts, 'heads' | 'targets' | 'superseded'>> {
  const targets = deletionTargets(request);
  const addresses = targets.flatMap((target) => (target.type === 'address' ? [target.address] : []));
  const headItems = await db.read(addresses.map((address) => atState(headKey(community, address))));
  const headOf = (address: string) =>
    headItems.get(keyText('state', headKey(community, address))) as HeadItem | undefined;
  const ids = [
    ...targets.flatMap((target) => (target.type === 'id' ? [target.id] : [])),
    ...addresses.flatMap((address) => headOf(address)?.id ?? []),
  ];
  const found = await db.read(ids.map((id) => atEvents(community, id)));
  const numbered = new Numbered();
  const stored = new Map<string, StoredEvent>();
  const history: Superseded[] = [];
  const addHistory = (item: EventItem): void => {
    const { event, row, bound } = numbered.add(item);
    const { id, created_at, pubkey } = event;
    const topics = allTopics(event, bound);
    history.push({ community, id, created_at, pubkey, address: addressOf(event)!, topics, row });
  };
  const isHistory = ({ hidden_as, payload }: EventItem) =>
    hidden_as === 'superseded' && payload !== undefined;
  for (const item of found.values() as Iterable<EventItem>) {
    if (isServedItem(item)) stored.set(factKey(community, item.event_id), numbered.add(item));
    else if (isHistory(item)) addHistory(item);
  }
  const listed = new Set(history.map(({ id }) => id));
  for (const item of superseded) if (isHistory(item) && !listed.has(item.event_id)) addHistory(item);
  const heads = new Map<string, Head>();
  for (const address of addresses) {
    const head = headOf(address);
    if (head === undefined) continue;
    const row = stored.get(factKey(community, head.id))?.row;
    heads.set(factKey(community, address), { id: head.id, created_at: head.created_at, topics: [], row });
  }
  return { heads, targets: stored, superseded: history, items: numbered.items };
}
