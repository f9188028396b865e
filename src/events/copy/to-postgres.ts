/**
 * Copies events from DynamoDB to PostgreSQL while a node serves them from DynamoDB. As in the other direction
 * (to-dynamodb.ts) what differs is written, a page can be repeated, and a run that was killed continues.
 *
 * A row of PostgreSQL has the offset of its `upsert`, by which it is swept and exported. So the events that
 * the log names come first, with their offsets. Older ones get offsets that are free, regular ones in the
 * order in which they came in (I11), then all others, served and hidden, with the ids of purged ones.
 */
import { setTimeout as delay } from 'node:timers/promises';
import type { DynamodbPlace } from '../../node/config.js';
import type { Log } from '../../node/log.js';
import { allTopics } from '../../topics/rules.js';
import { type Item, keyText } from '../dynamodb/client.js';
import { boundOf, type EventItem, eventOf } from '../dynamodb/items.js';
import { END, partitions, pendingMarks, timeOf } from '../dynamodb/keys.js';
import { itemsByRef, page as pageOfEntries } from '../dynamodb/selections.js';
import { Streams } from '../dynamodb/stream/client.js';
import { isStreamRead, StreamFollower } from '../dynamodb/stream/follow.js';
import { leaveHistory } from '../postgres/history.js';
import { factKey } from '../rules/facts.js';
import type { EventRef } from '../store.js';
import { type Checkpoint, readCheckpoint, writeCheckpoint } from './checkpoint.js';
import { type CopyOptions, PAGE_ROWS, readItems, readSection, SECTIONS } from './compare.js';
import { copyOfEvent, copyOfGone, hashOfItem, isErasing } from './items.js';
import {
  type HeadRow,
  type KnownRow,
  type MarkRow,
  type Place,
  readChangedSince,
  readKnownRows,
  readLog,
  type TombstoneRow,
} from './source.sql.js';
import {
  freeOffsets,
  KIND_UNKNOWN,
  removeEvents,
  removeHeads,
  removeTombstones,
  takeOffsets,
  unique,
  writeEvents,
  writeHeads,
  writeMarks,
  writeTombstones,
} from './target.sql.js';

/** What is read, in this order. */
const PARTS = ['state', 'log', 'arrived', 'events'] as const;
type Part = (typeof PARTS)[number];
const START: Checkpoint<Part> = { section: 'state', place: [], pin: 0, free: 1 };

interface Copying extends CopyOptions {
  readonly communities: readonly number[];
  /** All offsets below it are in use. */
  readonly offsets: { free: number };
  /** The node is stopped, and this command holds the lane. */
  readonly isLaneHeld: boolean;
}
type Options = Omit<Copying, 'offsets' | 'isLaneHeld'>;

interface CopiedPage {
  readonly read: number;
  readonly written: number;
  readonly next: Place | undefined;
}

/** Continues where the last run stopped. False when it was interrupted. */
export async function copyAll(options: Options, isLaneHeld = false): Promise<boolean> {
  const { pool, signal } = options;
  let { section, place, pin, free = 1 } = (await readCheckpoint<Part>(pool)) ?? START;
  const copying = { ...options, offsets: { free }, isLaneHeld };
  while (section !== 'done') {
    if (signal.aborted) return false;
    if (section === 'log' && place.length === 0) pin = (await readLog(pool)).head;
    const { read, written, next } = await copyPage(copying, section, place);
    options.onPage(section, { read, written });
    if (next === undefined) section = PARTS[PARTS.indexOf(section) + 1] ?? 'done';
    place = next ?? [];
    free = copying.offsets.free;
    await writeCheckpoint(pool, { section, place, pin, free });
  }
  return true;
}

function copyPage(copying: Copying, part: Part, place: Place): Promise<CopiedPage> {
  switch (part) {
    case 'state':
      return copyState(copying, place);
    case 'log':
      return copyLog(copying, place);
    case 'arrived':
      return copyArrived(copying, place);
    case 'events':
      return copyEvents(copying, place);
  }
}

