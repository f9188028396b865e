/**
 * The quality of search: judged posts and queries (test/search/judged) on a real node, searched by REQ.
 * Thresholds are a little below the measured values (docs/search.md has the figures). Removing the words of a
 * run, or its pairs, shows what each adds. judged/groups has queries by language over the posts of all
 * groups, with posts that must not be found.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { NostrEvent } from '../../src/events/rules/event.js';
import { toTsvector, type Words, weightOf, wordsOf } from '../../src/search/rules-words.js';
import { RawClient } from '../support/clients/client.js';
import { newAuthor, nowSeconds, sign } from '../support/events.js';
import { startTestNode, type TestNode } from '../support/node.js';

interface Judged {
  readonly language: string;
  readonly posts: readonly { readonly id: string; readonly content: string; readonly title?: string }[];
  /** 2: exactly relevant; 1: related. */
  readonly queries: readonly {
    readonly query: string;
    readonly relevant: Readonly<Record<string, number>>;
  }[];
}
interface Quality {
  readonly recall: number;
  readonly ndcg: number;
}

const TOP = 10;
/** Prints the figures, and the queries with room for improvement. */
const SHOWS = process.env.SHOW_QUALITY !== undefined;
const judged = (language: string) =>
  JSON.parse(readFileSync(new URL(`judged/${language}.json`, import.meta.url), 'utf8')) as Judged;

let relay: TestNode;
let client: RawClient;
beforeAll(async () => {
  relay = await startTestNode();
  client = await RawClient.connect(relay.url);
});
afterAll(async () => {
  await client.close();
  await relay.close();
});

/** The names of the posts by their events. */
async function load({ posts, language }: Judged): Promise<Map<string, { name: string; event: NostrEvent }>> {
  const author = newAuthor();
  const start = nowSeconds() - 100_000;
  const loaded = new Map<string, { name: string; event: NostrEvent }>();
  for (const [at, { id: name, content, title }] of posts.entries()) {
    const tags = [['t', language], ...(title === undefined ? [] : [['title', title]])];
    const event = sign(author, { kind: title === undefined ? 1 : 11, content, tags, created_at: start + at });
    expect(await client.publish(event)).toEqual([true, '']);
    loaded.set(event.id, { name, event });
  }
  await relay.node.consumers!.drained();
  return loaded;
}

const gain = (grade: number) => 2 ** grade - 1;
const discounted = (grades: readonly number[]) =>
  grades.slice(0, TOP).reduce((sum, grade, at) => sum + gain(grade) / Math.log2(at + 2), 0);
const mean = (values: readonly number[]) => values.reduce((sum, value) => sum + value, 0) / values.length;

async function measure(set: Judged, names: ReadonlyMap<string, { name: string }>): Promise<Quality> {
  const recalls: number[] = [];
  const ndcgs: number[] = [];
  for (const { query, relevant } of set.queries) {
    const { events } = await client.query({ search: query, '#t': [set.language], limit: TOP });
    const grades = events.map(({ id }) => relevant[names.get(id)!.name] ?? 0);
    const ideal = Object.values(relevant).sort((a, b) => b - a);
    recalls.push(grades.filter((grade) => grade > 0).length / Math.min(TOP, ideal.length));
    ndcgs.push(discounted(grades) / discounted(ideal));
    if (SHOWS && ndcgs.at(-1)! < 1)
      console.log(query, ndcgs.at(-1)!.toFixed(3), events.map(({ id }) => names.get(id)!.name).join(' '));
  }
  const quality = { recall: mean(recalls), ndcg: mean(ndcgs) };
  if (SHOWS) console.log(set.language, quality);
  return quality;
}

