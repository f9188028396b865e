/**
 * Erases events with their tags. The lane deletes served events and announces them (I8). Hidden events are
 * deleted outside the lane; so are the tags of events that a mark hides.
 */
import { performance } from 'node:perf_hooks';
import {
  type Cursor,
  countEventsIn,
  countEventsOf,
  type ErasedAuthor,
  findNodesWords,
  type Page,
  pageOfHiddenWraps,
  pageOfWraps,
  purgeHiddenAt,
  purgeHiddenIn,
  purgeHiddenOf,
  purgeNodesHiddenWords,
} from '../../events/postgres/erased-events.js';
import { forgetIds, removeTagsOf, takeServed } from '../../events/postgres/hide.js';
import { nextServedIn, nextServedOf, selectServed } from '../../events/postgres/selections.js';
import { eventDedupeTable, eventsTable, eventTagsTable } from '../../events/postgres/tables.js';
import type { TagHash } from '../../events/postgres/tag-hash.js';
import type { PlacedEvent, RowRef } from '../../events/rules/facts.js';
import type { ErasingSession, EventStore } from '../../events/store.js';
import { BESIDE_LANE, type CommunitySubject, type MemberSubject, nextRows } from '../rules.js';
import { type Deleter, inBatches, type Progress } from './deleter.js';

export const EVENTS_STORE = `postgres:${eventsTable.erased.store}`;
const DEDUPE = `postgres:${eventDedupeTable.erased.store}`;

interface Erasing extends ErasingSession {
  readonly store: Pick<EventStore, 'hide'>;
  readonly tagHash: TagHash;
}

export function eventsDeleter(stores: Erasing): Deleter {
  const { client, tagHash } = stores;
  return {
    name: EVENTS_STORE,
    holds: [eventsTable.name, eventTagsTable.name],
    count: (subject) =>
      subject.type === 'member'
        ? countEventsOf(client, authored(subject, tagHash))
        : countEventsIn(client, subject.community),
    delete: (subject, progress) =>
      subject.type === 'member' ? deleteOf(stores, subject, progress) : deleteIn(stores, subject, progress),
  };
}

/**
 * For rows that a copy to another store has left here. Nobody reads them, so nothing is announced.
 */
export function leftEventsDeleter(session: ErasingSession & { readonly tagHash: TagHash }): Deleter {
  const { client, tagHash, now } = session;
  const hide: EventStore['hide'] = async ({ which }) => {
    if ('due' in which) throw new Error('an erasure has no orders');
    const events = await selectServed(client, which, now());
    if (which.by !== 'read') {
      await removeTagsOf(client, events, tagHash);
      await forgetIds(client, events);
      await takeServed(client, events);
    }
    return events.length;
  };
  return eventsDeleter({ ...session, store: { hide } });
}

function authored(
  { community, pubkey, until, vanishes = false }: MemberSubject,
  tagHash: TagHash,
): ErasedAuthor {
  return {
    community,
    pubkey,
    until: until ?? Number.MAX_SAFE_INTEGER,
    recipient: String(tagHash(community, 'p', pubkey)),
    sparesRequest: vanishes,
  };
}

/** Each event that was served has one dedupe row, which is deleted with it. */
const withDedupe =
  (progress: Progress): Progress =>
  (deleted) =>
    progress(deleted, { [DEDUPE]: deleted });

