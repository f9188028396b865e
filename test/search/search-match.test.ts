/**
 * Three matchers of a search, the database's `words @@ query`, the live matcher and a naive one written here,
 * agree on random texts and queries, including Japanese. The database accepts every text and every query.
 */
import fc from 'fast-check';
import { afterAll, beforeAll, expect, it } from 'vitest';
import type { NostrEvent } from '../../src/events/rules/event.js';
import { isRefusal } from '../../src/events/rules/reply.js';
import {
  matchSearch,
  parseSearch,
  type SearchQuery,
  toRankQuery,
  toTsquery,
} from '../../src/search/rules.js';
import { toTsvector, wordsOf } from '../../src/search/rules-words.js';
import { openTestStore, type TestStore } from '../support/stores/store.js';

let store: TestStore;
beforeAll(async () => {
  store = await openTestStore();
});
afterAll(() => store.close());

const post = (content: string, tags: string[][] = []): NostrEvent => ({
  id: '0'.repeat(64),
  pubkey: '0'.repeat(64),
  created_at: 0,
  kind: 1,
  tags,
  content,
  sig: '',
});

// ── Texts and queries in small alphabets, so that they match ───────────────────────────────────────────────

const LATIN = ['sea', 'boat', 'wind', 'x1'];
const latin = fc.constantFrom(...LATIN);
const run = fc.string({ unit: fc.constantFrom(...'東京都港のタワ'), minLength: 1, maxLength: 4 });
const hashtag = latin.map((word) => `#${word}`);
const piece = fc.oneof(
  { weight: 4, arbitrary: latin },
  { weight: 6, arbitrary: run },
  { weight: 1, arbitrary: hashtag },
);
const pieces = fc.array(piece, { minLength: 1, maxLength: 6 });

interface Part {
  readonly kind: 'word' | 'phrase' | 'run' | 'hashtag';
  readonly pieces: string[];
  readonly excluded: boolean;
}
const part: fc.Arbitrary<Part> = fc
  .oneof(
    latin.map((word) => ({ kind: 'word' as const, pieces: [word] })),
    run.map((text) => ({ kind: 'run' as const, pieces: [text] })),
    hashtag.map((tag) => ({ kind: 'hashtag' as const, pieces: [tag] })),
    fc
      .array(fc.oneof(latin, run), { minLength: 2, maxLength: 3 })
      .map((inRow) => ({ kind: 'phrase' as const, pieces: inRow })),
  )
  .chain((one) => fc.integer({ min: 0, max: 3 }).map((roll) => ({ ...one, excluded: roll === 0 })));

const textOf = ({ kind, pieces, excluded }: Part) =>
  `${excluded ? '-' : ''}${kind === 'phrase' ? `"${pieces.join(' ')}"` : pieces.join(' ')}`;

// ── The naive matcher ──────────────────────────────────────────────────────────────────────────────────────

const segmenter = new Intl.Segmenter('ja', { granularity: 'word' });
const isLatin = (text: string) => /^#?[a-z]/.test(text);
const cut = (text: string) =>
  isLatin(text) ? [text.replace('#', '')] : [...segmenter.segment(text)].map(({ segment }) => segment);
const hasInRow = (all: readonly string[], wanted: readonly string[]) =>
  all.some((_, at) => wanted.every((word, offset) => all[at + offset] === word));

function holds(text: readonly string[], { kind, pieces: wanted, excluded }: Part): boolean {
  const words = text.flatMap(cut);
  const [first] = wanted as [string];
  if (kind === 'word') return words.includes(first);
  if (kind === 'hashtag') return text.includes(first);
  if (kind === 'phrase') return hasInRow(words, wanted.flatMap(cut));
  const isInside = text.some((one) => !isLatin(one) && one.includes(first));
  if (isInside || hasInRow(words, cut(first))) return true;
  // Words joined by particles may be apart in the text.
  const joined = first.split(/(?<!の)の(?!の)/).filter((word) => word !== '');
  if (excluded || joined.length === 0 || joined[0] === first) return false;
  return joined.every((word) => holds(text, { kind: 'run', pieces: [word], excluded }));
}

const naive = (text: readonly string[], parts: readonly Part[]) =>
  parts.every((one) => holds(text, one) !== one.excluded);

it('the database, the live matcher and a naive matcher agree', async () => {
  // Two words in sequence differ from two overlapping pairs.
  const texts = [['東京都'], ['東京', '京都'], ...fc.sample(pieces, { seed: 7447, numRuns: 150 })];
  const inRow: Part = { kind: 'phrase', pieces: ['東京', '京都'], excluded: false };
  const parts = fc.array(part, { minLength: 1, maxLength: 3 });
  const queries = [[inRow], ...fc.sample(parts, { seed: 42, numRuns: 300 })];
  const documents = texts.map((text) => wordsOf(post(text.join(' '))));
  const parsed = queries.map((query) => parseSearch(query.map(textOf).join(' ')) as SearchQuery);
  const { rows } = await store.database.pool.query<{ q: number; d: number }>(
    `SELECT q.place::int AS q, d.place::int AS d
     FROM unnest($1::text[]) WITH ORDINALITY AS q (query, place)
     CROSS JOIN unnest($2::text[]) WITH ORDINALITY AS d (words, place)
     WHERE d.words::tsvector @@ q.query::tsquery`,
    [parsed.map((query) => toTsquery(query, undefined)), documents.map(toTsvector)],
  );
  const inSql = new Set(rows.map(({ q, d }) => `${q - 1}/${d - 1}`));
  const wrong: unknown[] = [];
  let found = 0;
  queries.forEach((query, q) => {
    texts.forEach((text, d) => {
      const expected = naive(text, query);
      const readings = [inSql.has(`${q}/${d}`), matchSearch(parsed[q]!, documents[d]!)];
      if (readings.some((reading) => reading !== expected))
        wrong.push([query.map(textOf).join(' '), text.join(' '), readings]);
      if (expected) found += 1;
    });
  });
  expect(wrong).toEqual([]);
  expect(found).toBeGreaterThan(2_000);
  expect(found).toBeLessThan(queries.length * texts.length - 2_000);
});

