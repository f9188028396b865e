/** When and from where gaps are filled. The engine that fills is the test's: it notes what it is asked. */
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { CatchUp, type FillRequest } from '../../src/p2p/catch-up.js';
import type { Ticket } from '../../src/p2p/rules-ticket.js';
import { eventually } from '../support/cli.js';
import { writeTopic } from '../support/domains/topics.js';
import { pinTopics, startTestNode, type TestNode } from '../support/node.js';

const TICKETS: Ticket[] = [
  { machines: [{ id: 'a'.repeat(64), addresses: [] }], urls: ['ws://one.test', 'ws://uno.test'] },
  { machines: [{ id: 'b'.repeat(64), addresses: [] }], urls: ['ws://two.test'] },
  { machines: [{ id: 'c'.repeat(64), addresses: [] }], urls: [] },
];

let node: TestNode;
let community: number;
let stop = new AbortController();
let now = 1_000_000_000_000;
let steadyMs = 0;
const pass = (ms: number) => {
  now += ms;
  steadyMs += ms;
};

beforeAll(async () => {
  node = await startTestNode({ jobs: [], consumers: [] });
  community = node.node.communities.find(undefined, undefined)!.id;
  await pinTopics(node, ['kukuri:open', 'kukuri:closed', 'kukuri:brief']);
  const rules = { pinned: true, public: true, priority: 0 };
  const write = (topic: string, policy: object) =>
    writeTopic(node.database.pool, community, topic, { ...rules, policy }, Date.now());
  await write('kukuri:closed', { allowBackfill: false });
  await write('kukuri:brief', { maxDelaySeconds: 60 });
  await node.node.communities.refresh();
});
afterEach(() => stop.abort());
afterAll(() => node.close());

function startCatchUp(fill: (request: FillRequest) => Promise<unknown>): CatchUp {
  stop = new AbortController();
  return new CatchUp({
    fill,
    communities: node.node.communities,
    tickets: () => TICKETS,
    metrics: node.node.metrics,
    log: node.log,
    now: () => now,
    steadyMs: () => steadyMs,
    signal: stop.signal,
  });
}

const topic = (name: string) => ({ community, topic: `kukuri:${name}` });
const done = (catchUp: CatchUp, times: number) =>
  eventually('the fills', () => catchUp.state.done + catchUp.state.failed >= times || undefined);

