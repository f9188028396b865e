/**
 * Three instances with their events in DynamoDB get the same ids, replacements and deletions at once, in any
 * order. One is behind a proxy that throttles, fails and loses answers at every call site; one is killed. A
 * naive model says what is served in the end (I3–I6), and a subscription gets each event once (I10).
 */
import { afterAll, beforeAll, expect, it } from 'vitest';
import type { NostrEvent } from '../../src/events/rules/event.js';
import { eventually, type RunningCli, startCli } from '../support/cli.js';
import { RawClient } from '../support/clients/client.js';
import { type Draft, newAuthor, nowSeconds, sign } from '../support/events.js';
import { modelView, SEED } from '../support/models/event-model.js';
import { startTestNode, type TestNode } from '../support/node.js';
import { createTestDatabase, type TestDatabase } from '../support/servers/database.js';
import { CREDENTIALS, DynamodbProxy, sharedDynamodb } from '../support/servers/dynamodb.js';
import { freePort } from '../support/servers/free-port.js';
import { READY } from '../support/servers/templates.js';

const EVENTS = 80;
const AT_ONCE = 15;
/** Of 100 requests: throttled, failed, done without an answer. */
const FAULTS = { throttled: 12, failed: 8, lost: 4 };

let test: TestDatabase;
let proxy: DynamodbProxy;
let nodes: TestNode[];
let killed: RunningCli;
let clients: RawClient[];

/** The same numbers in each run. */
let state = SEED;
const random = (below: number): number => {
  state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
  return Math.floor((state / 2 ** 32) * below);
};
const oneOf = <T>(list: readonly T[]): T => list[random(list.length)]!;

beforeAll(async () => {
  test = await createTestDatabase(READY);
  const { url } = await sharedDynamodb();
  proxy = await DynamodbProxy.start(url);
  const options = { on: test, store: 'dynamodb', jobs: [], consumers: [] } as const;
  // Started first, it holds the lease of the stream.
  const faulty = await startTestNode({ ...options, endpoint: proxy.place().endpoint });
  await eventually('it reads the stream', () => proxy.seen.includes('GetRecords') || undefined);
  nodes = [await startTestNode(options), faulty];
  const port = await freePort();
  killed = startCli(['serve'], {
    ...CREDENTIALS,
    DATABASE_URL: test.url,
    MINATO_DATA_DIR: `${test.folder}-3`,
    MINATO_PORT: `${port}`,
    MINATO_LOG_LEVEL: 'error',
    MINATO_EVENT_STORE: 'dynamodb',
    DYNAMODB_ENDPOINT: url,
    MINATO_DYNAMODB_PREFIX: `${test.connection.database}_`,
  });
  const third = await eventually('the third instance serves', () =>
    RawClient.connect(`ws://127.0.0.1:${port}`).catch(() => undefined),
  );
  clients = [...(await Promise.all(nodes.map((node) => RawClient.connect(node.url)))), third];
});
afterAll(async () => {
  proxy.interfere = () => undefined;
  for (const client of clients ?? []) await client.close();
  killed?.child.kill('SIGKILL');
  await killed?.ended;
  for (const node of nodes ?? []) await node.close();
  await proxy?.stop();
  await test?.drop();
});

/** Few keys, times and targets, so that most events meet others. */
function drafts(): NostrEvent[] {
  const authors = [newAuthor(), newAuthor()];
  const made: NostrEvent[] = [];
  const start = nowSeconds() - 100;
  for (let at = 0; at < EVENTS; at += 1) {
    const author = oneOf(authors);
    const created_at = start + random(20);
    const address = (kind: number, d: string) => `${kind}:${oneOf(authors).pubkey}:${d}`;
    const d = oneOf(['', 'a']);
    const earlier = made.length === 0 ? 'f'.repeat(64) : oneOf(made).id;
    const draft = oneOf<Draft>([
      { kind: 1, tags: [['t', oneOf(['sea', 'wind'])]] },
      { kind: 1, tags: [['t', 'sea']] },
      { kind: 0, tags: [] },
      { kind: 30_000, tags: [['d', d]] },
      { kind: 5, tags: [['e', earlier]] },
      { kind: 5, tags: [['a', oneOf([address(0, ''), address(30_000, d)])]] },
    ]);
    made.push(sign(author, { ...draft, created_at, content: `${at}` }));
  }
  return made;
}

