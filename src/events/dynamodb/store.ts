/**
 * The event store on DynamoDB. Events, their index, heads, tombstones and marks are in DynamoDB; changes and
 * ephemeral events travel through PostgreSQL, which is the control plane. There is no lane: any number of
 * instances write at once, and conditions hold I3–I6 (commit.ts, deletion.ts).
 */
import type { SubjectKey } from '../../keys/subject-key.js';
import type { OnArrival } from '../../moderation/arrival/on-arrival.js';
import type { Log } from '../../node/log.js';
import { readChangesOf } from '../../outbox/changes.sql.js';
import { readAnchor, readBus, readBusHead, readHead, readOutbox } from '../../outbox/outbox.sql.js';
import type { Database } from '../../postgres/database.js';
import type { TagHash } from '../postgres/tag-hash.js';
import { ownersOf } from '../rules/deletion.js';
import { factKey } from '../rules/facts.js';
import type { HistoryRetention } from '../rules/retention.js';
import type { EventStore, Marking, SeenAgain } from '../store.js';
import { positionsWithoutRow, withUnnamed } from '../unnamed-changes.js';
import { type Dynamodb, eachOf } from './client.js';
import { readControl, writeBroadcast } from './control.sql.js';
import { startErasing } from './erasing/erasing.js';
import type { FactOptions } from './facts.js';
import { hideEvents, sweepStep } from './hide.js';
import { deleteLeft } from './history.js';
import { type EventItem, isServedItem } from './items.js';
import { eventKey, markKey, seenKey } from './keys.js';
import { KnownPeople } from './known-people.js';
import { writeMarks } from './marking.js';
import { PendingMarks } from './marks.js';
import { previewEvents } from './previews.js';
import { type HistoryPageRead, readHistoryPage } from './read/export.js';
import { countEvents, eventsById, findEvents, newestEvents } from './read/find.js';
import { Positions } from './read/positions.js';
import { RecentWrites } from './read/recent-writes.js';
import { readRecords } from './read/records.js';
import { type WalkedPage, type WalkOf, walkEvents } from './read/walk.js';
import { restoreEvents } from './restore.js';
import { itemsByRef } from './selections.js';
import { storedInDynamodb } from './stored/stored-events.js';
import type { SubmitOptions } from './submit.js';
import { startWriting } from './writing.js';

const COUNTS_AT_ONCE = 16;
/** Counters of events that were sent again are kept as long as their ids. */
const SEEN_DAYS = 180;

export interface DynamodbStoreOptions extends Omit<FactOptions, 'controlOf'> {
  readonly db: Dynamodb;
  readonly database: Pick<Database, 'pool' | 'ownPool' | 'queryPools'>;
  /** Names the tags in the outlines of deleted events. */
  readonly tagHash: TagHash;
  readonly subjectKey?: SubjectKey;
  /** Seconds: events signed up to then belong to an erased community that had the same name. */
  readonly refusedUntilOf?: (community: number) => number | undefined;
  /** All communities of the node. */
  readonly communities: () => readonly number[];
  readonly log: Log;
  readonly now: () => number;
  /** Judges events by the moderation rules; undefined where there are none. */
  readonly onArrival?: OnArrival | undefined;
  readonly onHidden?: (reason: string, count: number) => void;
  /** This process has taken an event out of the view. The log announces it a moment later. */
  readonly onGone?: (community: number, id: string) => void;
  /** This process has written a mark. */
  readonly onMark?: () => void;
  readonly onRemovalsLeft?: (count: number) => void;
  /** Whether the log has everything that is in the stream; without a stream it always has. */
  readonly isLogRead?: () => Promise<boolean>;
}

export interface DynamodbStore extends EventStore {
  /** A page of all served events of a community, the newest first. */
  walk(walk: WalkOf): Promise<WalkedPage>;
  /** A page of the superseded versions that are kept, in the order in which they were superseded. */
  history(
    rules: HistoryRetention & { readonly id: number },
    after: string,
    now: number,
  ): Promise<HistoryPageRead>;
}

