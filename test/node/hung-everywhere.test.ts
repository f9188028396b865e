/**
 * I15, everywhere: each peer in turn is frozen (SIGSTOP), and every frame of the relay and every GET route of
 * the OpenAPI document gets an answer within the bound of docs/bounds.md, never 500. hung-peers.test.ts has
 * what each answer is, and that everything works again afterwards.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { eventually } from '../support/cli.js';
import { authorization, credential, type OpenApi, readOpenApi } from '../support/clients/api.js';
import { RawClient } from '../support/clients/client.js';
import { newAuthor, sign } from '../support/events.js';
import { startTestNode, type TestNode } from '../support/node.js';
import { TestDynamodb } from '../support/servers/dynamodb.js';
import { TestPostgres } from '../support/servers/postgres.js';
import { TestRedis } from '../support/servers/redis.js';

/** Longer than any bound: a batch of the lane is tried again for 30 s, with statements of 25 s. */
const HANGS_MS = 100_000;
const ID = '0'.repeat(64);
const UUID = '00000000-0000-4000-8000-000000000000';
const boss = newAuthor();

let redis: TestRedis;
let dynamodb: TestDynamodb;
let postgres: TestPostgres;
let relay: TestNode;
let document: OpenApi;

beforeAll(async () => {
  [redis, dynamodb, postgres] = await Promise.all([
    TestRedis.start(),
    TestDynamodb.start(),
    TestPostgres.start(),
  ]);
  const env = {
    REDIS_URL: redis.url,
    DYNAMODB_ENDPOINT: dynamodb.url,
    MINATO_ADMIN_PUBKEYS: boss.pubkey,
    MINATO_LOG_LEVEL: 'silent',
  };
  relay = await startTestNode({ env, on: postgres.database });
  document = await readOpenApi(relay.http);
});
afterAll(async () => {
  for (const peer of [redis, dynamodb, postgres]) peer?.thaw();
  await relay?.close();
  await Promise.all([redis?.stop(), dynamodb?.stop(), postgres?.stop()]);
});

/** GET routes with values for their parameters; a stream that follows without end is not one of them. */
function pathsToGet(): string[] {
  const paths = Object.entries(document.paths).flatMap(([path, methods]) => (methods.get ? [path] : []));
  const placeholderOf = (name: string) => (/_id$/.test(name) && !/topic|event/.test(name) ? UUID : ID);
  const isStream = (path: string) => /\/progress$|\/live$/.test(path);
  return paths
    .filter((path) => !isStream(path))
    .map((path) => path.replace(/\{([^}]+)\}/g, (_, name: string) => placeholderOf(name)));
}

/** Status by path. Without an answer in time it rejects. */
async function getEverything(): Promise<Map<string, number>> {
  const paths = [...pathsToGet(), '/healthz', '/readyz', '/', '/stats'];
  const answers = await Promise.all(
    paths.map(async (path) => {
      const url = relay.http + path;
      const headers = { authorization: authorization(credential(boss, { method: 'GET', url })) };
      const answer = await fetch(url, { headers, signal: AbortSignal.timeout(HANGS_MS) });
      await answer.text();
      return [path, answer.status] as const;
    }),
  );
  return new Map(answers);
}

/** The answer to each frame of a client. */
async function sendEveryFrame(client: RawClient): Promise<unknown[][]> {
  const event = sign(newAuthor(), { content: 'hello' });
  const challenge = client.challenge ?? 'none';
  const auth = sign(boss, {
    kind: 22_242,
    tags: [
      ['relay', relay.url],
      ['challenge', challenge],
    ],
  });
  const frames: [unknown[], (frame: unknown[]) => boolean][] = [
    [['EVENT', event], ([verb, id]) => verb === 'OK' && id === event.id],
    [['REQ', 'r', { kinds: [1], since: 1 }], ([verb, id]) => /EOSE|CLOSED/.test(`${verb}`) && id === 'r'],
    [['REQ', 's', { search: 'hello' }], ([verb, id]) => /EOSE|CLOSED/.test(`${verb}`) && id === 's'],
    [['REQ', 'c', { kinds: [1], cursor: '' }], ([verb, id]) => /EOSE|CLOSED/.test(`${verb}`) && id === 'c'],
    [['COUNT', 'n', { kinds: [1], since: 1 }], ([verb, id]) => /COUNT|CLOSED/.test(`${verb}`) && id === 'n'],
    [['NEG-OPEN', 'g', { kinds: [1] }, '6100000200'], ([verb]) => /^NEG-|NOTICE/.test(`${verb}`)],
    [['AUTH', auth], ([verb, id]) => verb === 'OK' && id === auth.id],
  ];
  const from = client.frames.length;
  for (const [frame] of frames) client.send(frame);
  return Promise.all(frames.map(([, isAnswer]) => client.waitFor(isAnswer, from, HANGS_MS)));
}

describe.each(['redis', 'dynamodb', 'postgres'] as const)('while %s hangs', (name) => {
  it('every frame and every route is answered', { timeout: 3 * HANGS_MS }, async () => {
    const peer = { redis, dynamodb, postgres }[name];
    const client = await RawClient.connect(relay.url);
    client.askForChallenge();
    await client.until(() => client.challenge !== undefined);
    peer.freeze();
    try {
      const [answers, statuses] = await Promise.all([sendEveryFrame(client), getEverything()]);
      expect(answers).toHaveLength(7);
      expect(statuses.size).toBeGreaterThan(40);
      expect([...statuses].filter(([, status]) => status === 500)).toEqual([]);
      expect(statuses.get('/healthz')).toBe(200);
      // The last answer is used for half a second.
      await eventually('/readyz tells whether the database answers', async () => {
        const { status } = await fetch(`${relay.http}/readyz`);
        return status === (name === 'postgres' ? 503 : 200) || undefined;
      });
      if (name !== 'postgres') expect(answers[0]).toEqual(['OK', expect.any(String), true, '']);
    } finally {
      peer.thaw();
    }
    await eventually('it is ready again', async () =>
      (await fetch(`${relay.http}/readyz`)).status === 200 ? true : undefined,
    );
    await client.close();
  });
});