describe('a gap', () => {
  it('is filled from every node with a ticket, from its first address that answers', async () => {
    const asked: string[] = [];
    const catchUp = startCatchUp(async ({ url }) => {
      asked.push(url);
      if (url === 'ws://one.test') throw new Error('it is down');
    });
    catchUp.want([topic('open')], 'joined');
    await done(catchUp, 1);
    expect(asked).toEqual(['ws://one.test', 'ws://uno.test', 'ws://two.test']);
    expect(catchUp.state).toMatchObject({ done: 1, failed: 0, waiting: 0 });
  });

  it('is not filled by history without backfill, and after an absence only as far as allowed', async () => {
    const asked: FillRequest[] = [];
    const catchUp = startCatchUp(async (request) => void asked.push(request));
    catchUp.want([topic('closed'), topic('brief')], 'joined');
    await done(catchUp, 2);
    expect(asked).toEqual([]);
    pass(60_000);
    catchUp.want([topic('closed'), topic('brief')], 'gap');
    await done(catchUp, 4);
    const since = new Map(asked.map((request) => [request.topic, request.since]));
    const seconds = Math.floor(now / 1_000);
    expect(since).toEqual(
      new Map([
        ['kukuri:closed', seconds - 86_400],
        ['kukuri:brief', seconds - 60],
      ]),
    );
  });

  it('that is reported many times is filled once, and again only after half a minute', async () => {
    let fills = 0;
    const catchUp = startCatchUp(async ({ url }) => {
      if (url === 'ws://two.test') fills += 1;
    });
    for (let times = 0; times < 100; times += 1) catchUp.want([topic('open')], 'gap');
    await done(catchUp, 1);
    for (let times = 0; times < 100; times += 1) catchUp.want([topic('open')], 'gap');
    expect(catchUp.state.waiting).toBe(1);
    pass(29_000);
    await new Promise((resolve) => setTimeout(resolve, 300));
    expect(fills).toBe(1);
    pass(1_000);
    await done(catchUp, 2);
    expect(fills).toBe(2);
  });

  it('is filled after half a minute also if the wall clock was wrong for a while', async () => {
    const catchUp = startCatchUp(async () => undefined);
    now += 7_200_000;
    catchUp.want([topic('open')], 'gap');
    await done(catchUp, 1);
    now -= 7_200_000;
    catchUp.want([topic('open')], 'gap');
    pass(30_000);
    await done(catchUp, 2);
  });

  it('that no node can fill is tried again later, and its error is shown', async () => {
    let isUp = false;
    const catchUp = startCatchUp(async () => {
      if (!isUp) throw new Error('it is down');
    });
    catchUp.want([topic('open')], 'gap');
    await done(catchUp, 1);
    expect(catchUp.state).toMatchObject({ failed: 1, waiting: 1, lastError: 'ws://two.test: it is down' });
    isUp = true;
    pass(30_000);
    await eventually('it is filled', () => catchUp.state.done === 1 || undefined);
  });

  it('that waits after failures is tried again as soon as a known node is a neighbour', async () => {
    let isUp = false;
    const catchUp = startCatchUp(async () => {
      if (!isUp) throw new Error('it is down');
    });
    catchUp.want([topic('open')], 'gap');
    for (let failures = 1; failures <= 4; failures += 1) {
      await eventually('it fails', () => catchUp.state.failed === failures || undefined);
      pass(failures < 4 ? 300_000 : 0);
    }
    isUp = true;
    pass(30_000);
    await new Promise((resolve) => setTimeout(resolve, 300));
    expect(catchUp.state.done, 'the fourth pause is longer').toBe(0);
    catchUp.wantNow([topic('open')]);
    await eventually('it is filled', () => catchUp.state.done === 1 || undefined);
  });

  it('of which nothing is known here is found: topics are compared now and then', async () => {
    let fills = 0;
    let fillMs = 0;
    const catchUp = startCatchUp(async ({ url }) => {
      if (url === 'ws://two.test') fills += 1;
      steadyMs += fillMs;
    });
    const compare = async (isApart: boolean, expected: number) => {
      catchUp.compare([{ joined: [topic('open')], isApart }]);
      await eventually('nothing waits', () => catchUp.state.waiting === 0 || undefined);
      await eventually('the fills', () => fills >= expected || undefined);
      expect(fills).toBe(expected);
    };
    await compare(false, 1);
    pass(299_000);
    await compare(false, 1);
    pass(1_000);
    await compare(false, 2);
    pass(60_000);
    await compare(false, 2);
    fillMs = 10_000;
    await compare(true, 3);
    // Both nodes took 20 s, so the next comparison is a thousand seconds later.
    pass(900_000);
    await compare(true, 3);
    pass(100_000);
    await compare(true, 4);
  });

  it('is filled by a relay that answers: since when', async () => {
    const catchUp = startCatchUp(async ({ url }) => {
      if (url !== 'ws://two.test') throw new Error('it is down');
    });
    const begunMs = steadyMs;
    catchUp.want([topic('open')], 'gap');
    await done(catchUp, 1);
    expect(catchUp.hasAnswered(['ws://two.test'], begunMs)).toBe(true);
    expect(catchUp.hasAnswered(['ws://two.test'], steadyMs + 1)).toBe(false);
    expect(catchUp.hasAnswered(['ws://one.test', 'ws://uno.test'], begunMs)).toBe(false);
  });

  it('of a topic that was left is forgotten, and a stop ends a fill', async () => {
    let ended = false;
    const catchUp = startCatchUp(
      ({ signal }) =>
        new Promise((_resolve, reject) => {
          signal.addEventListener('abort', () => {
            ended = true;
            reject(new Error('stopped'));
          });
        }),
    );
    catchUp.want([topic('open')], 'gap');
    await eventually('it runs', () => catchUp.state.waiting === 0 || undefined);
    catchUp.want([topic('brief')], 'gap');
    catchUp.keep(({ topic: name }) => name !== 'kukuri:brief');
    expect(catchUp.state.waiting).toBe(0);
    stop.abort();
    await catchUp.running;
    expect(ended).toBe(true);
  });
});
