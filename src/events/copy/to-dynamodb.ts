/**
 * Copies events from PostgreSQL to DynamoDB while a node serves them from PostgreSQL. Each page is compared
 * with what is there, and what differs is written, so that a page can be repeated at any time. The place is
 * kept in the database after each page: a run that was killed continues there. After the node was stopped,
 * `finishCopy` brings over what changed meanwhile.
 */
import { type Dynamodb, type Item, keyText } from '../dynamodb/client.js';
import { eventKey } from '../dynamodb/keys.js';
import { factKey } from '../rules/facts.js';
import { type Checkpoint, readCheckpoint, writeCheckpoint } from './checkpoint.js';
import {
  type CopyOptions,
  copyOrFail,
  isSame,
  PAGE_ROWS,
  readItems,
  readSection,
  SECTIONS,
  type Section,
} from './compare.js';
import type { Copied } from './items.js';
import { type Place, readChangedSince, readEventsOf, readLog } from './source.sql.js';

/** Continues where the last run stopped. False when it was interrupted. */
export async function copyAll(options: CopyOptions): Promise<boolean> {
  const { pool, signal } = options;
  let { section, place, pin } = (await readCheckpoint<Section>(pool)) ?? START;
  while (section !== 'done') {
    if (signal.aborted) return false;
    if (section === 'events' && place.length === 0) pin = (await readLog(pool)).head;
    const { copies, next } = await readSection(options, section, place);
    const written = await writeDiffering(options.db, copies);
    options.onPage(section, { read: copies.length, written });
    if (next === undefined) section = SECTIONS[SECTIONS.indexOf(section) + 1] ?? 'done';
    place = next ?? [];
    await writeCheckpoint(pool, { section, place, pin });
  }
  return true;
}
const START: Checkpoint<Section> = { section: 'tombstones', place: [], pin: 0 };

/** Writes what is not there yet, or differs: the entries first, then the items. Returns their number. */
async function writeDiffering(db: Dynamodb, copies: readonly Copied[]): Promise<number> {
  const there = await readItems(db, copies);
  const differing = copies.filter(({ table, item }) => !isSame(there.get(keyText(table, item)), item));
  await db.write(differing.flatMap(({ entries }) => entries));
  const copied_at = Date.now();
  await db.write(
    differing.map(({ table, item }) => ({ table, put: table === 'events' ? { ...item, copied_at } : item })),
  );
  return differing.length;
}

// ── After the node was stopped ─────────────────────────────────────────────────────────────────────────────

/**
 * What changed since the events were begun: events that were stored, hidden or deleted, and everything about
 * heads, tombstones, marks and purged ids. False when the log no longer reaches back: then only a whole
 * comparison finds what was deleted.
 */
export async function finishCopy(options: CopyOptions): Promise<boolean> {
  const { pool, db, settingsOf, onPage } = options;
  const { pin = 0 } = (await readCheckpoint(pool)) ?? {};
  const { floor } = await readLog(pool);
  if (floor > pin + 1) return false;
  for (const section of SECTIONS) {
    let place: Place | undefined = section === 'events' ? [`${pin}`] : [];
    while (place !== undefined) {
      const page: Awaited<ReturnType<typeof readSection>> = await readSection(options, section, place);
      onPage(section, { read: page.copies.length, written: await writeDiffering(db, page.copies) });
      place = page.next;
    }
  }
  for (let after: number | undefined = pin; after !== undefined; ) {
    const page: Awaited<ReturnType<typeof readChangedSince>> = await readChangedSince(
      pool,
      'delete',
      after,
      PAGE_ROWS,
    );
    const rows = await readEventsOf(pool, page.refs);
    const copies = rows.map((row) => copyOrFail(row, settingsOf));
    const kept = new Set(
      copies.map(({ item }) => factKey(item.community as number, item.event_id as string)),
    );
    let written = await writeDiffering(db, copies);
    const lost = page.refs.filter(({ community, id }) => !kept.has(factKey(community, id)));
    written += await removeServed(db, lost);
    onPage('events', { read: page.refs.length, written });
    after = page.next;
  }
  return true;
}

/** Items that are still served there. Their ids were purged, and are copied as such, or are forgotten. */
async function removeServed(
  db: Dynamodb,
  refs: readonly { readonly community: number; readonly id: string }[],
): Promise<number> {
  const found = await db.read(
    refs.map(({ community, id }) => ({ table: 'events', key: eventKey(community, id) })),
  );
  const stale = [...found.values()].filter(({ payload }) => payload !== undefined);
  const copied_at = Date.now();
  // In two steps: the first is not announced, because it is a copy, and the second removes nothing served.
  await db.write(
    stale.map(({ payload: _, pk_kind: __, pk_kind_d: ___, ...item }) => ({
      table: 'events',
      put: { ...item, hidden_as: 'deleted', copied_at },
    })),
  );
  await db.write(stale.map(({ id }) => ({ table: 'events', remove: { id } })));
  return stale.length;
}

/** Events there that PostgreSQL no longer has. Returns their number. */
export async function removeOrphans({ pool, db, onPage }: CopyOptions): Promise<number> {
  let removed = 0;
  let from: Item | undefined;
  do {
    const page: Awaited<ReturnType<Dynamodb['scan']>> = await db.scan('events', from);
    const refs = page.items
      .filter(({ payload }) => payload !== undefined)
      .map(({ community, event_id }) => ({ community: community as number, id: event_id as string }));
    const kept = new Set(
      (await readEventsOf(pool, refs)).map(({ community, payload }) =>
        factKey(community, (JSON.parse(payload) as { id: string }).id),
      ),
    );
    const lost = refs.filter(({ community, id }) => !kept.has(factKey(community, id)));
    const written = await removeServed(db, lost);
    removed += written;
    onPage('events', { read: refs.length, written });
    from = page.next;
  } while (from !== undefined);
  return removed;
}
