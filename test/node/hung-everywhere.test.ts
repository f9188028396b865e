/**
 * I15, everywhere: each peer in turn is frozen (SIGSTOP), and every frame of the relay, every operation of
 * the OpenAPI document and the other routes get an answer within their bounds of docs/bounds.md, never 500.
 * hung-peers.test.ts has what each answer is, and that everything works again afterwards;
 * hung-event-store.test.ts has the events in DynamoDB.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { eventually } from '../support/cli.js';
import { type OpenApi, readOpenApi } from '../support/clients/api.js';
import {
  askEveryRoute,
  connectForEverything,
  sendEveryFrame,
  tooLate,
} from '../support/clients/everything.js';
import { newAuthor } from '../support/events.js';
import { startTestNode, type TestNode } from '../support/node.js';
import { TestDynamodb } from '../support/servers/dynamodb.js';
import { TestPostgres } from '../support/servers/postgres.js';
import { TestRedis } from '../support/servers/redis.js';

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

const readiness = async () => (await fetch(`${relay.http}/readyz`)).status;

describe.each(['redis', 'dynamodb', 'postgres'] as const)('while %s hangs', (name) => {
  it('every frame and every route is answered in time', async () => {
    const peer = { redis, dynamodb, postgres }[name];
    const client = await connectForEverything(relay);
    peer.freeze();
    try {
      const [frames, routes] = await Promise.all([
        sendEveryFrame(client, relay, boss),
        askEveryRoute(relay, document, boss),
      ]);
      expect(tooLate([...frames, ...routes])).toEqual([]);
      const statuses = new Map(routes.map((route) => [route.name, route.answer]));
      expect(statuses.size).toBeGreaterThan(150);
      expect([...statuses].filter(([, status]) => status === 500)).toEqual([]);
      for (const quick of ['/healthz', '/ (NIP-11)', '/docs/json'])
        expect(statuses.get(quick), quick).toBe(200);
      // The last answer is used for half a second.
      await eventually(
        '/readyz tells whether the database answers',
        async () => (await readiness()) === (name === 'postgres' ? 503 : 200) || undefined,
      );
      if (name !== 'postgres') expect(frames[0]!.answer).toEqual(['OK', expect.any(String), true, '']);
    } finally {
      peer.thaw();
    }
    await eventually('it is ready again', async () => (await readiness()) === 200 || undefined);
    await client.close();
  });
});
