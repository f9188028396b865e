/**
 * A filter that names many authors, or many values of a tag, walks an index once for each; one walk may go down to the limit
 * before it is known that others have newer events. So the newest days are asked first, and more of the past only while they do
 * not fill the answer. The answer is always that of one statement. Every step costs a look for each value.
 */
import { classify } from '../core/classify.js';
import type { Filter } from '../core/filter.js';

/** Fewer walks read little enough as they are. */
const WALKS_MAX = 50;
const HOUR = 3_600;
const DAY = 24 * HOUR;
/** Each about seven times the one before it. */
const REACH_SECONDS: readonly number[] = [HOUR, 7 * HOUR, 2 * DAY, 14 * DAY, 100 * DAY];

/** The filter with a later beginning, again and again, and in the end as it is. */
export function windowsOf(filter: Filter, nowSeconds: number): Filter[] {
  if (!walksFar(filter)) return [filter];
  const end = Math.min(filter.until ?? nowSeconds, nowSeconds);
  const begins = REACH_SECONDS.map((reach) => end - reach).filter(
    (since) => since > (filter.since ?? Number.NEGATIVE_INFINITY),
  );
  return [...begins.map((since) => ({ ...filter, since })), filter];
}

function walksFar({ ids, authors, kinds, tags }: Filter): boolean {
  if (ids !== undefined) return false;
  // Of a replaceable kind each author has one event.
  if (kinds !== undefined && [...kinds].every((kind) => classify(kind) === 'replaceable')) return false;
  const sizes = [authors?.size ?? 0, ...tags.map(({ values }) => values.size)];
  return Math.max(...sizes) > WALKS_MAX;
}
