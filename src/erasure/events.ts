/** Events with their tags: what is served goes through the lane and is announced, what is hidden is purged as it lies. */
import type { Client } from 'pg';
import type { CommunitySubject, MemberSubject } from '../core/erasure.js';
import type { RowRef } from '../core/plan.js';
import {
  type Authored,
  type Cursor,
  countEventsIn,
  countEventsOf,
  findNodesWords,
  type Page,
  pageOfHiddenWraps,
  pageOfWraps,
  purgeHiddenAt,
  purgeHiddenIn,
  purgeHiddenOf,
  purgeNodesHiddenWords,
  selectServedAt,
  selectServedIn,
  selectServedOf,
} from '../store/erasure-events.js';
import type { SweptRow } from '../store/sweeps.js';
import type { TagHash } from '../store/tag-hash.js';
import { type Deleter, inBatches, type Progress } from './deleter.js';
import type { PostgresStores } from './postgres.js';

export function eventsDeleter(stores: PostgresStores): Deleter {
  const { client, tagHash } = stores;
  return {
    name: 'postgres:events',
    holds: ['events', 'event_tags'],
    count: (subject) =>
      subject.type === 'member'
        ? countEventsOf(client, authored(subject, tagHash))
        : countEventsIn(client, subject.community),
    delete: (subject, progress) =>
      subject.type === 'member' ? deleteOf(stores, subject, progress) : deleteIn(stores, subject, progress),
  };
}

function authored({ community, pubkey, until, vanishes = false }: MemberSubject, tagHash: TagHash): Authored {
  return {
    community,
    pubkey,
    until: until ?? Number.MAX_SAFE_INTEGER,
    recipient: String(tagHash(community, 'p', pubkey)),
    sparesRequest: vanishes,
  };
}

/** What is hidden while this runs falls from a served step into the hidden one behind it. */
async function deleteOf(
  { client, lane, tagHash, now, rows }: PostgresStores,
  subject: MemberSubject,
  progress: Progress,
): Promise<number> {
  const author = authored(subject, tagHash);
  const hidden = subject.vanishes ? ('vanished' as const) : ('erased' as const);
  const hide = (select: (session: Client) => Promise<SweptRow[]>) =>
    lane.hide({ hidden, purge: true, select });
  let deleted = 0;
  deleted += await inBatches(() => hide((session) => selectServedOf(session, author, rows)), progress);
  deleted += await inBatches(() => purgeHiddenOf(client, author, now(), rows), progress);
  if (!subject.vanishes) {
    deleted += await inBatches(async () => {
      const places = await findNodesWords(client, author, rows);
      return places.length === 0 ? 0 : hide((session) => selectServedAt(session, places, rows));
    }, progress);
    deleted += await inBatches(() => purgeNodesHiddenWords(client, author, now(), rows), progress);
  }
  const hideWraps = (found: readonly RowRef[]) => hide((session) => selectServedAt(session, found, rows));
  const first: Cursor = { createdAt: author.until, seq: 0 };
  deleted += await throughPages((after) => pageOfWraps(client, author, after), first, hideWraps, progress);
  deleted += await throughPages(
    (after) => pageOfHiddenWraps(client, author, after),
    first,
    (found) => purgeHiddenAt(client, found, now()),
    progress,
  );
  return deleted;
}

/** A page is passed once nothing of it is found any more: rows that one batch could not hold are found again. */
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
  { client, lane, now, rows }: PostgresStores,
  { community }: CommunitySubject,
  progress: Progress,
): Promise<number> {
  const select = (session: Client) => selectServedIn(session, community, rows);
  const served = await inBatches(() => lane.hide({ hidden: 'erased', purge: true, select }), progress);
  return served + (await inBatches(() => purgeHiddenIn(client, community, now(), rows), progress));
}
