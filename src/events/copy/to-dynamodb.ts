/**
 * Copies events from PostgreSQL to DynamoDB while a node serves them from PostgreSQL. Each page is compared
 * with what is there, and what differs is written, so that a page can be repeated at any time. The place is
 * kept in the database after each page: a run that was killed continues there. After the node was stopped,
 * `finish` brings over what changed meanwhile. Then the same reading verifies both stores by counts and
 * hashes.
 */
import type { Pool } from 'pg';
import type { Settings } from '../../communities/rules-settings.js';
import { readState, writeState } from '../../node/state.sql.js';
import { type Dynamodb, type Item, keyText } from '../dynamodb/client.js';
import { eventKey, type Table } from '../dynamodb/keys.js';
import { factKey } from '../rules/facts.js';
import {
  type Copied,
  copiesOfMark,
  copyOfEvent,
  copyOfGone,
  copyOfHead,
  copyOfTombstone,
  hashOfItem,
} from './items.js';
import {
  type Place,
  readDeletedSince,
  readEvents,
  readEventsOf,
  readGone,
  readHeads,
  readLog,
  readMarks,
  readTombstones,
} from './source.sql.js';

const PAGE_ROWS = 200;
const STATE_KEY = 'events_copy';

/** In this order: what refuses and hides is there before the events. */
export const SECTIONS = ['tombstones', 'marks', 'heads', 'events', 'gone'] as const;
export type Section = (typeof SECTIONS)[number];

/** Everything before the section, and the section up to its place, is copied. */
interface Checkpoint {
  readonly section: Section | 'done';
  readonly place: Place;
  /** The last offset of the log when the events were begun. */
  readonly pin: number;
}

export interface CopyOptions {
  readonly pool: Pool;
  readonly db: Dynamodb;
  readonly settingsOf: (community: number) => Settings;
  readonly signal: AbortSignal;
  readonly onPage: (section: Section, page: { readonly read: number; readonly written: number }) => void;
}

/** An event that cannot be an item of DynamoDB. */
export class TooLarge extends Error {}

export type CopyState = 'none' | 'unfinished' | 'done';

export async function copyState(pool: Pool): Promise<CopyState> {
  const checkpoint = await readCheckpoint(pool);
  if (checkpoint === undefined) return 'none';
  return checkpoint.section === 'done' ? 'done' : 'unfinished';
}

/** Continues where the last run stopped. False when it was interrupted. */
export async function copyAll(options: CopyOptions): Promise<boolean> {
  const { pool, signal } = options;
  let { section, place, pin } = (await readCheckpoint(pool)) ?? START;
  while (section !== 'done') {
    if (signal.aborted) return false;
    if (section === 'events' && place.length === 0) pin = (await readLog(pool)).head;
    const { copies, next } = await readSection(options, section, place);
    const written = await writeDiffering(options.db, copies);
    options.onPage(section, { read: copies.length, written });
    if (next === undefined) section = SECTIONS[SECTIONS.indexOf(section) + 1] ?? 'done';
    place = next ?? [];
    await writeState(pool, STATE_KEY, JSON.stringify({ section, place, pin }));
  }
  return true;
}
const START: Checkpoint = { section: 'tombstones', place: [], pin: 0 };

async function readCheckpoint(pool: Pool): Promise<Checkpoint | undefined> {
  const text = await readState(pool, STATE_KEY);
  return text === undefined || text === '' ? undefined : (JSON.parse(text) as Checkpoint);
}

export async function forgetCopy(pool: Pool): Promise<void> {
  await writeState(pool, STATE_KEY, '');
}

async function readSection(
  { pool, settingsOf }: Pick<CopyOptions, 'pool' | 'settingsOf'>,
  section: Section,
  place: Place,
): Promise<{ readonly copies: readonly Copied[]; readonly next: Place | undefined }> {
  switch (section) {
    case 'tombstones': {
      const { rows, next } = await readTombstones(pool, place, PAGE_ROWS);
      return { copies: rows.map(copyOfTombstone), next };
    }
    case 'marks': {
      const { rows, next } = await readMarks(pool, place, PAGE_ROWS);
      return { copies: rows.flatMap(copiesOfMark), next };
    }
    case 'heads': {
      const { rows, next } = await readHeads(pool, place, PAGE_ROWS);
      return { copies: rows.map(copyOfHead), next };
    }
    case 'events': {
      const { rows, next } = await readEvents(pool, place, PAGE_ROWS);
      return { copies: rows.map((row) => copyOrFail(row, settingsOf)), next };
    }
    case 'gone': {
      const { rows, next } = await readGone(pool, place, PAGE_ROWS);
      return { copies: rows.map((row) => copyOfGone(row, settingsOf(row.community))), next };
    }
  }
}

