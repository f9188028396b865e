/** Conditions of a rule or a batch, between the fields of a form and what the API takes. */
import { npubOf, pubkeyOf } from '../../../shared/keys.js';
import type { RuleConditions } from './types.js';

/** The fields: lists, and texts with one entry in a line. */
export interface ConditionFields {
  readonly words: readonly string[];
  readonly patterns: string;
  readonly kinds: readonly string[];
  readonly topics: readonly string[];
  readonly authors: readonly string[];
  /** `name`, or `name=value, value`, one in a line. */
  readonly tags: string;
  readonly rateCount: number | '';
  readonly rateSeconds: number | '';
}

export const NO_CONDITIONS: ConditionFields = {
  words: [],
  patterns: '',
  kinds: [],
  topics: [],
  authors: [],
  tags: '',
  rateCount: '',
  rateSeconds: '',
};

export type Problem = 'kinds' | 'authors' | 'rate' | 'none';

const lines = (text: string) => text.split('\n').filter((line) => line.trim() !== '');
const some = <T>(list: readonly T[]) => (list.length === 0 ? undefined : [...list]);

function tagOf(line: string): { name: string; values?: string[] } {
  const at = line.indexOf('=');
  if (at < 0) return { name: line.trim() };
  const values = line
    .slice(at + 1)
    .split(',')
    .map((value) => value.trim())
    .filter((value) => value !== '');
  const name = line.slice(0, at).trim();
  return values.length === 0 ? { name } : { name, values };
}

/** What the API takes, or the field that is wrong. */
export function conditionsOf(fields: ConditionFields): RuleConditions | Problem {
  const kinds = fields.kinds.map(Number);
  if (kinds.some((kind) => !Number.isInteger(kind) || kind < 0 || kind > 65_535)) return 'kinds';
  const authors = fields.authors.map(pubkeyOf);
  if (authors.includes(undefined)) return 'authors';
  const { rateCount: count, rateSeconds: seconds } = fields;
  if ((count === '') !== (seconds === '')) return 'rate';
  const all = {
    words: some(fields.words),
    patterns: some(lines(fields.patterns)),
    kinds: some(kinds),
    topics: some(fields.topics),
    authors: some(authors as string[]),
    tags: some(lines(fields.tags).map(tagOf)),
    rate: count === '' || seconds === '' ? undefined : { count, seconds },
  };
  const given = Object.entries(all).filter(([, value]) => value !== undefined);
  return given.length === 0 ? 'none' : (Object.fromEntries(given) as RuleConditions);
}

/** The fields of stored conditions. */
export function fieldsOf(conditions: Readonly<Record<string, unknown>>): ConditionFields {
  const { words, patterns, kinds, topics, authors, tags, rate } = conditions as RuleConditions;
  return {
    words: words ?? [],
    patterns: (patterns ?? []).join('\n'),
    kinds: (kinds ?? []).map(String),
    topics: topics ?? [],
    authors: (authors ?? []).map(npubOf),
    tags: (tags ?? [])
      .map(({ name, values }) => (values === undefined ? name : `${name}=${values.join(', ')}`))
      .join('\n'),
    rateCount: rate?.count ?? '',
    rateSeconds: rate?.seconds ?? '',
  };
}