/** Until an instance has answered that it has the event, or that it refuses it for good. */
async function deliver(event: NostrEvent, by: number): Promise<string> {
  for (let tries = 0; tries < 30; tries += 1) {
    const client = clients[clients[by]!.closed === undefined ? by : 0]!;
    const noAnswer = [false, 'error: the instance was killed'] as const;
    const closed = client.until(() => client.closed !== undefined, 60_000).then(() => noAnswer);
    closed.catch(() => undefined);
    const [accepted, words] = await Promise.race([client.publish(event), closed]).catch(() => noAnswer);
    if (accepted || !words.startsWith('error:')) return words;
  }
  throw new Error('no instance has taken the event');
}

it('the view is that of the model, and a subscription gets each event once', {
  timeout: 180_000,
}, async () => {
  const sent = drafts();
  const authors = [...new Set(sent.map(({ pubkey }) => pubkey))];
  for (const client of clients.slice(0, 2)) {
    client.send(['REQ', 'live', { authors }]);
    await client.waitFor(([verb, sub]) => verb === 'EOSE' && sub === 'live');
  }
  const hit = new Set<string>();
  const faulty = ({ operation }: { operation: string }) => {
    const [throttled, failed] = [FAULTS.throttled, FAULTS.throttled + FAULTS.failed];
    // The first call of each kind surely fails, however few there are.
    const dice = random(hit.has(operation) ? 100 : failed + FAULTS.lost);
    if (dice >= failed + FAULTS.lost) return undefined;
    hit.add(operation);
    if (dice < throttled) return { refuse: 'ProvisionedThroughputExceededException' };
    return dice < failed ? { refuse: 'InternalServerError' } : { loseAnswer: true };
  };
  proxy.interfere = faulty;
  const replies = new Map<string, string[]>();
  const queue = [...sent, ...sent].sort(() => random(2) - 0.5);
  for (let at = 0; at < queue.length; at += AT_ONCE) {
    const group = queue.slice(at, at + AT_ONCE);
    const sending = group.map(async (event) => {
      // The same id at two instances at the same moment.
      const by = random(3);
      const words = await Promise.all([deliver(event, by), deliver(event, (by + 1) % 3)]);
      replies.set(event.id, [...(replies.get(event.id) ?? []), ...words]);
    });
    // While its events are under way.
    if (at >= queue.length / 2) killed.child.kill('SIGKILL');
    await Promise.all(sending);
  }
  expect([...hit].sort()).toEqual(expect.arrayContaining(CALLS));

  proxy.interfere = () => undefined;
  const model = modelView(
    sent.map((event) => ({ community: 0, event, clock: nowSeconds() })),
    0,
    nowSeconds(),
  );
  const expected = [...model.keys()].sort();
  for (const client of clients.slice(0, 2)) {
    const { events } = await client.query({ authors, limit: 500 });
    expect(events.map(({ id }) => id).sort()).toEqual(expected);
  }
  // I6: what is deleted stays out, whoever is asked.
  for (const event of sent.filter(({ id, kind }) => kind === 1 && !model.has(id)).slice(0, 10))
    expect(await clients[0]!.publish(event)).toEqual([false, 'blocked: deleted by its author']);
  // I10
  const got = (client: RawClient) =>
    client.frames.flatMap(([verb, sub, event]) =>
      verb === 'EVENT' && sub === 'live' ? [(event as { id: string }).id] : [],
    );
  for (const client of clients.slice(0, 2)) {
    await eventually('everything that is served was delivered', () => {
      const ids = new Set(got(client));
      return expected.every((id) => ids.has(id)) || undefined;
    });
    expect(got(client).length).toBe(new Set(got(client)).size);
  }
});

/** Every call site of a write, a read and the stream, except those that need more than this test does. */
const CALLS = [
  'BatchGetItem',
  'BatchWriteItem',
  'GetRecords',
  'PutItem',
  'Query',
  'TransactWriteItems',
  'UpdateItem',
];
