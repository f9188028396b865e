/**
 * `npm run bench -- --growth`: does a query cost more when more is stored? It runs the same queries at
 * several sizes, each in a separate store filled by SQL (sql-store.ts). One client runs one query at a time,
 * so the time is that of the query and not of a queue. It covers hot and cold topics, an author with a tenth
 * of all events and authors with one event.
 */
import { randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Filter, Query } from './answers.js';
import { withConnections } from './client.js';
import { pauseConsumers } from './consumers.js';
import { seededRandom } from './generate.js';
import { Findings, type Sample, type Spread, summarize } from './measure.js';
import { type BootedNode, makeFolder, PROGRAM, removeFolder, startNode, withCleanUp } from './node.js';
import type { Options } from './options.js';
import { alignColumns, describeMachine, formatNumber, type Machine } from './report.js';
import { type CountedTopic, checkCount, countForSeconds } from './rows/count.js';
import { askForSeconds, inShuffledRounds, toQuery, WARM_UP_SECONDS } from './rows/queries.js';
import { untilUpToDate } from './settle.js';
import {
  AUTHORS,
  anyAuthor,
  anyTopic,
  BUSY_AUTHOR,
  COLD_TOPIC_EVENTS,
  COLD_TOPICS,
  coldTopic,
  eventId,
  fillBySql,
  HOT_TOPIC,
  isAuthor,
  lackOfSpace,
  ownAuthor,
  TOPICS,
  withStore,
} from './sql-store.js';

export interface Point {
  readonly events: number;
  readonly p50Ms: Spread;
  readonly p99Ms: Spread;
}

export interface GrowthShape {
  readonly id: string;
  readonly title: string;
  readonly points: Point[];
}

export interface Growth {
  readonly format: 1;
  readonly command: string;
  readonly date: string;
  readonly quick: boolean;
  readonly machine: Machine;
  readonly repeat: number;
  readonly shapes: readonly GrowthShape[];
  /** Sizes that were skipped, and why. */
  readonly notes: readonly string[];
  readonly failures: readonly string[];
}

type Measure = (url: string, seconds: number, findings: Findings) => Promise<Sample>;

interface Shape {
  readonly id: string;
  readonly title: string;
  /** The query for a store of this many events. */
  readonly prepare: (events: number) => Measure;
}

const IDS_PER_QUERY = 20;
/** Consumers read some thousands of events a second. */
const READ_ALL_MS_MAX = 2 * 60 * 60_000;
const ONE_EVENT_AUTHORS = 200;
const range = (length: number): number[] => Array.from({ length }, (_, number) => number);

/**
 * A value that no event has. It makes every filter different, so no answer comes from the node's cache of
 * filters.
 */
const nobody = (): string => randomBytes(32).toString('hex');
const unusedKind = (round: number): number => 40_000 + (round % 25_000);

const SHAPES: readonly Shape[] = [
  {
    id: 'author-busy',
    title: 'busy author, newest 50',
    prepare: () => requests(50, () => ({ authors: [BUSY_AUTHOR, nobody()], limit: 50 })),
  },
  {
    id: 'author-one',
    title: 'author with one event',
    prepare: (events) => {
      const authors = Math.min(ONE_EVENT_AUTHORS, events / 100);
      const every = Math.floor(events / 100 / authors) * 100;
      const author = (round: number) => ownAuthor((round % authors) * every + 1);
      return requests(1, (round) => ({ authors: [author(round), nobody()], limit: 50 }));
    },
  },
  {
    id: 'author-random',
    title: 'author at random, newest 50',
    prepare: (events) => {
      const draw = inShuffledRounds(range(AUTHORS).filter(isAuthor), seededRandom(events, -5));
      return requests(Math.min(50, Math.floor(events / AUTHORS)), () => ({
        authors: [anyAuthor(draw())],
        limit: 50,
      }));
    },
  },
  {
    id: 'topic-random',
    title: '#t at random, newest 100',
    prepare: (events) => {
      const draw = inShuffledRounds(range(TOPICS), seededRandom(events, -6));
      return requests(Math.min(100, Math.floor(events / TOPICS)), () => ({
        '#t': [anyTopic(draw())],
        limit: 100,
      }));
    },
  },
  {
    id: 'topic-hot',
    title: '#t of a fifth of all, newest 100',
    prepare: () => requests(100, () => ({ '#t': [HOT_TOPIC, nobody()], limit: 100 })),
  },
  {
    id: 'topic-cold',
    title: '#t of 100 events, all 100',
    prepare: () =>
      requests(100, (round) => ({ '#t': [coldTopic(round % COLD_TOPICS), nobody()], limit: 100 })),
  },
  {
    id: 'ids',
    title: '20 ids at random',
    prepare: (events) => {
      const random = seededRandom(events, -1);
      const anyId = () => eventId(Math.floor(random() * events));
      return requests(1, () => ({ ids: range(IDS_PER_QUERY).map(anyId), limit: IDS_PER_QUERY }));
    },
  },
  {
    id: 'newest',
    title: 'newest 500 of kind 1',
    prepare: () => requests(500, (round) => ({ kinds: [1, unusedKind(round)], limit: 500 })),
  },
  {
    id: 'count-hot',
    title: 'COUNT of a fifth of all',
    prepare: (events) => counts([{ name: HOT_TOPIC, count: events / 5 }]),
  },
  {
    id: 'count-cold',
    title: 'COUNT of 100 events',
    // The last cold topic has no event of kind 1.
    prepare: () =>
      counts(range(COLD_TOPICS - 1).map((number) => ({ name: coldTopic(number), count: COLD_TOPIC_EVENTS }))),
  },
];

