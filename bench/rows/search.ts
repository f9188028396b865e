/**
 * Search (NIP-50 and GET /v1/search): how fast it answers, how soon it finds a new post, and how soon it no
 * longer finds a deleted one, while other posts arrive. A relay without search skips these rows.
 */
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { isDenial } from '../../src/api/rules-errors.js';
import { type Filter, parseFilter } from '../../src/events/rules/filter.js';
import { searchPage } from '../../src/search/search.sql.js';
import { type Connection, frameType, publish, untilSettled, withConnections } from '../client.js';
import { deletionOf, liveKey, seededRandom, WORDS } from '../generate.js';
import { type Bench, type Findings, latency, type Row, type Sample, Skip } from '../measure.js';
import { community, randomQuery, withSearchStore } from '../search-store.js';
import { untilUpToDate } from '../settle.js';
import type { BenchEvent } from '../sign.js';
import { outgoingOf, prepare } from './live.js';
import { askForSeconds, toQuery, WARM_UP_SECONDS } from './queries.js';

const QUERIES = 200;
const RANDOM_QUERIES = 1_000;
const ROWS_ASKED = 20;
const FOUND_WITHIN_MS = 60_000;

export const search: Row = {
  id: 'search',
  title: 'search, two common words',
  headline: 'perSecond',
  unit: 'queries/s',
  needsStored: true,
  async measure(bench, findings, repeat) {
    await untilUpToDate(bench);
    const random = seededRandom(bench.seed, -3);
    const word = () => WORDS[Math.floor(random() * WORDS.length)]!;
    const queries = Array.from({ length: QUERIES }, () =>
      toQuery({ kinds: [1], search: `${word()} ${word()}`, limit: ROWS_ASKED }, []),
    );
    return withConnections(bench.url, bench.sizes.queryLoops, async (connections) => {
      await probe(connections[0]!);
      const pickNext = (index: number) => queries[index % queries.length]!;
      if (repeat === 0) await askForSeconds(connections, pickNext, WARM_UP_SECONDS, findings);
      const { sample } = await askForSeconds(connections, pickNext, bench.sizes.querySeconds, findings);
      if ((sample.rowsPerSecond ?? 0) === 0) findings.fail('nothing was found');
      return sample;
    });
  },
};

/** Runs in a separate store with a realistic vocabulary. No query is sent twice, so no answer is cached. */
export const searches: Row = {
  id: 'searches',
  title: 'search, random queries',
  fromSource: true,
  headline: 'p50Ms',
  unit: 'ms',
  once: true,
  afterNode: true,
  async measure(bench, findings) {
    if (bench.node === undefined) throw new Skip('only for a node that the bench booted');
    const folder = join(bench.folder, 'searches');
    return withSearchStore(folder, bench.sizes.searchDocuments, async ({ pools, texts, now, bytes }) => {
      const random = seededRandom(bench.seed, -4);
      const ask = async () => {
        const filter = parseFilter({ search: randomQuery(random, texts) }, community.settings) as Filter;
        const startMs = performance.now();
        const page = await searchPage(pools, community, filter, {
          limit: ROWS_ASKED,
          cursor: undefined,
          now: now(),
        });
        const tookMs = performance.now() - startMs;
        if (isDenial(page)) throw new Error(`a search was refused: ${page.denied}`);
        return { tookMs, found: page.items.length > 0 };
      };
      for (let time = 0; time < QUERIES / 10; time += 1) await ask();
      const answers: Awaited<ReturnType<typeof ask>>[] = [];
      for (let time = 0; time < RANDOM_QUERIES; time += 1) answers.push(await ask());
      const found = answers.filter((answer) => answer.found).length;
      if (found < RANDOM_QUERIES / 2)
        findings.fail(`only ${found} of ${RANDOM_QUERIES} queries found anything`);
      findings.note(
        `${texts.length.toLocaleString('en')} documents of ${Math.round(bytes / texts.length)} bytes ` +
          `with their indexes; ${RANDOM_QUERIES} queries, one at a time, ${found} found something`,
      );
      return latency(answers.map(({ tookMs }) => tookMs));
    });
  },
};

export const searchable: Row = {
  id: 'searchable',
  writes: true,
  title: 'OK of a post → found by search, under load',
  headline: 'p50Ms',
  unit: 'ms',
  measure: (bench, findings, repeat) =>
    underLoad(bench, `bench-searchable-${Date.now()}-${repeat}`, findings, async (connection, event) => {
      const okMs = performance.now();
      await until(() => isFound(connection, event), 'a post was not found');
      return performance.now() - okMs;
    }),
};

export const gone: Row = {
  id: 'gone',
  writes: true,
  title: 'OK of a deletion → gone from search and API, under load',
  headline: 'p50Ms',
  unit: 'ms',
  measure(bench, findings, repeat) {
    const topic = `bench-gone-${Date.now()}-${repeat}`;
    return underLoad(bench, topic, findings, async (connection, event) => {
      await until(() => isFound(connection, event), 'a post was not found');
      await until(() => isFoundByApi(bench, event), 'a post was not found by the API');
      await say(connection, deletionOf([event], bench.seed, topic, bench.sign));
      const okMs = performance.now();
      const [search, api] = [isFound(connection, event), isFoundByApi(bench, event)];
      if ((await search) || (await api)) {
        findings.note('the first query still found some of them');
        await until(async () => !(await isFound(connection, event)), 'a deleted post is still found');
        await until(async () => !(await isFoundByApi(bench, event)), 'the API still finds a deleted post');
      }
      return performance.now() - okMs;
    });
  },
};