/** Leaves only the positions of words in the documents that `keeps` accepts. */
async function rewrite(
  events: Iterable<NostrEvent>,
  keeps: (lexeme: string, entry: number) => boolean,
): Promise<void> {
  for (const event of events) {
    const words: Words = new Map(
      [...wordsOf(event)].flatMap(([lexeme, entries]) => {
        const kept = entries.filter((entry) => keeps(lexeme, entry));
        return kept.length === 0 ? [] : [[lexeme, kept] as const];
      }),
    );
    await relay.database.pool.query(
      'UPDATE post_search_documents SET words = $2::tsvector WHERE event_id = $1',
      [Buffer.from(event.id, 'hex'), toTsvector(words)],
    );
  }
}

describe('judged queries', () => {
  it('in English find most relevant posts, the best first', async () => {
    const set = judged('en');
    const { recall, ndcg } = await measure(set, await load(set));
    expect(recall).toBeGreaterThan(0.9);
    expect(ndcg).toBeGreaterThan(0.88);
  });

  it('in Japanese do too, and are worse without the words of a run or without its pairs', async () => {
    const set = judged('ja');
    const names = await load(set);
    const whole = await measure(set, names);
    expect(whole.recall).toBeGreaterThan(0.94);
    expect(whole.ndcg).toBeGreaterThan(0.94);
    const events = [...names.values()].map(({ event }) => event);
    await rewrite(events, (_lexeme, entry) => weightOf(entry) !== 0);
    const withoutPairs = await measure(set, names);
    expect(withoutPairs.recall).toBeLessThan(whole.recall - 0.04);
    expect(withoutPairs.ndcg).toBeLessThan(whole.ndcg - 0.04);
    const isRun = /[\p{scx=Han}\p{scx=Hira}\p{scx=Kana}]/u;
    await rewrite(
      events,
      (lexeme, entry) => lexeme.startsWith('#') || !isRun.test(lexeme) || weightOf(entry) === 0,
    );
    const withoutWords = await measure(set, names);
    expect(withoutWords.ndcg).toBeLessThan(whole.ndcg - 0.01);
  });
});

// ── Groups of languages ────────────────────────────────────────────────────────────────────────────────────

interface Group {
  readonly group: string;
  /** By name. */
  readonly posts: Readonly<Record<string, string>>;
  /** The names of the expected posts; those of another group have its file first, as in code:node. */
  readonly queries: Readonly<Record<string, readonly string[]>>;
}

const FOLDER = new URL('judged/groups/', import.meta.url);
const groups = readdirSync(FOLDER).map((file) => ({
  file: file.replace('.json', ''),
  ...(JSON.parse(readFileSync(new URL(file, FOLDER), 'utf8')) as Group),
}));

describe('groups of judged queries', () => {
  const topic = 'groups';
  const names = new Map<string, string>();
  beforeAll(async () => {
    const author = newAuthor();
    for (const { file, posts } of groups)
      for (const [name, content] of Object.entries(posts)) {
        const event = sign(author, { kind: 1, content, tags: [['t', topic]] });
        names.set(event.id, `${file}:${name}`);
        expect(await client.publish(event)).toEqual([true, '']);
      }
    await relay.node.consumers!.drained();
  });

  it.each(groups)(
    '$group: at least 0.95 of what is found is meant, and 0.9 of what is meant is found',
    async (set) => {
      const precisions: number[] = [];
      const recalls: number[] = [];
      for (const [query, relevant] of Object.entries(set.queries)) {
        const meant = new Set(relevant.map((name) => (name.includes(':') ? name : `${set.file}:${name}`)));
        const { events } = await client.query({ search: query, '#t': [topic], limit: 500 });
        const found = events.map(({ id }) => names.get(id)!);
        const hits = found.filter((name) => meant.has(name)).length;
        if (found.length > 0) precisions.push(hits / found.length);
        recalls.push(hits / meant.size);
        if (SHOWS && (hits < found.length || hits < meant.size)) console.log(query, found.join(' '));
      }
      if (SHOWS)
        console.log(set.group, recalls.length, mean(precisions).toFixed(2), mean(recalls).toFixed(2));
      expect(mean(precisions)).toBeGreaterThanOrEqual(0.95);
      expect(mean(recalls)).toBeGreaterThanOrEqual(0.9);
    },
  );
});
