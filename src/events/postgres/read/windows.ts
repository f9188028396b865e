/**
 * Time windows for filters with many authors or many tag values. Such a filter scans an index once for each
 * value, and one scan may read up to the limit although others have newer events. So the newest days are read
 * first, and older ones only while the answer is not full. The answer is always that of one statement. Every
 * window costs one lookup for each value.
 */
import { classify } from '../../rules/classify.js';
import type { Filter } from '../../rules/filter.js';

/** Fewer scans read little enough without windows. */
const SCANS_MAX = 50;
const HOUR = 3_600;
const DAY = 24 * HOUR;
/** Each about seven times the one before it. */
const REACH_SECONDS: readonly number[] = [HOUR, 7 * HOUR, 2 * DAY, 14 * DAY, 100 * DAY];

/** The filter with ever earlier values of `since`, and at last unchanged. */
export function windowsOf(filter: Filter, nowSeconds: number): Filter[] {
  if (!needsWindows(filter)) return [filter];
  const end = Math.min(filter.until ?? nowSeconds, nowSeconds);
  const begins = REACH_SECONDS.map((reach) => end - reach).filter(
    (since) => since > (filter.since ?? Number.NEGATIVE_INFINITY),
  );
  return [...begins.map((since) => ({ ...filter, since })), filter];
}

function needsWindows({ ids, authors, kinds, tags }: Filter): boolean {
  if (ids !== undefined) return false;
  // Each author has one event of a replaceable kind.
  if (kinds !== undefined && [...kinds].every((kind) => classify(kind) === 'replaceable')) return false;
  const sizes = [authors?.size ?? 0, ...tags.map(({ values }) => values.size)];
  return Math.max(...sizes) > SCANS_MAX;
}
