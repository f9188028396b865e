/**
 * Random histories on two instances: clients keep their view by cursor alone, leave and come back anywhere,
 * and hold at every stop exactly what a fresh REQ gives. Posts, replacements, deletions, expiry, retention,
 * removals and restores, vanished authors, and restarts of a node.
 */
import { afterEach, describe, expect, it } from 'vitest';
import { erase } from '../../src/erasure/jobs.js';
import { expire } from '../../src/events/jobs/expire.js';
import { retain } from '../../src/events/jobs/retain.js';
import type { NostrEvent } from '../../src/events/rules/event.js';
import { runJob } from '../../src/jobs/run.js';
import { eventually } from '../support/cli.js';
import { RawClient } from '../support/clients/client.js';
import { Follower } from '../support/clients/follower.js';
import { jobContext, runErasures } from '../support/domains/erasure.js';
import { newAuthor, sign } from '../support/events.js';
import { startTestNode, type TestNode } from '../support/node.js';

const STEPS = 90;
const TOPICS = ['sea', 'sky'];

/** Mulberry32: the same choices in every run. */
function seeded(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4_294_967_296;
  };
}

class World {
  aheadMs = 0;
  nodes: TestNode[] = [];
  readonly authors = Array.from({ length: 4 }, newAuthor);
  readonly posted: NostrEvent[] = [];
  readonly removed: string[] = [];
  readonly followers: Follower[];
  vanished = 0;
  readonly now = () => Date.now() + this.aheadMs;

  constructor(readonly random: () => number) {
    const [alice, bob] = this.authors;
    this.followers = [
      [{}],
      [{ '#t': ['sea'] }],
      [{ kinds: [0, 10_002, 30_023] }],
      [{ authors: [alice!.pubkey] }, { '#t': ['sky'], kinds: [1] }],
      [{ '#p': [bob!.pubkey] }],
      [{ '#d': ['x'] }, { kinds: [5] }],
    ].map((filters) => new Follower(filters));
  }

  pick<T>(list: readonly T[]): T {
    return list[Math.floor(this.random() * list.length)]!;
  }

  async start(): Promise<void> {
    const first = await startTestNode({ now: this.now, jobs: [], roles: ['relay', 'api'] });
    this.nodes = [first, await this.another(first)];
    for (const follower of this.followers) await follower.connect(this.pick(this.nodes).url);
  }

  private another(first: TestNode): Promise<TestNode> {
    return startTestNode({ on: first.test, now: this.now, jobs: [], roles: ['relay', 'api'] });
  }

  async publish(event: NostrEvent): Promise<void> {
    const client = await RawClient.connect(this.pick(this.nodes).url);
    await client.publish(event);
    await client.close();
  }

  private get seconds(): number {
    return Math.floor(this.now() / 1_000);
  }

  async post(): Promise<void> {
    const kind = this.pick([1, 1, 1, 0, 10_002, 30_023]);
    const tags: string[][] = [];
    if (this.random() < 0.7) tags.push(['t', this.pick(TOPICS)]);
    if (this.random() < 0.3) tags.push(['p', this.pick(this.authors).pubkey]);
    if (kind === 30_023) tags.push(['d', this.pick(['x', 'y'])]);
    if (this.random() < 0.2) tags.push(['expiration', String(this.seconds + 30)]);
    const created_at = this.seconds - Math.floor(this.random() * 5);
    const event = sign(this.pick(this.authors), { kind, tags, created_at });
    this.posted.push(event);
    await this.publish(event);
  }

  async delete(): Promise<void> {
    if (this.posted.length === 0) return;
    const target = this.pick(this.posted);
    const author = this.authors.find(({ pubkey }) => pubkey === target.pubkey)!;
    const d = target.tags.find(([name]) => name === 'd')?.[1] ?? '';
    const byAddress = target.kind >= 10_000 && this.random() < 0.5;
    const tag = byAddress ? ['a', `${target.kind}:${target.pubkey}:${d}`] : ['e', target.id];
    await this.publish(sign(author, { kind: 5, created_at: this.seconds, tags: [tag] }));
  }

  async remove(): Promise<void> {
    if (this.posted.length === 0) return;
    const { id } = this.pick(this.posted);
    const which = { by: 'ids', refs: [{ community: 1, id }] } as const;
    const hidden = await this.nodes[0]!.node.store.hide({ hidden: 'removed', purge: false, which });
    if (hidden > 0) this.removed.push(id);
  }

  async restore(): Promise<void> {
    const id = this.removed.pop();
    if (id !== undefined) await this.nodes[0]!.node.store.restore([{ community: 1, id }]);
  }

  async pass(): Promise<void> {
    this.aheadMs += Math.floor(this.random() * 40_000);
    if (this.random() < 0.5) await this.sweep();
  }

  async sweep(): Promise<void> {
    for (const job of [expire, retain]) await runJob(job, jobContext(this.nodes[0]!, { now: this.now }));
  }

  async vanish(): Promise<void> {
    if (this.vanished >= 2) return;
    this.vanished += 1;
    const tags = [['relay', 'ALL_RELAYS']];
    await this.publish(sign(this.authors.at(-1)!, { kind: 62, created_at: this.seconds, tags }));
    if (this.random() < 0.5) await this.erase();
  }

  async erase(): Promise<void> {
    await runErasures(jobContext(this.nodes[0]!, { now: this.now }), erase);
  }

  async leave(): Promise<void> {
    await this.pick(this.followers).leave();
  }

  async comeBack(): Promise<void> {
    for (const follower of this.followers)
      if (follower.client === undefined && this.random() < 0.6) await this.connect(follower);
  }

