/**
 * What search costs, without sockets: splitting an event into words, documents written per second, and
 * queries at 100,000 documents for rare, medium and common words. `node --import tsx bench/search-costs.ts
 * [documents]`; docs/search.md has the figures.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { isDenial } from '../src/api/rules-errors.js';
import { type Filter, parseFilter } from '../src/events/rules/filter.js';
import { toTsvector, wordsOf } from '../src/search/rules-words.js';
import { countSearched, searchPage } from '../src/search/search.sql.js';
import { community, pubkey, type SearchStore, withSearchStore } from './search-store.js';

const DOCUMENTS = Number(process.argv[2] ?? 100_000);
const ENGLISH =
  'The quick brown fox jumps over the lazy dog while developers are building decentralized networks, ' +
  'relays and clients that run everywhere. ' +
  'Fine, says @alice to #nostr, see https://example.com/notes/1 today';
const JAPANESE =
  '今日は港町で友達と美味しい寿司を食べました。東京から電車で二時間くらい、天気も良くて最高の一日でした。また来月も行きたい。';
const KOREAN =
  '오늘은 항구 도시에서 친구들과 맛있는 초밥을 먹었습니다. 서울에서 기차로 두 시간쯤, 날씨도 좋아서 최고의 하루였어요. 다음 달에도 가고 싶다.';
const ARABIC =
  'زرت المدينة القديمة اليوم مع الأصدقاء وأكلنا السمك في الميناء، ' +
  'كان الطقس جميلا والطريق من القاهرة ساعتين بالقطار';
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

function costOfWords(content: string): string {
  const event = { id: '', pubkey: pubkey(1), created_at: 0, kind: 1, tags: [], content, sig: '' };
  let best = Number.POSITIVE_INFINITY;
  for (let round = 0; round < 10; round += 1) {
    const start = performance.now();
    for (let time = 0; time < 1_000; time += 1) toTsvector(wordsOf({ ...event }));
    best = Math.min(best, performance.now() - start);
  }
  return `${best.toFixed(0)} µs for ${Buffer.byteLength(content)} bytes`;
}

async function ask({ pools, now }: SearchStore, name: string, raw: object): Promise<void> {
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
  for (const [name, text] of Object.entries({ ENGLISH, JAPANESE, KOREAN, ARABIC }))
    console.log(`words, ${name.toLowerCase()}: ${costOfWords(text)}`);
  await withSearchStore(folder, DOCUMENTS, async (store) => {
    const perSecond = Math.round((DOCUMENTS * 1_000) / store.indexMs);
    console.log(
      `${DOCUMENTS.toLocaleString('en')} documents, ${perSecond.toLocaleString('en')} written per second, ` +
        `${Math.round(store.bytes / DOCUMENTS)} bytes each`,
    );
    for (const [name, raw] of QUERIES) await ask(store, name, raw);
  });
} finally {
  await rm(folder, { recursive: true, force: true });
}
