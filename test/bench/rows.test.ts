/**
 * The parts of the rows: the corpus and the random queries match the README, and the figures of a booted node
 * are read correctly.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { withConnections } from '../../bench/client.js';
import { pauseConsumers } from '../../bench/consumers.js';
import { DISK_PARTS, diskUse, partOf, rowsBehind, withDatabase } from '../../bench/database.js';
import { type CpuProfile, frameTree, renderFlame } from '../../bench/flame.js';
import { corpusMaker, seededRandom } from '../../bench/generate.js';
import {
  type BootedNode,
  makeFolder,
  memoryOf,
  PROGRAM,
  removeFolder,
  startNode,
  treeCpuSeconds,
} from '../../bench/node.js';
import { readOptions } from '../../bench/options.js';
import { inShuffledRounds } from '../../bench/rows/queries.js';
import { untilUpToDate } from '../../bench/settle.js';
import type { Sign } from '../../bench/sign.js';

describe('the corpus', () => {
  // Ids and signatures are not needed here, and signing 100,000 events takes long.
  const unsigned: Sign = (event, key) => ({ ...event, pubkey: key.toString('hex'), id: '', sig: '' });
  const make = corpusMaker({ seed: 1, size: 100_000, baseSeconds: 1_700_000_000 }, unsigned);
  const events = Array.from({ length: 100_000 }, (_, index) => make(index));
  const countBy = (keys: readonly string[]) => {
    const counts = new Map<string, number>();
    for (const key of keys) counts.set(key, (counts.get(key) ?? 0) + 1);
    return [...counts.values()].sort((a, b) => a - b);
  };

  it('has 1,000 authors, each with 50 events or more, the busiest with over 20 times as many', () => {
    const counts = countBy(events.map(({ pubkey }) => pubkey));
    expect(counts).toHaveLength(1_000);
    expect(counts[0]).toBeGreaterThanOrEqual(50);
    expect(counts.at(-1)! / counts[500]!).toBeGreaterThan(20);
  });

  it('has 1,000 topics, nearly all with 100 events or more', () => {
    const topics = events.flatMap(({ tags }) =>
      tags.filter(([name]) => name === 't').map(([, value]) => value!),
    );
    const counts = countBy(topics);
    expect(counts).toHaveLength(1_000);
    expect(counts.filter((count) => count >= 100).length).toBeGreaterThan(950);
  });

  it('has about 10 tags and 1.1 kB per event', () => {
    const tags = events.reduce((sum, event) => sum + event.tags.length, 0) / events.length;
    const bytes = JSON.stringify(events.slice(0, 1_000)).length / 1_000;
    expect(tags).toBeGreaterThan(9);
    expect(tags).toBeLessThan(11.5);
    // Without id and signature, which are 192 characters.
    expect(bytes + 192).toBeGreaterThan(1_000);
    expect(bytes + 192).toBeLessThan(1_250);
  });
});

describe('a random row', () => {
  it('repeats no query before all were sent, and each round has another order', () => {
    const all = Array.from({ length: 50 }, (_, number) => number);
    const draw = inShuffledRounds(all, seededRandom(1, 1));
    const rounds = [0, 1].map(() => all.map(() => draw()));
    for (const round of rounds) expect([...round].sort((a, b) => a - b)).toEqual(all);
    expect(rounds[0]).not.toEqual(rounds[1]);
    expect(rounds[0]).not.toEqual(all);
  });
});

describe('options', () => {
  const read = (...argv: string[]) => readOptions(argv, ['ingest']);

  it('turn the consumers off, and show it in the command', () => {
    expect(read().consumers).toBe(true);
    expect(read('--consumers', 'off')).toMatchObject({
      consumers: false,
      command: 'npm run bench -- --consumers off',
    });
  });

  it('give --growth other sizes', () => {
    expect(read('--growth', '--sizes', '1000000,5000000').sizes.growthEvents).toEqual([1_000_000, 5_000_000]);
    expect(() => read('--sizes', '10')).toThrow('--sizes needs --growth');
  });
});

describe('a flame graph', () => {
  const node = (id: number, functionName: string, url: string, children: number[] = []) => ({
    ...{ id, children },
    callFrame: { functionName, url, lineNumber: 0 },
  });
  const profile: CpuProfile = {
    nodes: [
      node(1, '(root)', '', [2, 3, 5]),
      node(2, '(idle)', ''),
      node(3, 'take', 'file:///somewhere/dist/events/lane.js', [4]),
      node(4, 'query', 'file:///somewhere/node_modules/pg/lib/client.js'),
      node(5, '(garbage collector)', ''),
    ],
    samples: [2, 3, 4, 4, 5],
    timeDeltas: [9_000, 100, 200, 300, 50],
  };

  it('counts a function with the functions it calls, without idle time', () => {
    const root = frameTree([profile, profile]);
    expect(root.micros).toBe(1_300);
    const [take] = [...root.calls.values()];
    expect(take).toMatchObject({ name: 'take events/lane.js:1', family: 'own', micros: 1_200 });
    expect([...take!.calls.values()]).toMatchObject([
      { name: 'query pg/lib/client.js:1', family: 'packages', micros: 1_000 },
    ]);
  });

  it('contains no folder name of the machine', () => {
    const svg = renderFlame(frameTree([profile]), 'a & b');
    expect(svg).toContain('take events/lane.js:1: 92.3 %');
    expect(svg).toContain('a &amp; b');
    expect(svg).not.toContain('somewhere');
  });
});

it.each([
  ['events_days30_202611', 'events'],
  ['event_tags_days30_202611', 'tags'],
  ['event_dedupe_3', 'dedupe'],
  ['events_outbox_0', 'outbox'],
  ['post_search_documents_1', 'search'],
  ['trust_scores', 'trust'],
  ['moderation_cases', 'other'],
] as const)('the room of table %s counts as %s', (table, part) => {
  expect(partOf(table)).toBe(part);
});

describe('a booted node', () => {
  let temp: string;
  let folder: string;
  let node: BootedNode;
  beforeAll(async () => {
    temp = await mkdtemp(join(tmpdir(), 'minato-bench-rows-'));
    folder = makeFolder(temp);
    node = await startNode(folder, {});
    await node.ready();
  });
  afterAll(async () => {
    await node.stop();
    removeFolder(folder);
    await rm(temp, { recursive: true, force: true });
  });

  it('is measured with its database: memory, CPU and disk', async () => {
    const bench = { node, folder, nodeEnv: {} };
    const memory = memoryOf(node.pid);
    expect(Math.min(memory!.node, memory!.database)).toBeGreaterThan(10);
    expect(treeCpuSeconds(node.pid)).toBeGreaterThan(0);
    const { total, ...parts } = (await diskUse(bench))!;
    expect(Object.keys(parts).sort()).toEqual([...DISK_PARTS].sort());
    expect(Object.values(parts).reduce((sum, each) => sum + each, 0)).toBeCloseTo(total, 0);
    for (const part of ['indexes', 'search', 'trust', 'wal', 'other'] as const)
      expect(parts[part], part).toBeGreaterThan(0);
  });

  it('is up to date when no consumer has a backlog, except paused ones', async () => {
    const bench = { node, folder, nodeEnv: {}, program: PROGRAM };
    await untilUpToDate(bench);
    await withDatabase(bench, async (client) => {
      const paused = async () => {
        const { rows } = await client.query<{ all: number; paused: number }>(
          'SELECT count(*) AS all, count(paused_at) AS paused FROM consumer_offsets',
        );
        return rows[0]!;
      };
      expect(await paused()).toMatchObject({ paused: 0 });
      await pauseConsumers(bench);
      const after = await paused();
      expect(after.all).toBeGreaterThan(0);
      expect(after.paused).toBe(after.all);
      // No consumer runs any more, so a backlog stays.
      await client.query('UPDATE lane_state SET last_seq = last_seq + 5');
      expect(await rowsBehind(client)).toBe(0);
      await client.query(
        `UPDATE consumer_offsets SET paused_at = NULL WHERE consumer = (SELECT min(consumer)
         FROM consumer_offsets)`,
      );
      expect(await rowsBehind(client)).toBe(5);
      // A rebuild is behind until it has ended, wherever the offset of its consumer is.
      await client.query('UPDATE consumer_offsets o SET last_seq = s.last_seq FROM lane_state s');
      expect(await rowsBehind(client)).toBe(0);
      await client.query(
        `INSERT INTO consumer_rebuilds (consumer, generation, reason, requested_at, updated_at)
         SELECT min(consumer), 1000, 'test', 0, 0 FROM consumer_offsets`,
      );
      expect(await rowsBehind(client)).toBeGreaterThan(0);
    });
  });

  it('reports that it has ended', async () => {
    await withConnections(node.url, 1, async () => undefined);
    expect(node.hasEnded()).toBe(false);
    await node.stop();
    expect(node.hasEnded()).toBe(true);
  });
});