// ── Events ─────────────────────────────────────────────────────────────────────────────────────────────────

/** Events that the log names, with the offset of their last `upsert`. */
async function copyLog(copying: Copying, place: Place): Promise<CopiedPage> {
  const { pool, db } = copying;
  const { refs, next } = await readChangedSince(pool, 'upsert', Number(place[0] ?? 0), PAGE_ROWS);
  const items = await itemsByRef(db, refs);
  const placed = refs.flatMap(({ community, id, seq }) => {
    const item = items.get(factKey(community, id));
    return item === undefined ? [] : [{ item, seq }];
  });
  const written = await writeItems(copying, placed);
  return { read: refs.length, written, next: next === undefined ? undefined : [`${next}`] };
}

/** Regular events of one community after another, in the order in which they came in. */
async function copyArrived(copying: Copying, place: Place): Promise<CopiedPage> {
  const { db, communities } = copying;
  const [last = '-1', after = ''] = place;
  const community = communities.find((id) => (after === '' ? id > Number(last) : id === Number(last)));
  if (community === undefined) return { read: 0, written: 0, next: undefined };
  const pages = await Promise.all(
    partitions
      .ingested(community)
      .map((pk) => pageOfEntries(db, pk, { from: after, to: END, limit: PAGE_ROWS })),
  );
  const keys = pages
    .flatMap(({ entries }) => entries.map(({ sk }) => sk))
    .filter((sk) => sk > after)
    .sort()
    .slice(0, PAGE_ROWS - 1);
  const items = await itemsByRef(
    db,
    keys.map((sk) => ({ community, id: timeOf(sk).id })),
  );
  const placed = keys.flatMap((sk) => {
    const item = items.get(factKey(community, timeOf(sk).id));
    return item === undefined ? [] : [{ item }];
  });
  const written = await writeItems(copying, placed);
  return { read: keys.length, written, next: [`${community}`, keys.at(-1) ?? ''] };
}

/** Everything. */
async function copyEvents(copying: Copying, place: Place): Promise<CopiedPage> {
  const { items, next } = await copying.db.scan(
    'events',
    place[0] === undefined ? undefined : { id: place[0] },
  );
  let written = 0;
  for (let at = 0; at < items.length; at += PAGE_ROWS) {
    const portion = (items as EventItem[]).slice(at, at + PAGE_ROWS);
    written += await writeItems(
      copying,
      portion.map((item) => ({ item })),
    );
  }
  return { read: items.length, written, next: next === undefined ? undefined : [next.id as string] };
}

interface Placed {
  readonly item: EventItem;
  /** Undefined where the log does not name it. */
  readonly seq?: number;
}

/** Writes those that differ, or have another offset. Returns their number. */
async function writeItems(copying: Copying, placed: readonly Placed[]): Promise<number> {
  const { pool, settingsOf, offsets, isLaneHeld } = copying;
  const events = unique(placed.filter(({ item }) => isKept(item) && !isErasing(item)));
  const known = await knownOf(
    copying,
    events.map(({ item }) => refOf(item)),
  );
  const differing = events.flatMap(({ item, seq }) => {
    const row = known.get(factKey(item.community, item.event_id));
    const isGone = item.payload === undefined;
    const copy =
      row?.event !== undefined
        ? copyOfEvent(row.event, settingsOf(item.community))
        : row?.gone && copyOfGone(row.gone, settingsOf(item.community));
    const isSame = copy !== undefined && hashOfItem(copy.item) === hashOfItem(item);
    if (isSame && (isGone || seq === undefined || seq === row!.place.seq)) return [];
    const own = row?.event === undefined ? undefined : row.place.seq;
    return [{ item, seq: isGone ? 0 : (seq ?? own), known: row }];
  });
  const missing = differing.filter(({ seq }) => seq === undefined).length;
  const numbers = missing === 0 ? [] : await freeOffsets(pool, offsets.free, missing);
  if (missing > 0) {
    const left = missing - numbers.length;
    if (left > 0) numbers.push(...(await takeOffsets(pool, left, isLaneHeld)));
    offsets.free = numbers.at(-1)! + 1;
  }
  let used = 0;
  await writeEvents(
    copying,
    differing.map(({ item, seq, known: row }) => {
      if (seq !== undefined) return { item, seq, known: row };
      used += 1;
      return { item, seq: numbers[used - 1]!, known: row };
    }),
  );
  return differing.length;
}

