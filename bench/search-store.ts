/**
 * A store of posts with their search documents, written by the lane and by the consumer as in a node, without
 * sockets. Few words of the vocabulary are in most posts and most words in few posts. Some are Japanese and
 * Korean, and some marker words have a chosen frequency.
 */
import type { Community } from '../src/communities/communities.js';
import { settingsFrom } from '../src/communities/rules-settings.js';
import { startLane } from '../src/events/postgres/lane/lane.js';
import { type NostrEvent, serializeEvent } from '../src/events/rules/event.js';
import { createMetrics } from '../src/node/metrics.js';
import { readChanges } from '../src/outbox/changes.sql.js';
import { searchConsumer } from '../src/search/consumer.js';
import type { PagePools } from '../src/search/search.sql.js';
import { type Random, seededRandom } from './generate.js';
import { type SqlStore, withStore } from './sql-store.js';

const WORDS = 30_000;
const NOUNS = 1_500;
const CHARACTERS = [
  ...'今日は港町で友達と美味しい寿司を食べた東京から電車で二時間くらい天気も良くて最高の一日だった京都大阪旅行',
];
const SYLLABLES = [...'서울부산대구인천광주제가나다라마바사아자차카타하기미시지이우수주구고도로보소오조호'];
const PARTICLES = ['', '은', '는', '이', '가', '을', '를', '에', '에서', '으로', '의', '도'];

export const community = {
  id: 1,
  slug: 'default',
  settings: settingsFrom(new Map()),
  topics: new Map(),
  refused: new Set<string>(),
} as unknown as Community;

export function pubkey(number: number): string {
  return number.toString(16).padStart(64, '0');
}

function rank(random: Random, most: number): number {
  return Math.floor(Math.exp(random() * Math.log(most)));
}

function word(random: Random): string {
  return `w${rank(random, WORDS)
    .toString(26)
    .replace(/\d/g, (digit) => 'qrstuvwxyz'[Number(digit)]!)}`;
}

function pick<T>(random: Random, list: readonly T[]): T {
  return list[Math.floor(random() * list.length)]!;
}

function korean(random: Random): string {
  const noun = rank(random, NOUNS);
  const syllables = [noun % SYLLABLES.length, Math.floor(noun / SYLLABLES.length) % SYLLABLES.length];
  return syllables.map((at) => SYLLABLES[at]).join('') + pick(random, PARTICLES);
}

function textOf(random: Random, number: number): string {
  const many = <T>(length: number, make: () => T) => Array.from({ length }, make);
  const text =
    number % 4 === 0
      ? many(60, () => pick(random, CHARACTERS)).join('')
      : number % 8 === 1
        ? many(20, () => korean(random)).join(' ')
        : many(30, () => word(random)).join(' ');
  const marks = [
    number % 10_000 === 77 && 'raregem',
    number % 2 === 0 && 'commonword',
    number % 100 === 3 && 'middling',
  ];
  return [text, ...marks.filter(Boolean)].join(' ');
}

/** The texts of this many posts, the same each time. */
export function textsOf(documents: number): string[] {
  const random = seededRandom(7_447, 1);
  return Array.from({ length: documents }, (_, number) => textOf(random, number));
}

function eventOf(number: number, startSeconds: number, content: string): NostrEvent {
  const id = number.toString(16).padStart(64, '0');
  const author = pubkey((number % 500) + 1);
  return {
    id,
    pubkey: author,
    created_at: startSeconds + number,
    kind: 1,
    tags: [],
    content,
    sig: '0'.repeat(128),
  };
}

/** Only the newest posts have reactions, because search ranks those. */
const REACTED = 1_000;
const REACTIONS = 10;

function reactionOf(documents: number, number: number, startSeconds: number): NostrEvent {
  const to = documents - 1 - (number % Math.min(REACTED, documents));
  const event = eventOf(documents + number, startSeconds - REACTED * REACTIONS, '+');
  return { ...event, kind: 7, tags: [['e', to.toString(16).padStart(64, '0')]] };
}