/**
 * Measures one post after another, each with a unique word, while another connection posts at a steady pace.
 */
async function underLoad(
  bench: Bench,
  topic: string,
  findings: Findings,
  measure: (connection: Connection, event: BenchEvent) => Promise<number>,
): Promise<Sample> {
  await untilUpToDate(bench);
  const { searchEvents, searchLoadPerSecond } = bench.sizes;
  const events = ownWords(bench, topic, searchEvents);
  return withConnections(bench.url, 2, async ([connection, other]) => {
    await probe(connection!);
    const load = startLoad(bench, other!, topic);
    try {
      const tookMs: number[] = [];
      for (const event of events) {
        await say(connection!, event);
        tookMs.push(await measure(connection!, event));
      }
      return latency(tookMs);
    } finally {
      const sent = await load.stop();
      findings.note(
        `${searchLoadPerSecond} posts per second meanwhile (${sent.toLocaleString('en')} in all)`,
      );
    }
  });
}

const httpOf = ({ url }: Pick<Bench, 'url'>): string => url.replace(/^ws/, 'http').replace(/\/$/, '');
const wordOf = ({ tags }: BenchEvent): string => tags.find(([name]) => name === 'word')![1]!;

function ownWords(bench: Bench, topic: string, count: number): BenchEvent[] {
  const { events } = prepare(bench, topic, 1);
  return Array.from({ length: count }, (_, number) => {
    // Letters only, without an ending that a stemmer would cut.
    const word = `zq${[...`${Date.now()}${number}`].map((digit) => 'bcdfghjkmx'[Number(digit)]).join('')}`;
    return bench.sign(
      {
        kind: 1,
        created_at: Math.floor(Date.now() / 1000),
        tags: [
          ['t', topic],
          ['word', word],
        ],
        content: `${word} ${events[0]!.content}`,
      },
      liveKey(bench.seed, topic),
    );
  });
}

interface Load {
  /** Stops and returns how many were sent. */
  stop(): Promise<number>;
}

function startLoad(bench: Bench, connection: Connection, topic: string): Load {
  const gapMs = 1000 / bench.sizes.searchLoadPerSecond;
  let stopped = false;
  let sent = 0;
  const send = async (): Promise<void> => {
    const startMs = performance.now();
    for (let count = 0; !stopped; count += LOAD_BATCH) {
      const waitMs = startMs + count * gapMs - performance.now();
      if (waitMs > 0) await sleep(waitMs);
      const { outgoing } = prepare(bench, `${topic}-load-${count}`, LOAD_BATCH);
      await publish([connection], outgoing, LOAD_BATCH);
      sent += outgoing.length;
    }
  };
  const sending = send();
  sending.catch(() => undefined);
  return {
    stop: async () => {
      stopped = true;
      await sending;
      return sent;
    },
  };
}
const LOAD_BATCH = 10;

async function say(connection: Connection, event: BenchEvent): Promise<void> {
  const { refused } = await publish([connection], [outgoingOf(event)], 1);
  if (refused.length > 0) throw new Error(`refused: ${refused[0]}`);
}

async function until(holds: () => Promise<boolean>, otherwise: string): Promise<void> {
  const endMs = performance.now() + FOUND_WITHIN_MS;
  while (!(await holds())) if (performance.now() > endMs) throw new Error(otherwise);
}

async function isFound(connection: Connection, event: BenchEvent): Promise<boolean> {
  return (await find(connection, wordOf(event))) > 0;
}

async function isFoundByApi(bench: Bench, event: BenchEvent): Promise<boolean> {
  const answer = await fetch(`${httpOf(bench)}/v1/search?q=${wordOf(event)}`);
  if (!answer.ok) throw new Error(`the API refused: ${await answer.text()}`);
  return ((await answer.json()) as { items: unknown[] }).items.length > 0;
}

/** How many rows a search returns. */
function find(connection: Connection, words: string): Promise<number> {
  let rows = 0;
  return untilSettled(
    (progress, reject) =>
      new Promise<number>((resolve) => {
        connection.onLost = reject;
        connection.onFrame = (frame) => {
          progress();
          const type = frameType(frame);
          if (type === 'EVENT') rows++;
          else if (type === 'EOSE') resolve(rows);
          else if (type !== 'OK') reject(new Skip(`the relay has no search: ${frame}`));
        };
        connection.send(`["REQ","search",${JSON.stringify({ kinds: [1], search: words, limit: 1 })}]`);
      }),
    'waiting for a search',
  ).finally(() => connection.send('["CLOSE","search"]'));
}

/** A relay that does not know the `search` field ignores it, and would return anything. */
async function probe(connection: Connection): Promise<void> {
  if ((await find(connection, 'zqxkcdthatnobodywrote')) > 0) throw new Skip('the relay has no search');
}
