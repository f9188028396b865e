/**
 * Filters (NIP-01): parsing and the live matcher. Pure. Matching is exact: no prefixes, `since` and `until`
 * inclusive, an empty list matches nothing. The SQL twin is `events/postgres/read/query.ts`. A test checks
 * that these two and a naive third matcher agree.
 */

import type { Settings } from '../../communities/rules-settings.js';
import { matchSearch, parseSearch, type SearchQuery } from '../../search/rules.js';
import { wordsOf } from '../../search/rules-words.js';
import { findsBound, type MatchedEvent } from '../../topics/rules.js';
import { sees, type View } from './access.js';
import { isHex64, KIND_MAX } from './event.js';
import { isRefusal, type Refusal, refusal } from './reply.js';

export interface TagCondition {
  /** One letter, without the `#`. */
  readonly name: string;
  readonly values: ReadonlySet<string>;
}

export interface Filter {
  readonly ids?: ReadonlySet<string>;
  readonly authors?: ReadonlySet<string>;
  readonly kinds?: ReadonlySet<number>;
  readonly tags: readonly TagCondition[];
  readonly since?: number;
  readonly until?: number;
  readonly limit?: number;
  /** Words that an event must contain (NIP-50). */
  readonly search?: SearchQuery;
  /** Which of its matches this client may see. */
  readonly view?: View;
}

type Mutable<T> = { -readonly [K in keyof T]: T[K] };
type FilterLimits = Pick<Settings, 'limits.filterValuesMax'>;

export function parseFilter(input: unknown, limits: FilterLimits): Filter | Refusal {
  if (typeof input !== 'object' || input === null || Array.isArray(input)) {
    return refusal('invalid', 'a filter must be a JSON object');
  }
  const filter: Mutable<Filter> = { tags: [] };
  const tags: TagCondition[] = [];
  let valuesLeft = limits['limits.filterValuesMax'];
  for (const [key, value] of Object.entries(input)) {
    if (Array.isArray(value)) {
      valuesLeft -= value.length;
      if (valuesLeft < 0) {
        return refusal('invalid', `a filter may hold at most ${limits['limits.filterValuesMax']} values`);
      }
    }
    const problem = parseField(filter, tags, key, value);
    if (problem !== undefined) return problem;
  }
  filter.tags = tags;
  return filter;
}

function parseField(
  filter: Mutable<Filter>,
  tags: TagCondition[],
  key: string,
  value: unknown,
): Refusal | undefined {
  switch (key) {
    case 'ids':
    case 'authors':
      if (!Array.isArray(value) || !value.every(isHex64)) {
        return refusal('invalid', `${key} must be a list of 64 lowercase hex characters each`);
      }
      filter[key] = new Set(value);
      return undefined;
    case 'kinds':
      if (!Array.isArray(value) || !value.every((kind) => isInteger(kind, 0, KIND_MAX))) {
        return refusal('invalid', `kinds must be a list of integers between 0 and ${KIND_MAX}`);
      }
      filter.kinds = new Set(value);
      return undefined;
    case 'since':
    case 'until':
      if (!isInteger(value, Number.MIN_SAFE_INTEGER, Number.MAX_SAFE_INTEGER)) {
        return refusal('invalid', `${key} must be an integer number of seconds`);
      }
      filter[key] = value;
      return undefined;
    case 'limit':
      if (!isInteger(value, 0, Number.MAX_SAFE_INTEGER)) {
        return refusal('invalid', 'limit must be an integer, not negative');
      }
      filter.limit = value;
      return undefined;
    case 'search': {
      if (typeof value !== 'string') return refusal('invalid', 'search must be a string');
      const search = parseSearch(value);
      if (isRefusal(search)) return search;
      if (search !== undefined) filter.search = search;
      return undefined;
    }
    default: {
      if (!/^#[a-zA-Z]$/.test(key))
        return refusal('unsupported', `filter field ${JSON.stringify(key.slice(0, 40))}`);
      if (!Array.isArray(value) || !value.every((item) => typeof item === 'string')) {
        return refusal('invalid', `${key} must be a list of strings`);
      }
      tags.push({ name: key.slice(1), values: new Set(value) });
      return undefined;
    }
  }
}

function isInteger(value: unknown, min: number, max: number): value is number {
  return Number.isSafeInteger(value) && (value as number) >= min && (value as number) <= max;
}

/** Parses every filter of a REQ or COUNT; the first bad one refuses them all. */
export function parseFilters(
  inputs: readonly unknown[],
  limits: Pick<Settings, 'limits.filterValuesMax' | 'limits.filtersMax'>,
): Filter[] | Refusal {
  if (inputs.length === 0) return refusal('invalid', 'at least one filter is needed');
  if (inputs.length > limits['limits.filtersMax']) {
    return refusal('invalid', `at most ${limits['limits.filtersMax']} filters are allowed`);
  }
  const filters: Filter[] = [];
  for (const input of inputs) {
    const filter = parseFilter(input, limits);
    if (isRefusal(filter)) return filter;
    filters.push(filter);
  }
  return filters;
}

/** Looking for one word costs about as much as comparing this many values. */
const VALUES_OF_TERM = 10;

/** The number of values in the filters, over all fields. */
export function valuesIn(filters: readonly Filter[]): number {
  return filters.reduce((sum, { ids, authors, kinds, tags, search }) => {
    const inTags = tags.reduce((total, tag) => total + tag.values.size, 0);
    return (
      sum +
      (ids?.size ?? 0) +
      (authors?.size ?? 0) +
      (kinds?.size ?? 0) +
      VALUES_OF_TERM * (search?.terms.length ?? 0) +
      inTags
    );
  }, 0);
}

/** True when no event at all can match, so that no query is needed. */
export function matchesNothing(filter: Filter): boolean {
  return (
    filter.ids?.size === 0 ||
    filter.authors?.size === 0 ||
    filter.kinds?.size === 0 ||
    filter.search?.terms.length === 0 ||
    filter.tags.some((tag) => tag.values.size === 0) ||
    (filter.since !== undefined && filter.until !== undefined && filter.since > filter.until)
  );
}

export function matchFilter(filter: Filter, event: MatchedEvent): boolean {
  if (filter.since !== undefined && event.created_at < filter.since) return false;
  if (filter.until !== undefined && event.created_at > filter.until) return false;
  if (filter.kinds !== undefined && !filter.kinds.has(event.kind)) return false;
  if (filter.authors !== undefined && !filter.authors.has(event.pubkey)) return false;
  if (filter.ids !== undefined && !filter.ids.has(event.id)) return false;
  for (const condition of filter.tags)
    if (!matchTag(condition, event) && !matchBound(filter, condition, event)) return false;
  if (filter.view !== undefined && !sees(filter.view, event)) return false;
  return filter.search === undefined || matchSearch(filter.search, wordsOf(event));
}

function matchBound(filter: Filter, { name, values }: TagCondition, { kind, bound }: MatchedEvent): boolean {
  if (bound === undefined || name !== 't' || !findsBound(filter, kind)) return false;
  return bound.some((topic) => values.has(topic));
}

function matchTag({ name, values }: TagCondition, { tags, past }: MatchedEvent): boolean {
  for (const tag of tags) {
    if (tag[0] !== name || tag[1] === undefined || !values.has(tag[1])) continue;
    if (past === undefined || name !== 't' || !past.includes(tag[1])) return true;
  }
  return false;
}