async function write({ database, tagHash, log, now }: SqlStore, texts: readonly string[]): Promise<void> {
  const settingsOf = () => community.settings;
  const lane = startLane({ database, tagHash, metrics: createMetrics(), log, now, settingsOf });
  const documents = texts.length;
  const startSeconds = Math.floor(now() / 1_000) - documents;
  const all = documents + REACTED * REACTIONS;
  for (let from = 0; from < all; from += 5_000) {
    const events = Array.from({ length: Math.min(5_000, all - from) }, (_, at) =>
      from + at < documents
        ? eventOf(from + at, startSeconds, texts[from + at]!)
        : reactionOf(documents, from + at - documents, startSeconds),
    );
    await Promise.all(
      events.map((event) => lane.submit({ community: 1, event, payload: serializeEvent(event) })),
    );
  }
  await lane.close();
}

/**
 * Works as the runner does: transactions of 500 rows without waiting for the disk, in slices of a hundred.
 */
async function index({ database }: SqlStore): Promise<void> {
  const consumer = searchConsumer({ communities: { all: () => [community], get: () => community } });
  const client = await database.connect({ indexWalks: true });
  let after = 0;
  for (let last = -1; after !== last; ) {
    last = after;
    await client.query('BEGIN; SET LOCAL synchronous_commit = off');
    const { changes, upTo } = await readChanges(client, { after, limit: 500 });
    for (let at = 0; at < changes.length; at += 100)
      await consumer.apply(changes.slice(at, at + 100), client, 1);
    await client.query('COMMIT');
    after = upTo;
  }
  await client.query(
    `INSERT INTO consumer_offsets (consumer, last_seq, generation, updated_at) VALUES ('search', $1, 1, 1)`,
    [after],
  );
  await client.end();
}

/** Does what autovacuum would have done by then. */
async function tidyUp({ database }: SqlStore): Promise<number> {
  const client = await database.connect();
  await client.query('VACUUM ANALYZE');
  const { rows } = await client.query<{ bytes: string }>(
    `SELECT pg_total_relation_size('post_search_documents_1') AS bytes`,
  );
  await client.end();
  return Number(rows[0]!.bytes);
}

export interface SearchStore {
  readonly pools: PagePools;
  readonly texts: readonly string[];
  readonly now: () => number;
  readonly indexMs: number;
  /** Of the documents and their indexes. */
  readonly bytes: number;
}

export async function withSearchStore<T>(
  folder: string,
  documents: number,
  work: (store: SearchStore) => Promise<T>,
): Promise<T> {
  return withStore(folder, Date.now, async (store) => {
    const texts = textsOf(documents);
    await write(store, texts);
    const start = performance.now();
    await index(store);
    const indexMs = performance.now() - start;
    const bytes = await tidyUp(store);
    const { pool, searchPool } = store.database;
    const pools = { pool, searchPool, tagHash: store.tagHash, cursorSecret: '00'.repeat(32) };
    return work({ pools, texts, now: store.now, indexMs, bytes });
  });
}

// ── Random queries ─────────────────────────────────────────────────────────────────────────────────────────

/**
 * A likely query: words of one post, alone, together, as a phrase or with an excluded word; sometimes a word
 * that is in no post.
 */
export function randomQuery(random: Random, texts: readonly string[]): string {
  const text = pick(random, texts);
  const words = text.split(' ').flatMap((each) => (each.length > 20 ? pieces(random, each) : [each]));
  const at = Math.floor(random() * words.length);
  const [one, next = one, other] = [words[at]!, words[at + 1], pick(random, words)];
  const roll = random();
  if (roll < 0.4) return one;
  if (roll < 0.7) return `${one} ${other}`;
  if (roll < 0.8) return `"${one} ${next}"`;
  if (roll < 0.9) return `${one} -${pick(random, texts).split(' ')[0]!.slice(0, 3)}`;
  return `zq${Math.floor(random() * 1e9).toString(26)}`;
}

function pieces(random: Random, text: string): string[] {
  const from = Math.floor(random() * (text.length - 3));
  return [text.slice(from, from + 2 + Math.floor(random() * 2))];
}