export function startDynamodbStore(options: DynamodbStoreOptions): DynamodbStore {
  const { db, database, log, now, tagHash } = options;
  const { pool, ownPool, queryPools } = database;
  const marks = new PendingMarks(db);
  const recent = new RecentWrites();
  const submitting: SubmitOptions = {
    ...options,
    pool,
    recent,
    people: new KnownPeople(),
    controlOf: controlOf(options),
    broadcast: (submission, at) => writeBroadcast(ownPool, submission, at),
  };
  const hiding = { ...options, pool };
  const positions = new Positions();
  const reading = { db, marks, recent, positions, now };
  const writing = startWriting(submitting);
  return {
    stored: storedInDynamodb({
      ...reading,
      communities: options.communities,
      settingsOf: options.settingsOf,
    }),
    get depth() {
      return writing.depth;
    },
    submit: writing.submit,
    hide: (which) => hideEvents(hiding, which),
    preview: (which) => previewEvents(options, which, now()),
    sweep: (step) => sweepStep(hiding, step),
    deleteHistory: (rowsMax) => deleteLeft(db, options.communities(), rowsMax, now()),
    restore: (which) => restoreEvents(submitting, which),
    mark: (work: Marking) => writeMarks(submitting, work, now()),
    countSeen: (seen) => eachOf(seen, COUNTS_AT_ONCE, (one) => countSeen(db, one)),
    find: (query) => findEvents(reading, query),
    count: (query, inSlot) => countEvents(reading, query, inSlot),
    // Events are read by their ids: they have no other place.
    payloads: async (rows) => rows.map(() => undefined),
    byIds: (refs) => eventsById(reading, refs),
    newest: (community, after) => newestEvents(reading, community, after),
    walk: (walk) => walkEvents(reading, walk),
    history: (rules, after, at) => readHistoryPage(reading, rules, after, at),
    records: (query) => readRecords(reading, query),
    known: async (community, ids) => {
      const refs = ids.map((id) => ({ community, id }));
      return new Set([...(await itemsByRef(db, refs)).values()].map(({ event_id }) => event_id));
    },
    isServed: async (community, event) => {
      const owners = ownersOf(event).map((owner) => ({
        table: 'state' as const,
        key: markKey(community, owner),
      }));
      const found = await db.read([{ table: 'events', key: eventKey(community, event.id) }, ...owners]);
      const items = [...found.values()];
      const isMarked = items.some(
        ({ until_at }) => until_at !== undefined && (until_at as number) >= event.created_at,
      );
      return !isMarked && items.some((item) => isServedItem(item as EventItem));
    },
    head: async () => positions.noteHead(await readHead(ownPool), now()),
    changesOf: async (query, as) => {
      const page = await readChangesOf(queryPools[as], query);
      positions.noteMissed(page.changes);
      return page;
    },
    anchor: (position, as) => readAnchor(queryPools[as], position),
    tagKey: (community, letter, value) => tagHash(community, letter, value).toString(),
    changes: async (after, limit, withOutlines) => {
      const { entries, lastSeq } = await readOutbox(ownPool, after, limit, withOutlines);
      positions.note(entries);
      const without = positionsWithoutRow(entries, after, limit, lastSeq);
      if (without.length === 0) return { changes: entries, head: lastSeq };
      const pending = await Promise.all(options.communities().map((community) => marks.of(community)));
      return { changes: withUnnamed(entries, without, pending.flat()), head: lastSeq };
    },
    broadcastHead: () => readBusHead(ownPool),
    broadcasts: (after, limit) => readBus(ownPool, after, limit),
    ...startErasing(hiding, tagHash),
    close: async () => {
      await writing.close();
      log.debug('the store in DynamoDB is closed');
    },
  };
}

/** Erased members, and communities whose name was used by an erased one. */
function controlOf({
  database,
  subjectKey,
  onArrival,
  refusedUntilOf,
}: DynamodbStoreOptions): NonNullable<FactOptions['controlOf']> {
  return async (community, owners) => {
    const isAsked = subjectKey !== undefined || onArrival !== undefined;
    const control = isAsked
      ? await readControl(database.ownPool, subjectKey, community, owners)
      : { erased: new Map<string, number>(), rulesVersion: 0 };
    const until = refusedUntilOf?.(community);
    const key = factKey(community, '');
    if (until !== undefined) control.erased.set(key, Math.max(until, control.erased.get(key) ?? until));
    return control;
  };
}

/** Beside the event, because a write to its item would cost as much as the item is large. */
async function countSeen(db: Dynamodb, { community, id, times, lastSeenAt }: SeenAgain): Promise<void> {
  await db.change({
    table: 'state',
    update: seenKey(community, id),
    set: {
      text: 'SET last_seen_at = :at, ttl_at = :ttl ADD seen_count :times',
      values: {
        ':at': lastSeenAt,
        ':ttl': Math.ceil(lastSeenAt / 1_000) + SEEN_DAYS * 86_400,
        ':times': times,
      },
    },
  });
}