/** An item without its content is an id that was purged. */
const isKept = ({ payload, gone_at }: EventItem) => payload !== undefined || gone_at !== undefined;
const refOf = ({ community, event_id }: EventItem): EventRef => ({ community, id: event_id });

async function knownOf({ pool }: Options, refs: readonly EventRef[]): Promise<Map<string, KnownRow>> {
  const rows = await readKnownRows(pool, refs);
  return new Map(rows.map((row) => [factKey(row.community, row.id), row]));
}

// ── State ──────────────────────────────────────────────────────────────────────────────────────────────────

/** Heads, tombstones and marks. */
async function copyState(copying: Copying, place: Place): Promise<CopiedPage> {
  const [pk, sk] = place;
  const { items, next } = await copying.db.scan('state', pk === undefined ? undefined : { pk, sk });
  const of = (type: string) => items.filter((item) => typeOf(item) === type);
  const { pool, tagHash } = copying;
  const written =
    (await writeTombstones(pool, of('tombstone').map(tombstoneOf))) +
    (await writeHeads(pool, await headsOf(copying, of('head').map(headOf)))) +
    (await writeMarks(pool, await marksOf(copying, of('mark')), { tagHash, now: Date.now() }));
  return {
    read: items.length,
    written,
    next: next === undefined ? undefined : [next.pk as string, next.sk as string],
  };
}

const partsOf = ({ pk }: Item) => String(pk).split('/');
const typeOf = (item: Item) => partsOf(item)[1]!;
const communityOf = (item: Item) => Number(partsOf(item)[0]);

function tombstoneOf(item: Item): TombstoneRow {
  const [, , ...target] = partsOf(item);
  return {
    community: communityOf(item),
    isAddress: target.length > 1,
    target: target.at(-1)!,
    author: item.sk as string,
    requestedAt: item.requested_at as number,
    requestId: item.request_id as string,
  };
}

const headOf = (item: Item): HeadRow => ({
  community: communityOf(item),
  addressHash: partsOf(item)[2]!,
  id: item.id as string,
  createdAt: item.created_at as number,
  pubkey: String(item.owner_key).split('/')[1]!,
});

/** With the kind and the topics of the version, if it is still there. */
async function headsOf({ db }: Options, heads: readonly HeadRow[]) {
  const items = await itemsByRef(db, heads);
  return heads.map((head) => {
    const item = items.get(factKey(head.community, head.id));
    if (item?.payload === undefined) return { ...head, kind: item?.kind ?? KIND_UNKNOWN, topics: [] };
    return { ...head, kind: item.kind, topics: allTopics(eventOf(item), boundOf(item)) };
  });
}

async function marksOf({ db }: Options, items: readonly Item[]): Promise<MarkRow[]> {
  const pendingOf = (item: Item) => ({ pk: pendingMarks(communityOf(item)), sk: partsOf(item)[2]! });
  const pending = await db.read(items.map((item) => ({ table: 'state', key: pendingOf(item) })));
  return items.map((item) => ({
    community: communityOf(item),
    pubkey: partsOf(item)[2]!,
    until: item.until_at as number,
    requestId: item.request_id as string | undefined,
    isPending: pending.has(keyText('state', pendingOf(item))),
  }));
}

// ── After the node was stopped ─────────────────────────────────────────────────────────────────────────────

const STREAM_MS_MAX = 60_000;
const STREAM_POLL_MS = 100;

