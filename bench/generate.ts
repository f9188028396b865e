/**
 * The bench's events: event `index` of a seed is always the same, so that any part of a corpus can be made
 * alone. Shape: about 10 tags, 200 bytes of content and 1.1 kB as JSON; 1,000 authors and 1,000 topics. Four
 * fifths of all are spread evenly over them and one fifth by Zipf's law, so that the busiest has some 33
 * times as many as the least busy. Of 100,000 events nearly every author has 50 and every topic 100, so the
 * answer for a random one reaches its limit.
 */
import { createHash } from 'node:crypto';
import type { BenchEvent, Sign, Unsigned } from './sign.js';

export const AUTHORS = 1_000;
export const TOPICS = 1_000;
const EVEN_SHARE = 0.8;
const SPAN_SECONDS = 7 * 86_400;
const JITTER_SECONDS = 120;
const CONTENT_BYTES = 200;
/** Notes that many events point at. */
const POPULAR_NOTES = 5_000;
/** Kinds and how many of 1,000 events have them. */
const KINDS: readonly (readonly [kind: number, perMille: number])[] = [
  [1, 800],
  [7, 90],
  [6, 70],
  [30_023, 20],
  [0, 7],
  [3, 7],
  [10_002, 6],
];
export const WORDS = (
  'harbour tide lantern relay signal crane anchor rope market morning boat letter river bridge stone ' +
  'quiet north wind salt glass copper paper night train window garden 港 波 灯台 café'
).split(' ');

export interface CorpusSpec {
  readonly seed: number;
  readonly size: number;
  /** Events are dated in the seven days before this, rising with the index. */
  readonly baseSeconds: number;
}

export type Random = () => number;
export type MakeEvent = (index: number) => BenchEvent;

export function corpusMaker(spec: CorpusSpec, sign: Sign): MakeEvent {
  const secretKeys = Array.from({ length: AUTHORS }, (_, author) => digest(`${spec.seed}/author/${author}`));
  const pubkeys = secretKeys.map(
    (key) => sign({ created_at: 0, kind: 1, tags: [], content: '' }, key).pubkey,
  );
  const pickAuthor = skewed(AUTHORS);
  const pickTopic = skewed(TOPICS);
  const pickNote = zipf(POPULAR_NOTES);
  return (index) => {
    const random = seededRandom(spec.seed, index);
    const author = pickAuthor(random);
    const kind = pickKind(random);
    const tags = [
      ...topicTags(random, pickTopic),
      ...repeat(random, 2, 4, () => ['e', noteId(spec.seed, pickNote(random)), '', 'mention']),
      ...repeat(random, 2, 4, () => ['p', pubkeys[pickAuthor(random)]!]),
      // The size is part of the event, so that corpora of two sizes share no event.
      ['r', `https://example.org/${spec.size}/${index}`],
      ['client', 'bench'],
      ['subject', words(random, 24)],
    ];
    if (isAddressable(kind)) tags.unshift(['d', `article-${index}`]);
    const content = contentOf(kind, random);
    const created_at = createdAt(spec, index, kind, random);
    return sign({ created_at, kind, tags, content }, secretKeys[author]!);
  };
}

/** Events for rows that write their own: dated now, all with one new topic and by one new author. */
export function makeLiveEvents(seed: number, count: number, topic: string, sign: Sign): BenchEvent[] {
  const secretKey = liveKey(seed, topic);
  const created_at = Math.floor(Date.now() / 1000);
  return Array.from({ length: count }, (_, index) => {
    const random = seededRandom(seed, index);
    const references = repeat(random, 7, 7, () => ['e', noteId(seed, Math.floor(random() * POPULAR_NOTES))]);
    const tags = [['t', topic], ...references, ['client', 'bench'], ['subject', words(random, 24)]];
    const event: Unsigned = { created_at, kind: 1, tags, content: words(random, CONTENT_BYTES) };
    return sign(event, secretKey);
  });
}

/**
 * Events for live delivery to many: dated now, by a hundred authors, event n in topic `n % topics` of this
 * run, in the shape of the corpus.
 */