// ── Arbitrary texts ────────────────────────────────────────────────────────────────────────────────────────

const HOSTILE = [
  "'",
  "''",
  '\\',
  "\\'",
  '%',
  '_',
  '\u0000',
  '\ud800',
  '\udc00',
  '&',
  '|',
  '!',
  '<->',
  ':*',
  ':A',
  '(',
  ')',
  '"',
  '-',
  '#',
  '@',
];
const HOSTILE_TOO = [
  '🌊',
  '👩‍👩‍👧',
  '1️⃣',
  '\u200b',
  '\u2028',
  '\ufeff',
  '港',
  'ー',
  'é',
  'e\u0301',
  '\u3099',
  'ß',
  'İ',
  'ﬁ',
  '㍿',
  'x'.repeat(300),
  '서울에서',
  '한국어',
  'والمدينة',
  '食べた',
  '機器',
  '--force',
  ' -f ',
  'c++',
  'node.js',
  '.env',
  'a1b2',
];
const anything = fc
  .array(
    fc.oneof(fc.constantFrom(...HOSTILE, ...HOSTILE_TOO), latin, fc.string({ unit: 'binary', maxLength: 6 })),
    { maxLength: 20 },
  )
  .map((list) => list.join(''));

it('the database accepts every text and query, and the live matcher agrees with it', async () => {
  const texts = fc.sample(fc.tuple(anything, anything), { seed: 1, numRuns: 300 });
  const documents = texts.map(([content, tag]) =>
    wordsOf(
      post(content, [
        ['t', tag],
        ['title', tag],
      ]),
    ),
  );
  const queries = fc
    .sample(anything, { seed: 1, numRuns: 300 })
    .map((text) => parseSearch(text.slice(0, 256)))
    .filter(
      (query): query is SearchQuery => query !== undefined && !isRefusal(query) && query.terms.length > 0,
    );
  expect(queries.length).toBeGreaterThan(150);
  const topics = new Set(texts.slice(0, 20).map(([, tag]) => tag));
  const { rows } = await store.database.pool.query<{ q: number; d: number }>(
    `SELECT q.place::int AS q, d.place::int AS d
     FROM unnest($1::text[], $3::text[], $4::text[]) WITH ORDINALITY AS q (query, rank, in_topics, place)
     CROSS JOIN unnest($2::text[]) WITH ORDINALITY AS d (words, place)
     WHERE d.words::tsvector @@ q.query::tsquery AND ts_rank(d.words::tsvector, q.rank::tsquery) >= 0
       AND numnode(q.in_topics::tsquery) > 0`,
    [
      queries.map((query) => toTsquery(query, undefined)),
      documents.map(toTsvector),
      queries.map((query) => toRankQuery(query) ?? ''),
      queries.map((query) => toTsquery(query, topics)),
    ],
  );
  const inSql = new Set(rows.map(({ q, d }) => `${q - 1}/${d - 1}`));
  expect(inSql.size).toBeGreaterThan(300);
  const wrong = queries.flatMap((query, q) =>
    documents.flatMap((words, d) =>
      matchSearch(query, words) === inSql.has(`${q}/${d}`) ? [] : [[query, texts[d]]],
    ),
  );
  expect(wrong).toEqual([]);
});

it('the database accepts whatever is written in a search', async () => {
  const parts = [
    '"',
    '-',
    ' ',
    ' -"',
    '" ',
    'http://',
    'https://',
    '--',
    '__',
    '#',
    ':',
    'npub1',
    'a',
    '港',
    '東京の',
    '👍',
  ];
  const written = fc.array(fc.oneof(fc.constantFrom(...parts), anything), { maxLength: 12 });
  const texts = [
    '"http://--"',
    '-"https://__"',
    ...fc.sample(written, { seed: 2, numRuns: 3_000 }).map((list) => list.join('').slice(0, 256)),
  ];
  const queries = texts
    .map(parseSearch)
    .filter((query): query is SearchQuery => query !== undefined && !isRefusal(query));
  const usable = queries.filter(({ terms }) => terms.length > 0);
  expect(usable.length).toBeGreaterThan(1_000);
  const { rows } = await store.database.pool.query<{ nodes: number }>(
    `SELECT numnode(query::tsquery) AS nodes FROM unnest($1::text[]) AS q (query)`,
    [usable.map((query) => toTsquery(query, undefined))],
  );
  expect(rows.every(({ nodes }) => nodes > 0)).toBe(true);
});

it('the database accepts the largest document', async () => {
  const wide = Array.from({ length: 5_000 }, (_, at) => `${at}${'ঈ'.repeat(70)}`);
  const tags = Array.from({ length: 2_000 }, (_, at) => ['t', `${at}${'ঈ'.repeat(100)}`]);
  const words = wordsOf(post(`${wide.join(' ')} ${'東京都庁'.repeat(3_000)}`, tags));
  expect(words.size).toBeGreaterThan(2_100);
  const { rows } = await store.database.pool.query<{ length: number }>('SELECT length($1::tsvector)', [
    toTsvector(words),
  ]);
  expect(rows[0]!.length).toBe(words.size);
});
