/**
 * Both stores side by side: each row of PostgreSQL as the item that DynamoDB has for it. Whichever way a copy
 * goes, this comparison verifies it, by the hash of each item and by counts.
 */
import type { Client, Pool } from 'pg';
import type { Settings } from '../../communities/rules-settings.js';
import { type Dynamodb, type Item, keyText } from '../dynamodb/client.js';
import type { Table } from '../dynamodb/keys.js';
import type { TagHash } from '../postgres/tag-hash.js';
import {
  type Copied,
  copiesOfMark,
  copyOfEvent,
  copyOfGone,
  copyOfHead,
  copyOfTombstone,
  hashOfItem,
  isErasing,
} from './items.js';
import { type Place, readEvents, readGone, readHeads, readMarks, readTombstones } from './source.sql.js';

export const PAGE_ROWS = 200;

/** In this order: what refuses and hides is there before the events. */
export const SECTIONS = ['tombstones', 'marks', 'heads', 'events', 'gone'] as const;
export type Section = (typeof SECTIONS)[number];

export interface CopyOptions {
  readonly pool: Pool;
  readonly db: Dynamodb;
  readonly settingsOf: (community: number) => Settings;
  /** A session of its own, for partitions. */
  readonly client: Client;
  readonly tagHash: TagHash;
  readonly signal: AbortSignal;
  readonly onPage: (section: string, page: { readonly read: number; readonly written: number }) => void;
}

/** An event that cannot be an item of DynamoDB. */
export class TooLarge extends Error {}

export async function readSection(
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

export function copyOrFail(row: EventRow, settingsOf: CopyOptions['settingsOf']): Copied {
  const copied = copyOfEvent(row, settingsOf(row.community));
  if (copied !== undefined) return copied;
  const { id } = JSON.parse(row.payload) as { id: string };
  throw new TooLarge(
    `the event ${id} does not fit into an item of DynamoDB; delete it, or have its author do so`,
  );
}

const keyOf = (table: Table, item: Item): Item =>
  table === 'events' ? { id: item.id } : { pk: item.pk, sk: item.sk };

/** The items of these rows in DynamoDB, by `keyText`. */
export function readItems(db: Dynamodb, copies: readonly Copied[]): Promise<Map<string, Item>> {
  return db.read(copies.map(({ table, item }) => ({ table, key: keyOf(table, item) })));
}

export function isSame(found: Item | undefined, item: Item): boolean {
  return found !== undefined && hashOfItem(found) === hashOfItem(item);
}

// ── Verification ───────────────────────────────────────────────────────────────────────────────────────────

export interface Verified {
  readonly section: Section | 'hidden';
  readonly postgres: number;
  readonly dynamodb: number;
  /** Rows whose item is missing or differs. */
  readonly differing: number;
}

/** Reads everything in both stores: each row of PostgreSQL with its item, and the number of items. */
export async function verifyCopy(options: CopyOptions): Promise<Verified[]> {
  const { db, onPage } = options;
  const sums = new Map<Verified['section'], { postgres: number; differing: number }>();
  const add = (section: Verified['section'], isDiffering: boolean): void => {
    const sum = sums.get(section) ?? { postgres: 0, differing: 0 };
    sum.postgres += 1;
    sum.differing += Number(isDiffering);
    sums.set(section, sum);
  };
  for (const section of SECTIONS) {
    let place: Place | undefined = [];
    while (place !== undefined) {
      const page: Awaited<ReturnType<typeof readSection>> = await readSection(options, section, place);
      const { copies } = page;
      const there = await readItems(db, copies);
      for (const { table, item } of copies)
        add(sectionOf(table, item), !isSame(there.get(keyText(table, item)), item));
      onPage(section, { read: copies.length, written: 0 });
      place = page.next;
    }
  }
  const counts = await countItems(db);
  return [...SECTIONS, 'hidden' as const].map((section) => ({
    section,
    ...(sums.get(section) ?? { postgres: 0, differing: 0 }),
    dynamodb: counts.get(section) ?? 0,
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
        if (table === 'state' ? !COUNTED_STATE.has(String(item.pk).split('/')[1]!) : isErasing(item))
          continue;
        const section = sectionOf(table, item);
        counts.set(section, (counts.get(section) ?? 0) + 1);
      }
      from = page.next;
    } while (from !== undefined);
  }
  return counts;
}