type EventRow = Parameters<typeof copyOfEvent>[0];

function copyOrFail(row: EventRow, settingsOf: CopyOptions['settingsOf']): Copied {
  const copied = copyOfEvent(row, settingsOf(row.community));
  if (copied !== undefined) return copied;
  const { id } = JSON.parse(row.payload) as { id: string };
  throw new TooLarge(
    `the event ${id} does not fit into an item of DynamoDB; delete it, or have its author do so`,
  );
}

/** Writes what is not there yet, or differs: the entries first, then the items. Returns their number. */
async function writeDiffering(db: Dynamodb, copies: readonly Copied[]): Promise<number> {
  const there = await db.read(copies.map(({ table, item }) => ({ table, key: keyOf(table, item) })));
  const differing = copies.filter(({ table, item }) => {
    const found = there.get(keyText(table, item));
    return found === undefined || hashOfItem(found) !== hashOfItem(item);
  });
  await db.write(differing.flatMap(({ entries }) => entries));
  const copied_at = Date.now();
  await db.write(
    differing.map(({ table, item }) => ({ table, put: table === 'events' ? { ...item, copied_at } : item })),
  );
  return differing.length;
}

const keyOf = (table: Table, item: Item): Item =>
  table === 'events' ? { id: item.id } : { pk: item.pk, sk: item.sk };

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
    const page: Awaited<ReturnType<typeof readDeletedSince>> = await readDeletedSince(pool, after, PAGE_ROWS);
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

// ── Verification ───────────────────────────────────────────────────────────────────────────────────────────

export interface Verified {
  readonly section: Section | 'hidden';
  readonly source: number;
  readonly target: number;
  /** Items that are missing in the target, or differ. */
  readonly differing: number;
}

/** Reads everything in both stores: each row of the source by its key, and the number of items there. */
export async function verifyCopy(options: CopyOptions): Promise<Verified[]> {
  const { db, onPage } = options;
  const sums = new Map<Verified['section'], { source: number; differing: number }>();
  const add = (section: Verified['section'], isDiffering: boolean): void => {
    const sum = sums.get(section) ?? { source: 0, differing: 0 };
    sum.source += 1;
    sum.differing += Number(isDiffering);
    sums.set(section, sum);
  };
  for (const section of SECTIONS) {
    let place: Place | undefined = [];
    while (place !== undefined) {
      const page: Awaited<ReturnType<typeof readSection>> = await readSection(options, section, place);
      const { copies } = page;
      const there = await db.read(copies.map(({ table, item }) => ({ table, key: keyOf(table, item) })));
      for (const { table, item } of copies) {
        const found = there.get(keyText(table, item));
        const isDiffering = found === undefined || hashOfItem(found) !== hashOfItem(item);
        add(sectionOf(table, item), isDiffering);
      }
      onPage(section, { read: copies.length, written: 0 });
      place = page.next;
    }
  }
  const counts = await countItems(db);
  return [...SECTIONS, 'hidden' as const].map((section) => ({
    section,
    ...(sums.get(section) ?? { source: 0, differing: 0 }),
    target: counts.get(section) ?? 0,
  }));
}

/** Hidden events are counted on their own. */
function sectionOf(table: Table, item: Item): Verified['section'] {
  if (table === 'events') {
    if (item.payload === undefined) return 'gone';
    return item.hidden_as === undefined ? 'events' : 'hidden';
  }
  const kind = String(item.pk).split('/')[1]!;
  return kind === 'head' ? 'heads' : kind === 'tombstone' ? 'tombstones' : 'marks';
}

const COUNTED_STATE = new Set(['head', 'tombstone', 'mark', 'marks']);

async function countItems(db: Dynamodb): Promise<Map<Verified['section'], number>> {
  const counts = new Map<Verified['section'], number>();
  for (const table of ['events', 'state'] as const) {
    let from: Item | undefined;
    do {
      const page: Awaited<ReturnType<Dynamodb['scan']>> = await db.scan(table, from);
      for (const item of page.items) {
        if (table === 'state' && !COUNTED_STATE.has(String(item.pk).split('/')[1]!)) continue;
        const section = sectionOf(table, item);
        counts.set(section, (counts.get(section) ?? 0) + 1);
      }
      from = page.next;
    } while (from !== undefined);
  }
  return counts;
}
