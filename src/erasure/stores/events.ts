/**
 * Events with their tags. The lane deletes served events and announces them (I8). Hidden events are deleted
 * outside the lane.
 */
import { eventDedupeTable } from '../../events/postgres/tables.js';
import type { TagHash } from '../../events/postgres/tag-hash.js';
import type { RowRef } from '../../events/rules/facts.js';
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
} from '../events.sql.js';
import type { CommunitySubject, MemberSubject } from '../rules.js';
import { type Deleter, inBatches, type Progress } from './deleter.js';
import type { PostgresStores } from './postgres.js';

const DEDUPE = `postgres:${eventDedupeTable.erased.store}`;

export function eventsDeleter(table: Deleter, stores: PostgresStores): Deleter {
  const { client, tagHash } = stores;
  return {
    ...table,
    count: (subject) =>
      subject.type === 'member'
        ? countEventsOf(client, authored(subject, tagHash))
        : countEventsIn(client, subject.community),
    delete: (subject, progress) =>
      subject.type === 'member' ? deleteOf(stores, subject, progress) : deleteIn(stores, subject, progress),
  };
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

/** Each event that was served has one dedupe row, which the lane deletes with it. */
const withDedupe =
  (progress: Progress): Progress =>
  (deleted) =>
    progress(deleted, { [DEDUPE]: deleted });

/** Each step for served events is followed by one for hidden events, in case some are hidden meanwhile. */
async function deleteOf(
  { client, store, tagHash, now, rows }: PostgresStores,
  subject: MemberSubject,
  progress: Progress,
): Promise<number> {
  const author = authored(subject, tagHash);
  const hidden = subject.vanishes ? ('vanished' as const) : ('erased' as const);
  const hideAt = (places: readonly RowRef[]) =>
    store.hide({ hidden, purge: true, which: { by: 'places', places, limit: rows } });
  let deleted = await inBatches(
    (limit) => store.hide({ hidden, purge: true, forget: true, which: { by: 'author', author, limit } }),
    withDedupe(progress),
    rows,
  );
  deleted += await inBatches((limit) => purgeHiddenOf(client, author, now(), limit), progress, rows);
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
  { client, store, now, rows }: PostgresStores,
  { community }: CommunitySubject,
  progress: Progress,
): Promise<number> {
  const hidden = 'erased';
  const served = await inBatches(
    (limit) =>
      store.hide({ hidden, purge: true, forget: true, which: { by: 'community', community, limit } }),
    withDedupe(progress),
    rows,
  );
  return (
    served + (await inBatches((limit) => purgeHiddenIn(client, community, now(), limit), progress, rows))
  );
}