/**
 * Appends to the log what the stopped node has not read of the stream, so that every change is announced.
 * Before the lane is held.
 */
export async function readStream(
  { db, pool, tagHash }: Options,
  { place, log }: { readonly place: DynamodbPlace; readonly log: Log },
): Promise<void> {
  const streams = new Streams(place);
  await streams.load();
  const follower = new StreamFollower({ db, streams, pool, tagHash, log, now: Date.now });
  try {
    for (const startMs = performance.now(); performance.now() - startMs < STREAM_MS_MAX; ) {
      await follower.step();
      if (await isStreamRead({ db, streams, pool })) return;
      await delay(STREAM_POLL_MS);
    }
    throw new Error('the stream of events was not read to its end within a minute; run the command again');
  } finally {
    await follower.stop();
    await streams.close();
  }
}

/** What changed since the events were begun: in the order of the log, and by reading both tables again. */
export async function finishCopy(options: Options): Promise<boolean> {
  const { pool, signal, onPage } = options;
  const { pin = 0, free = 1 } = (await readCheckpoint<Part>(pool)) ?? {};
  const copying = { ...options, offsets: { free }, isLaneHeld: true };
  for (const part of ['state', 'log', 'events'] as const) {
    let place: Place | undefined = part === 'log' ? [`${pin}`] : [];
    while (place !== undefined && !signal.aborted) {
      const page: CopiedPage = await copyPage(copying, part, place);
      onPage(part, page);
      place = page.next;
    }
  }
  await leaveRemovals(options);
  return true;
}

/** Versions of an address that are still to be deleted: the job of PostgreSQL continues with them. */
async function leaveRemovals({ db, client, communities }: Options): Promise<void> {
  for (const community of communities) {
    let next: Item | undefined;
    do {
      const page: Awaited<ReturnType<typeof db.query>> = await db.query('state', {
        KeyConditionExpression: 'pk = :pk',
        ExpressionAttributeValues: { ':pk': `${community}/removals` },
        ExclusiveStartKey: next,
      });
      if (page.items.some(({ type }) => type === 'id'))
        throw new Error(
          'removals that failed are left; start the node and run: minato jobs run delete-history',
        );
      await leaveHistory(
        client,
        page.items.map(({ author, target, requested_at }) => ({
          community,
          target: { type: 'address', address: target as string },
          author: author as string,
          deletionId: '',
          requestedAt: requested_at as number,
          applied: true,
          historyLeft: true,
        })),
      );
      next = page.next;
    } while (next !== undefined);
  }
}

/**
 * Deletes what PostgreSQL has and DynamoDB has not: deleted since, or since an earlier move. A mark is never
 * deleted: one that only PostgreSQL has is written to DynamoDB too. Returns the number of rows.
 */
export async function removeOrphans(options: Options): Promise<number> {
  const { pool, db, tagHash, onPage } = options;
  let removed = 0;
  for (const section of SECTIONS) {
    let place: Place | undefined = [];
    while (place !== undefined) {
      const page: Awaited<ReturnType<typeof readSection>> = await readSection(options, section, place);
      const there = await readItems(db, page.copies);
      const lost = page.copies.filter(({ table, item }) => !there.has(keyText(table, item)));
      const items = lost.map(({ item }) => item);
      if (lost.length === 0) {
        // Nothing to delete.
      } else if (section === 'tombstones') await removeTombstones(pool, items.map(tombstoneOf));
      else if (section === 'heads') await removeHeads(pool, items.map(headOf));
      else if (section === 'marks') await db.write(lost.map(({ table, item }) => ({ table, put: item })));
      else {
        const known = await knownOf(options, (items as EventItem[]).map(refOf));
        await removeEvents(pool, [...known.values()], tagHash);
      }
      removed += lost.length;
      onPage(section, { read: page.copies.length, written: lost.length });
      place = page.next;
    }
  }
  return removed;
}