export function makeSpreadEvents(
  seed: number,
  count: number,
  run: string,
  topics: number,
  sign: Sign,
): BenchEvent[] {
  const keys = Array.from({ length: SPREAD_AUTHORS }, (_, author) => liveKey(seed, `${run}/${author}`));
  const created_at = Math.floor(Date.now() / 1000);
  const note: Unsigned = { created_at: 0, kind: 1, tags: [], content: '' };
  const pubkeys = keys.map((key) => sign(note, key).pubkey);
  return Array.from({ length: count }, (_, index) => {
    const random = seededRandom(seed, index);
    const anyOf = <T>(list: readonly T[]): T => list[Math.floor(random() * list.length)]!;
    const tags = [
      ['t', spreadTopic(run, index % topics)],
      ...repeat(random, 3, 3, () => ['e', noteId(seed, Math.floor(random() * POPULAR_NOTES))]),
      ...repeat(random, 3, 3, () => ['p', anyOf(pubkeys)]),
      ['r', `https://example.org/${run}/${index}`],
      ['client', 'bench'],
      ['subject', words(random, 24)],
    ];
    return sign({ created_at, kind: 1, tags, content: words(random, CONTENT_BYTES) }, anyOf(keys));
  });
}
const SPREAD_AUTHORS = 100;

export function spreadTopic(run: string, number: number): string {
  return `${run}-${number}`;
}

/** The request of their author to delete all of these. */
export function deletionOf(
  events: readonly BenchEvent[],
  seed: number,
  topic: string,
  sign: Sign,
): BenchEvent {
  const created_at = Math.floor(Date.now() / 1000);
  const tags = events.map((event) => ['e', event.id]);
  return sign({ created_at, kind: 5, tags, content: '' }, liveKey(seed, topic));
}

export function liveKey(seed: number, topic: string): Buffer {
  return digest(`${seed}/live/${topic}`);
}

export function topicName(rank: number): string {
  return `topic-${rank}`;
}

export function isReplaceable(kind: number): boolean {
  return kind === 0 || kind === 3 || (kind >= 10_000 && kind < 20_000);
}

function isAddressable(kind: number): boolean {
  return kind >= 30_000 && kind < 40_000;
}

/**
 * Rises with the index. Replaceable events have no jitter: a later version of the same key must be the newer
 * one.
 */
function createdAt(spec: CorpusSpec, index: number, kind: number, random: Random): number {
  const rising = Math.floor((index / spec.size) * SPAN_SECONDS);
  const jitter = isReplaceable(kind) ? 0 : Math.floor(random() * JITTER_SECONDS);
  return spec.baseSeconds - SPAN_SECONDS - JITTER_SECONDS + rising + jitter;
}

function topicTags(random: Random, pickTopic: (random: Random) => number): string[][] {
  const first = pickTopic(random);
  const second = pickTopic(random);
  const both = random() < 0.5 && second !== first;
  return (both ? [first, second] : [first]).map((rank) => ['t', topicName(rank)]);
}

function contentOf(kind: number, random: Random): string {
  const text = words(random, CONTENT_BYTES);
  return kind === 0 ? JSON.stringify({ name: text.slice(0, 12), about: text }) : text;
}

function words(random: Random, bytes: number): string {
  let text = '';
  while (Buffer.byteLength(text) < bytes) text += `${WORDS[Math.floor(random() * WORDS.length)]} `;
  return text.trimEnd();
}

function noteId(seed: number, rank: number): string {
  return digest(`${seed}/note/${rank}`).toString('hex');
}

function repeat<T>(random: Random, least: number, most: number, make: () => T): T[] {
  const length = least + Math.floor(random() * (most - least + 1));
  return Array.from({ length }, make);
}

function pickKind(random: Random): number {
  let rest = random() * 1_000;
  for (const [kind, perMille] of KINDS) {
    rest -= perMille;
    if (rest < 0) return kind;
  }
  return 1;
}

/** Four fifths evenly, the rest by Zipf's law. */
function skewed(count: number): (random: Random) => number {
  const pickByRank = zipf(count);
  return (random) => (random() < EVEN_SHARE ? Math.floor(random() * count) : pickByRank(random));
}

/** Ranks 0 … count-1, rank r in proportion to 1/(r+1). */
function zipf(count: number): (random: Random) => number {
  const cumulative: number[] = [];
  let sum = 0;
  for (let rank = 0; rank < count; rank++) {
    sum += 1 / (rank + 1);
    cumulative.push(sum);
  }
  return (random) => firstAtLeast(cumulative, random() * sum);
}

function firstAtLeast(sorted: readonly number[], value: number): number {
  let low = 0;
  let high = sorted.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle]! < value) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** mulberry32, started from the seed and the stream's number; uniform in [0, 1). */
export function seededRandom(seed: number, stream: number): Random {
  let state = (Math.imul(seed, 0x9e3779b1) ^ Math.imul(stream + 1, 0x85ebca6b)) >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

function digest(text: string): Buffer {
  return createHash('sha256').update(text).digest();
}