/** Each step for served events is followed by one for hidden events, in case some are hidden meanwhile. */
async function deleteOf(stores: Erasing, subject: MemberSubject, progress: Progress): Promise<number> {
  const { client, store, tagHash, now, rows } = stores;
  const author = authored(subject, tagHash);
  const hidden = subject.vanishes ? ('vanished' as const) : ('erased' as const);
  const hideAt = (places: readonly RowRef[]) =>
    store.hide({ hidden, purge: true, which: { by: 'places', places, limit: rows } });
  const read: ReadPage = (page, limit) => nextServedOf(client, author, page, limit);
  // Without a time limit the store of the ids deletes all of the author, by their index and in large batches.
  const forgets = subject.until !== undefined;
  let deleted = await deleteServed(stores, { hidden, forgets, read }, progress);
  deleted += await inBatches(
    (limit) => store.hide({ hidden, purge: true, forget: true, which: { by: 'author', author, limit } }),
    withDedupe(progress),
    rows,
  );
  const purge = (limit: number) => purgeHiddenOf(client, author, now(), limit);
  deleted += await inBatches(purge, progress, rows, BESIDE_LANE);
  if (!subject.vanishes) {
    deleted += await inBatches(
      async (limit) => {
        const places = await findNodesWords(client, author, Math.min(limit, rows));
        return places.length === 0 ? 0 : hideAt(places);
      },
      progress,
      rows,
    );
    deleted += await inBatches(
      (limit) => purgeNodesHiddenWords(client, author, now(), limit),
      progress,
      rows,
    );
  }
  const first: Cursor = { createdAt: author.until, seq: 0 };
  deleted += await throughPages((after) => pageOfWraps(client, author, after), first, hideAt, progress);
  deleted += await throughPages(
    (after) => pageOfHiddenWraps(client, author, after),
    first,
    (found) => purgeHiddenAt(client, found, now()),
    progress,
  );
  return deleted;
}

type ReadPage = (after: readonly PlacedEvent[], limit: number) => Promise<PlacedEvent[]>;

interface ServedDeletion {
  readonly hidden: 'vanished' | 'erased';
  /** The ids are deleted with the events; otherwise their own store deletes them later. */
  readonly forgets: boolean;
  readonly read: ReadPage;
}

/**
 * Deletes what is served and hidden by the mark, from the newest down. Each page is read, and its tags and
 * ids are deleted, while the lane deletes and announces the page before it. So the lane is held for the row
 * and the outbox only. What escapes it, because it was moved meanwhile, is left to the caller; so are events
 * in another store.
 */
async function deleteServed(
  { client, store, tagHash, rows: firstRows }: Erasing,
  { hidden, forgets, read }: ServedDeletion,
  progress: Progress,
): Promise<number> {
  const prepare = async (after: readonly PlacedEvent[], limit: number) => {
    const events = await read(after, limit);
    await removeTagsOf(client, events, tagHash);
    return { events, ids: forgets ? await forgetIds(client, events) : 0 };
  };
  let deleted = 0;
  let rows = firstRows;
  let page = await prepare([], rows);
  while (page.events.length > 0) {
    const { events, ids } = page;
    const next = prepare(events, rows);
    try {
      const startMs = performance.now();
      const taken = await store.hide({ hidden, purge: true, forget: true, which: { by: 'read', events } });
      rows = nextRows(rows, performance.now() - startMs, firstRows);
      deleted += taken;
      await progress(taken, { [DEDUPE]: ids });
    } finally {
      // Also after a stop or a failure: nothing of it continues in the background.
      await next.catch(() => undefined);
    }
    page = await next;
  }
  return deleted;
}

/** A page is read again until nothing on it matches: one batch may not hold all of its rows. */
async function throughPages(
  read: (after: Cursor) => Promise<Page>,
  first: Cursor,
  take: (found: readonly RowRef[]) => Promise<number>,
  progress: Progress,
): Promise<number> {
  let deleted = 0;
  for (let after: Cursor | undefined = first; after !== undefined; ) {
    const page = await read(after);
    const taken = page.found.length === 0 ? 0 : await take(page.found);
    deleted += taken;
    await progress(taken);
    if (taken === 0) after = page.next;
  }
  return deleted;
}

async function deleteIn(
  stores: Erasing,
  { community }: CommunitySubject,
  progress: Progress,
): Promise<number> {
  const { client, store, now, rows } = stores;
  const hidden = 'erased';
  const read: ReadPage = (page, limit) => nextServedIn(client, community, page, limit);
  let served = await deleteServed(stores, { hidden, forgets: false, read }, progress);
  served += await inBatches(
    (limit) =>
      store.hide({ hidden, purge: true, forget: true, which: { by: 'community', community, limit } }),
    withDedupe(progress),
    rows,
  );
  const purge = (limit: number) => purgeHiddenIn(client, community, now(), limit);
  return served + (await inBatches(purge, progress, rows, BESIDE_LANE));
}
