/** Schemas that the routes of several domains share: pages of a list, keys, times and texts. */
import { z } from 'zod';
import { isStorable } from '../events/rules/text.js';
import { FOLLOWER_NAME, FOLLOWER_NAME_RULE } from '../outbox/rules-follower.js';
import type { Page } from '../postgres/page.js';
import { type Denial, isDenial } from './rules-errors.js';

const PAGE_ITEMS_MAX = 200;
const PAGE_ITEMS = 50;

/** The query of a list. A list with filters extends it. */
export const pageQuery = z.strictObject({
  limit: z.coerce
    .number()
    .int()
    .min(1)
    .max(PAGE_ITEMS_MAX)
    .default(PAGE_ITEMS)
    .describe('Most items of a page'),
  cursor: z.string().max(2_000).optional().describe('next_cursor of the previous page'),
});

export function pageOf<T extends z.ZodType>(item: T) {
  return z.strictObject({
    items: z.array(item),
    next_cursor: z.string().nullable().describe('The cursor of the next page; null after the last'),
  });
}

export function showPage<T, S>(
  page: Page<T> | Denial,
  show: (item: T) => S,
): { items: S[]; next_cursor: string | null } | Denial {
  return isDenial(page) ? page : { items: page.items.map(show), next_cursor: page.cursor ?? null };
}

export const pubkey = z
  .string()
  .regex(/^[0-9a-f]{64}$/, '64 lowercase hex characters')
  .describe('A public key, hex');
export const followerName = z
  .string()
  .regex(FOLLOWER_NAME, FOLLOWER_NAME_RULE)
  .describe('The name of a follower of the outbox');
export const flag = z.enum(['true', 'false']);
export const milliseconds = z.number().int().describe('Milliseconds since 1970');

/** A text that the database can store. */
export const plainText = (max: number) =>
  z.string().max(max).refine(isStorable, 'neither NUL nor lone surrogates');