  private async connect(follower: Follower): Promise<void> {
    const end = await follower.connect(this.pick(this.nodes).url);
    if (end[0] === 'CLOSED') await follower.beginAgain();
  }

  /** The second node stops, while its clients go on elsewhere. */
  async restart(): Promise<void> {
    const [first, second] = this.nodes as [TestNode, TestNode];
    await second.close();
    this.nodes = [first];
    for (const follower of this.followers) if (follower.client?.closed !== undefined) await follower.leave();
    await this.post();
    this.nodes = [first, await this.another(first)];
  }

  async check(about: string): Promise<void> {
    await this.erase();
    await this.sweep();
    for (const follower of this.followers) {
      if (follower.client?.closed !== undefined) await follower.leave();
      if (follower.client === undefined) await this.connect(follower);
    }
    const fresh = await RawClient.connect(this.nodes[1]!.url);
    for (const [at, follower] of this.followers.entries()) {
      const filters = follower.filters.map((filter) => ({ ...filter, limit: 5_000 }));
      let [held, wanted]: string[][] = [[], []];
      const isSame = async () => {
        follower.apply();
        if (follower.isClosed && follower.restarts < 50) {
          await follower.leave();
          await this.connect(follower);
        }
        wanted = (await fresh.query(...filters)).events.map(({ id }) => id).sort();
        held = [...follower.held.keys()].sort();
        if (JSON.stringify(held) === JSON.stringify(wanted)) return true;
        // What has expired since the last sweep is announced by the next one.
        await this.sweep();
        return undefined;
      };
      await eventually(`${about}: follower ${at}`, isSame).catch(() => undefined);
      expect(held, `${about}: follower ${at} ${JSON.stringify(follower.filters)}`).toEqual(wanted);
      expect(follower.doubles, `${about}: no double for follower ${at}`).toBe(0);
    }
    await fresh.close();
  }

  async close(): Promise<void> {
    for (const follower of this.followers) await follower.leave();
    for (const node of this.nodes.reverse()) await node.close();
  }
}

let world: World | undefined;
afterEach(async () => {
  await world?.close();
  world = undefined;
});

describe('a view that is kept by cursor', () => {
  it.each([1, 7_447, 20_261_117])('is what a fresh REQ gives, at every stop (seed %i)', async (seed) => {
    world = new World(seeded(seed));
    const at = world;
    await at.start();
    const steps: [number, () => Promise<void>][] = [
      [36, () => at.post()],
      [14, () => at.delete()],
      [6, () => at.remove()],
      [5, () => at.restore()],
      [6, () => at.pass()],
      [2, () => at.vanish()],
      [14, () => at.leave()],
      [12, () => at.comeBack()],
      [1, () => at.restart()],
    ];
    const all = steps.flatMap(([weight, step]) => Array.from({ length: weight }, () => step));
    for (let step = 1; step <= STEPS; step += 1) {
      await at.pick(all)();
      if (step % 30 === 0) await at.check(`seed ${seed}, step ${step}`);
    }
    // Only an erasure makes clients begin again.
    const restarts = at.followers.map(({ restarts }) => restarts);
    expect(Math.max(...restarts)).toBeLessThanOrEqual(2 * at.vanished);
    expect(at.followers.reduce((sum, { held }) => sum + held.size, 0)).toBeGreaterThan(0);
  });
});

describe('while two nodes are written to all the time', () => {
  it('clients that leave and come back get each event once, and every deletion', async () => {
    const random = seeded(20);
    const nodes = [await startTestNode({ jobs: [] })];
    nodes.push(await startTestNode({ on: nodes[0]!.test, jobs: [] }));
    const authors = [newAuthor(), newAuthor()];
    const followers = Array.from(
      { length: 6 },
      (_, at) =>
        new Follower(at % 2 === 0 ? [{ kinds: [1] }] : [{ authors: [authors[0]!.pubkey], kinds: [1] }]),
    );
    let writing = true;
    /** Of each follower, while there are writers. */
    const visits = followers.map(() => 0);
    const write = async (at: number) => {
      const client = await RawClient.connect(nodes[at]!.url);
      const own: string[] = [];
      // On a busy machine until everybody was there three times.
      for (let count = 0; count < 120 || (count < 1_200 && Math.min(...visits) < 3); count += 1) {
        const event = sign(authors[at]!, { content: `${at} ${count}` });
        await client.publish(event);
        own.push(event.id);
        if (count % 3 === 2) {
          const [id] = own.splice(Math.floor(random() * own.length), 1);
          await client.publish(sign(authors[at]!, { kind: 5, tags: [['e', id!]] }));
        }
      }
      await client.close();
    };
    const visit = async (follower: Follower, at: number) => {
      while (writing) {
        const end = await follower.connect(nodes[Math.floor(random() * 2)]!.url);
        expect(end[0]).toBe('EOSE');
        await new Promise((resolve) => setTimeout(resolve, random() * 60));
        await follower.leave();
        visits[at]! += 1;
      }
    };
    const visiting = Promise.all(followers.map(visit));
    await Promise.all([write(0), write(1)]).finally(() => {
      writing = false;
    });
    await visiting;
    expect(Math.min(...visits)).toBeGreaterThan(2);
    const fresh = await RawClient.connect(nodes[0]!.url);
    for (const follower of followers) {
      await follower.connect(nodes[1]!.url);
      const wanted = await fresh.query(...follower.filters.map((filter) => ({ ...filter, limit: 5_000 })));
      expect([...follower.held.keys()].sort()).toEqual(wanted.events.map(({ id }) => id).sort());
      expect(follower.doubles).toBe(0);
      await follower.leave();
    }
    await fresh.close();
    for (const node of nodes.reverse()) await node.close();
  });
});
