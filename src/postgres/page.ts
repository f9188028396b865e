/**
 * Reads lists in pages. The cursor of a page contains the key of its last row, so that no row is repeated or
 * skipped.
 */
import { z } from 'zod';
import { type Denial, denial } from '../api/rules-errors.js';
import { isStorable } from '../events/rules/text.js';
import type { Db } from './values.js';

export interface PageOf {
  readonly limit: number;
  readonly cursor?: string | undefined;
}

export interface Page<T> {
  readonly items: readonly T[];
  /** The cursor of the next page; undefined after the last. */
  readonly cursor: string | undefined;
}

/** The type of the keys of a list, and the key before its first row. */
export interface Order<K extends [unknown, ...unknown[]]> {
  readonly schema: z.ZodType<K>;
  readonly start: K;
}

const time = z.number().int().min(0).max(Number.MAX_SAFE_INTEGER);
const timeAndId = z.tuple([time, z.guid()]);

export const NEWEST_FIRST: Order<[number, string]> = {
  schema: timeAndId,
  start: [Number.MAX_SAFE_INTEGER, 'ffffffff-ffff-ffff-ffff-ffffffffffff'],
};
export const OLDEST_FIRST: Order<[number, string]> = {
  schema: timeAndId,
  start: [0, '00000000-0000-0000-0000-000000000000'],
};
export const BY_TOPIC: Order<[string]> = {
  schema: z.tuple([z.string().max(1_000).refine(isStorable)]),
  start: [''],
};
const key = z.string().regex(/^[0-9a-f]{64}$/);
export const BY_PUBKEY: Order<[string]> = {
  schema: z.tuple([key]),
  start: [''],
};
/** By a time and a public key. */
export const NEWEST_PUBKEY: Order<[number, string]> = {
  schema: z.tuple([time, key]),
  start: [Number.MAX_SAFE_INTEGER, 'f'.repeat(64)],
};
export const NEWEST_POSITION: Order<[number, number]> = {
  schema: z.tuple([time, time]),
  start: [Number.MAX_SAFE_INTEGER, Number.MAX_SAFE_INTEGER],
};

/**
 * Reads one page. `read` gets the key after which it begins and the number of rows: one more than the limit,
 * to know whether there is a next page.
 */
export async function readPage<T, K extends [unknown, ...unknown[]]>(
  { limit, cursor }: PageOf,
  order: Order<K>,
  keyOf: (item: T) => K,
  read: (after: K, rows: number) => Promise<readonly T[]>,
): Promise<Page<T> | Denial> {
  const after = cursor === undefined ? order.start : decodeCursor(cursor, order.schema);
  if (after === undefined) return notACursor();
  const rows = await read(after, limit + 1);
  const items = rows.slice(0, limit);
  const last = items.at(-1);
  const more = rows.length > limit && last !== undefined;
  return { items, cursor: more ? encodeCursor(keyOf(last)) : undefined };
}

export interface Bounded {
  readonly count: number;
  /** There are more than the count. */
  readonly more: boolean;
}

/** A count that stops reading at `max` rows. `from` is everything after FROM. */
export async function countUpTo(
  db: Db,
  from: string,
  values: readonly unknown[],
  max: number,
): Promise<Bounded> {
  const { rows } = await db.query<{ count: number }>(
    `SELECT count(*)::int AS count FROM (SELECT 1 FROM ${from} LIMIT ${max + 1}) found`,
    [...values],
  );
  const { count } = rows[0]!;
  return { count: Math.min(count, max), more: count > max };
}

export function notACursor(): Denial {
  return denial('INVALID_REQUEST', { problems: [{ path: 'cursor', message: 'not a cursor of this list' }] });
}

/** For lists that `readPage` cannot read. */
export function encodeCursor(key: readonly unknown[]): string {
  return Buffer.from(JSON.stringify(key)).toString('base64url');
}

export function decodeCursor<K>(cursor: string, schema: z.ZodType<K>): K | undefined {
  try {
    return schema.safeParse(JSON.parse(Buffer.from(cursor, 'base64url').toString())).data;
  } catch {
    return undefined;
  }
}