/** Checks the number of rows of an answer, not their content: the events were made by SQL. */
function requests(rowsMin: number, filterOf: (round: number) => Filter): Measure {
  let count = 0;
  const pickNext = (): Query => ({ ...toQuery(filterOf(count++), []), rowsMin });
  return (url, seconds, findings) =>
    withConnections(url, 1, async (connections) => {
      await askForSeconds(connections, pickNext, WARM_UP_SECONDS, findings);
      return (await askForSeconds(connections, pickNext, seconds, findings)).sample;
    });
}

function counts(topics: readonly CountedTopic[]): Measure {
  return (url, seconds, findings) =>
    withConnections(url, 1, async (connections) => {
      const check = (answer: Buffer, topic: CountedTopic) => checkCount(answer, topic, true, findings);
      await countForSeconds(connections, topics, WARM_UP_SECONDS, check);
      return countForSeconds(connections, topics, seconds, check);
    });
}

export async function measureGrowth(options: Options, say: (text: string) => void): Promise<Growth> {
  if (options.target !== undefined || options.nodeEnv.DATABASE_URL !== undefined) {
    throw new Error('--growth fills its own stores and takes neither --target nor DATABASE_URL');
  }
  const shapes = SHAPES.map(({ id, title }): GrowthShape => ({ id, title, points: [] }));
  const findings = new Findings();
  const notes: string[] = [];
  for (const events of options.sizes.growthEvents) {
    const lack = await lackOfSpace(options.temp, events);
    if (lack === undefined) await measureSize(events, shapes, options, findings, say);
    else notes.push(lack);
  }
  return {
    format: 1,
    command: options.command,
    date: new Date().toISOString(),
    quick: options.quick,
    machine: describeMachine(),
    repeat: options.sizes.repeat,
    shapes,
    notes: [...notes, ...findings.notes],
    failures: findings.failures,
  };
}

/** The store is filled before the node starts, so the node's caches are empty. */
async function measureSize(
  events: number,
  shapes: readonly GrowthShape[],
  options: Options,
  findings: Findings,
  say: (text: string) => void,
): Promise<void> {
  const folder = makeFolder(options.temp);
  let node: BootedNode | undefined;
  const cleanUp = async (): Promise<void> => {
    await node?.stop();
    removeFolder(folder);
  };
  await withCleanUp(cleanUp, async () => {
    await withStore(join(folder, 'data'), Date.now, (store) =>
      fillBySql(store, { count: events, ingestedAt: Date.now(), say }),
    );
    node = await startNode(folder, options.nodeEnv);
    await node.ready();
    const bench = { node, folder, nodeEnv: options.nodeEnv };
    // Otherwise the consumers would read their backlog beside the queries.
    if (options.consumers) await untilUpToDate(bench, { withinMs: READ_ALL_MS_MAX, say });
    else await pauseConsumers({ ...bench, program: PROGRAM });
    for (const [place, { id, prepare }] of SHAPES.entries()) {
      say(`${id} at ${events.toLocaleString('en')} events`);
      const measure = prepare(events);
      const samples: Sample[] = [];
      while (samples.length < options.sizes.repeat) {
        samples.push(await measure(node.url, options.sizes.querySeconds, findings));
      }
      const { p50Ms, p99Ms } = summarize(samples);
      shapes[place]!.points.push({ events, p50Ms: p50Ms!, p99Ms: p99Ms! });
    }
  });
}

export function readGrowth(file: string): Growth {
  const growth = JSON.parse(readFileSync(file, 'utf8')) as Growth;
  if (growth.format !== 1 || growth.shapes === undefined)
    throw new Error(`${file} is not a --growth report of this bench`);
  return growth;
}

/**
 * p99 at the largest size over p99 at the smallest: 1 means that the number of stored events makes no
 * difference.
 */
export function growthOf({ points }: GrowthShape): number | undefined {
  const [first, last] = [points[0], points.at(-1)];
  return first === undefined || last === undefined || first === last
    ? undefined
    : last.p99Ms.median / first.p99Ms.median;
}

export function renderGrowth(growth: Growth): string {
  const { machine, shapes, repeat } = growth;
  const sizes = shapes[0]!.points.map(({ events }) => events.toLocaleString('en'));
  const lines = shapes.map((shape) => [
    shape.title,
    ...shape.points.map(
      ({ p50Ms, p99Ms }) => `${formatNumber(p50Ms.median)} / ${formatNumber(p99Ms.median)}`,
    ),
    `${formatNumber(growthOf(shape) ?? Number.NaN)}×`,
  ]);
  return [
    `growth, ${growth.date}${growth.quick ? ', QUICK: a smoke test, not a measurement' : ''}`,
    `${machine.cores} cores (${machine.cpu}), ${machine.memoryGigabytes} GB, Node ${machine.node}`,
    `ms, p50 / p99, by events stored; one query at a time; median of ${repeat}`,
    '',
    alignColumns([['query', ...sizes, 'p99, last to first'], ...lines]),
    '',
    ...growth.notes.map((note) => `note: ${note}`),
    ...growth.failures.map((failure) => `FAILED: ${failure}`),
    '',
  ].join('\n');
}
