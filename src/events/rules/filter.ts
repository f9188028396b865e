/**
 * Filters (NIP-01): parsing and the live matcher. Pure. Matching is exact: no prefixes, `since` and `until`
 * inclusive, an empty list matches nothing. The SQL twin is `events/postgres/read/query.ts`. A test checks
 * that these two and a naive third matcher agree.
 */

import type { Settings } from '../../communities/rules-settings.js';
import { matchSearch, parseSearch, SEARCH_LENGTH_MAX, type SearchQuery } from '../../search/rules.js';
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

/** Reading a search takes longer than reading any other field. */
export const SEARCHES_MAX = 8;

/** Parses every filter of a REQ or COUNT; the first bad one refuses them all. */
export function parseFilters(
  inputs: readonly unknown[],
  limits: Pick<Settings, 'limits.filterValuesMax' | 'limits.filtersMax'>,
): Filter[] | Refusal {
  if (inputs.length === 0) return refusal('invalid', 'at least one filter is needed');
  if (inputs.length > limits['limits.filtersMax']) {
    return refusal('invalid', `at most ${limits['limits.filtersMax']} filters are allowed`);
  }
  if (inputs.filter((input) => searchIn(input) !== '').length > SEARCHES_MAX)
    return refusal('invalid', `at most ${SEARCHES_MAX} filters with a search are allowed`);
  const filters: Filter[] = [];
  for (const input of inputs) {
    const filter = parseFilter(input, limits);
    if (isRefusal(filter)) return filter;
    filters.push(filter);
  }
  return filters;
}

/** The text of a search in a filter that is not parsed yet. */
function searchIn(input: unknown): string {
  const search = (input as { readonly search?: unknown } | null)?.search;
  return typeof search === 'string' ? search : '';
}

/** The characters that are read as words. Longer searches are refused unread. */
export function searchCharactersIn(inputs: readonly unknown[]): number {
  return inputs.reduce<number>((sum, input) => {
    const { length } = searchIn(input);
    return length > SEARCH_LENGTH_MAX ? sum : sum + length;
  }, 0);
}

/** Looking for one lexeme costs about as much as comparing this many values. */
const VALUES_OF_LEXEME = 10;
/** A long value takes the memory of several: about 330 bytes each (relay/open-values.ts). */
const CHARACTERS_OF_VALUE = 256;

/** What the filters hold, over all fields, as a number of values. */
export function valuesIn(filters: readonly Filter[]): number {
  let sum = 0;
  for (const { ids, authors, kinds, tags, search } of filters) {
    sum += (ids?.size ?? 0) + (authors?.size ?? 0) + (kinds?.size ?? 0);
    for (const { values } of tags)
      for (const { length } of values) sum += 1 + Math.floor(length / CHARACTERS_OF_VALUE);
    for (const { anyOf } of search?.terms ?? [])
      for (const { lexemes } of anyOf) sum += VALUES_OF_LEXEME * lexemes.length;
  }
  return sum;
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

function matchTag({ name, values }: TagCondition, event: MatchedEvent): boolean {
  const { tags, past } = event;
  const isPast = (value: string) => past !== undefined && name === 't' && past.includes(value);
  const held = tags.length > FEW_TAGS ? indexed.get(event) : undefined;
  if (held === undefined) {
    for (const tag of tags) {
      const [of, value] = tag;
      if (of === name && value !== undefined && values.has(value) && !isPast(value)) return true;
    }
    return false;
  }
  const own = held.get(name);
  if (own === undefined) return false;
  const [fewer, more] = own.size < values.size ? [own, values] : [values, own];
  for (const value of fewer) if (more.has(value) && !isPast(value)) return true;
  return false;
}

/** Of so many tags each is looked at for each condition. */
const FEW_TAGS = 32;
export type TagValues = ReadonlyMap<string, ReadonlySet<string>>;
const indexed = new WeakMap<MatchedEvent, TagValues>();

/**
 * The values of each tag of one letter, for an event with many tags that is compared with many filters: the
 * work is the tags plus the filters, and not one times the other. Undefined if it has few.
 */
export function indexTags(event: MatchedEvent): TagValues | undefined {
  if (event.tags.length <= FEW_TAGS) return undefined;
  const held = new Map<string, Set<string>>();
  for (const [name, value] of event.tags) {
    if (name?.length !== 1 || value === undefined) continue;
    const values = held.get(name);
    if (values === undefined) held.set(name, new Set([value]));
    else values.add(value);
  }
  indexed.set(event, held);
  return held;
}
