/**
 * What search costs, without sockets: the words of an event, documents written a second, and the answers at 100,000 documents, for a
 * rare word, a common one, and those between. `node --import tsx bench/search-costs.ts [documents]`; docs/search.md has the figures.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Community } from '../src/communities.js';
import { isDenial } from '../src/core/errors.js';
import { type NostrEvent, serializeEvent } from '../src/core/event.js';
import { type Filter, parseFilter } from '../src/core/filter.js';
import { toTsvector, wordsOf } from '../src/core/search-words.js';
import { settingsFrom } from '../src/core/settings.js';
import { startLane } from '../src/lane.js';
import { createMetrics } from '../src/metrics.js';
import { searchConsumer } from '../src/services/search.js';
import { readChanges } from '../src/store/changes.js';
import { countSearched, searchPage } from '../src/store/search.js';
import { seededRandom } from './generate.js';
import { type SqlStore, withStore } from './sql-store.js';

const DOCUMENTS = Number(process.argv[2] ?? 100_000);
const WORDS = 30_000;
const KANA = [
  ...'今日は港町で友達と美味しい寿司を食べた東京から電車で二時間くらい天気も良くて最高の一日だった京都大阪旅行',
];
const ENGLISH =
  'The quick brown fox jumps over the lazy dog while developers are building decentralized networks, relays and clients that run everywhere. Fine, says @alice to #nostr, see https://example.com/notes/1 today';
const JAPANESE =
  '今日は港町で友達と美味しい寿司を食べました。東京から電車で二時間くらい、天気も良くて最高の一日でした。また来月も行きたい。';
const QUERIES: readonly (readonly [string, object])[] = [
  ['in 1 of 10,000', { search: 'raregem' }],
  ['in 1 of 100', { search: 'middling' }],
  ['in every second', { search: 'commonword' }],
  ['a common one, in an author', { search: 'commonword', authors: [pubkey(1)] }],
  ['東京, in Japanese', { search: '東京' }],
  ['港, one character', { search: '港' }],
  ['a phrase that is nowhere', { search: '"commonword raregem"' }],
  ['in none', { search: 'nosuchword' }],
];
const ASKED = 21;

const random = seededRandom(7_447, 1);
const community = {
  id: 1,
  slug: 'default',
  settings: settingsFrom(new Map()),
  topics: new Map(),
  refused: new Map(),
} as unknown as Community;

function pubkey(number: number): string {
  return number.toString(16).padStart(64, '0');
}

/** Some words are in most texts, most words in few. */
function word(): string {
  const rank = Math.floor(Math.exp(random() * Math.log(WORDS)));
  return `w${rank.toString(26).replace(/\d/g, (digit) => 'qrstuvwxyz'[Number(digit)]!)}`;
}

function textOf(number: number): string {
  const text =
    number % 4 === 0
      ? Array.from({ length: 60 }, () => KANA[Math.floor(random() * KANA.length)]).join('')
      : Array.from({ length: 30 }, word).join(' ');
  const marks = [
    number % 10_000 === 77 && 'raregem',
    number % 2 === 0 && 'commonword',
    number % 100 === 3 && 'middling',
  ];
  return [text, ...marks.filter(Boolean)].join(' ');
}

function eventOf(number: number, startSeconds: number): NostrEvent {
  const id = number.toString(16).padStart(64, '0');
  const created_at = startSeconds + number;
  return {
    id,
    pubkey: pubkey((number % 500) + 1),
    created_at,
    kind: 1,
    tags: [],
    content: textOf(number),
    sig: '0'.repeat(128),
  };
}

/** The newest posts have some each, as those that a search ranks would. */
const REACTED = 1_000;
const REACTIONS = 10;

function reactionOf(number: number, startSeconds: number): NostrEvent {
  const to = DOCUMENTS - 1 - (number % REACTED);
  const event = eventOf(DOCUMENTS + number, startSeconds - REACTED * REACTIONS);
  return { ...event, kind: 7, content: '+', tags: [['e', to.toString(16).padStart(64, '0')]] };
}

function costOfWords(content: string): string {
  const event = { ...eventOf(0, 0), content };
  let best = Number.POSITIVE_INFINITY;
  for (let round = 0; round < 10; round += 1) {
    const start = performance.now();
    for (let time = 0; time < 1_000; time += 1) toTsvector(wordsOf({ ...event }));
    best = Math.min(best, performance.now() - start);
  }
  return `${best.toFixed(0)} µs for ${Buffer.byteLength(content)} bytes`;
}

async function write({ database, tagHash, log, now }: SqlStore): Promise<void> {
  const lane = startLane({
    database,
    tagHash,
    metrics: createMetrics(),
    log,
    now,
    settingsOf: () => community.settings,
  });
  const startSeconds = Math.floor(now() / 1_000) - DOCUMENTS;
  const all = DOCUMENTS + REACTED * REACTIONS;
  for (let from = 0; from < all; from += 5_000) {
    const events = Array.from({ length: Math.min(5_000, all - from) }, (_, at) =>
      from + at < DOCUMENTS
        ? eventOf(from + at, startSeconds)
        : reactionOf(from + at - DOCUMENTS, startSeconds),
    );
    await Promise.all(
      events.map((event) => lane.submit({ community: 1, event, payload: serializeEvent(event) })),
    );
  }
  await lane.close();
}

/** As the runner does: transactions of 500 rows that do not wait for the disk, in slices of a hundred. */
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

/** As autovacuum would have done by then. */
async function tidyUp({ database }: SqlStore): Promise<void> {
  const client = await database.connect();
  await client.query('VACUUM ANALYZE');
  await client.end();
}

async function ask({ database, tagHash, now }: SqlStore, name: string, raw: object): Promise<void> {
  const pools = {
    pool: database.pool,
    searchPool: database.searchPool,
    tagHash,
    cursorSecret: '00'.repeat(32),
  };
  const filter = parseFilter(raw, community.settings) as Filter;
  const tookMs: number[] = [];
  for (let time = 0; time < ASKED; time += 1) {
    const start = performance.now();
    await searchPage(pools, community, filter, { limit: 20, cursor: undefined, now: now() });
    tookMs.push(performance.now() - start);
  }
  tookMs.sort((a, b) => a - b);
  const counted = await countSearched(pools, community, [filter], 10_000, now());
  const count = isDenial(counted) ? '–' : counted.count.toLocaleString('en');
  const median = tookMs[Math.floor(ASKED / 2)]!.toFixed(1);
  console.log(
    `${name.padEnd(30)} ${median.padStart(6)} ms, slowest ${tookMs.at(-1)!.toFixed(0)} ms, ${count} matches`,
  );
}

const folder = await mkdtemp(join(tmpdir(), 'minato-search-costs-'));
try {
  console.log(`words, English:  ${costOfWords(ENGLISH)}\nwords, Japanese: ${costOfWords(JAPANESE)}`);
  await withStore(folder, Date.now, async (store) => {
    await write(store);
    const start = performance.now();
    await index(store);
    const perSecond = Math.round((DOCUMENTS * 1_000) / (performance.now() - start));
    console.log(
      `${DOCUMENTS.toLocaleString('en')} documents, ${perSecond.toLocaleString('en')} written a second`,
    );
    await tidyUp(store);
    for (const [name, raw] of QUERIES) await ask(store, name, raw);
  });
} finally {
  await rm(folder, { recursive: true, force: true });
}
