/**
 * I15 with the events in DynamoDB, while it is frozen (SIGSTOP): every frame and every route is answered
 * within its bound of docs/bounds.md, a failure is never a success (I2), and everything works afterwards.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { eventually } from '../support/cli.js';
import { type OpenApi, readOpenApi } from '../support/clients/api.js';
import { RawClient } from '../support/clients/client.js';
import {
  askEveryRoute,
  connectForEverything,
  sendEveryFrame,
  tooLate,
} from '../support/clients/everything.js';
import { newAuthor, sign } from '../support/events.js';
import { startTestNode, type TestNode } from '../support/node.js';
import { createTestDatabase, type TestDatabase } from '../support/servers/database.js';
import { createTables, TestDynamodb } from '../support/servers/dynamodb.js';
import { READY } from '../support/servers/templates.js';

const boss = newAuthor();

let dynamodb: TestDynamodb;
let database: TestDatabase;
let relay: TestNode;
let document: OpenApi;

beforeAll(async () => {
  [dynamodb, database] = await Promise.all([TestDynamodb.start(), createTestDatabase(READY)]);
  const prefix = `${database.connection.database}_`;
  await createTables({ endpoint: dynamodb.url, region: 'us-east-1', prefix });
  const env = { MINATO_ADMIN_PUBKEYS: boss.pubkey, MINATO_LOG_LEVEL: 'silent' };
  relay = await startTestNode({ env, on: database, store: 'dynamodb', endpoint: dynamodb.url });
  document = await readOpenApi(relay.http);
});
afterAll(async () => {
  dynamodb?.thaw();
  await relay?.close();
  await dynamodb?.stop();
  await database?.drop();
});

const readiness = async () => (await fetch(`${relay.http}/readyz`)).status;

describe('while the DynamoDB that has the events hangs', () => {
  it('every frame and every route is answered in time, and everything works afterwards', async () => {
    const client = await connectForEverything(relay);
    const reader = await RawClient.connect(relay.url);
    const before = sign(newAuthor(), { content: 'before' });
    expect(await client.publish(before)).toEqual([true, '']);
    dynamodb.freeze();
    try {
      const [frames, routes] = await Promise.all([
        sendEveryFrame(client, relay, boss),
        askEveryRoute(relay, document, boss),
      ]);
      expect(tooLate([...frames, ...routes])).toEqual([]);
      const answers = new Map(frames.map((frame) => [frame.name, frame.answer]));
      const unread = expect.stringMatching(/^error: events could not be read/);
      expect(answers.get('EVENT')).toEqual(['OK', expect.any(String), false, 'error: failed to store event']);
      expect(answers.get('REQ')).toEqual(['CLOSED', 'r', unread]);
      expect(answers.get('COUNT')).toEqual(['CLOSED', 'n', unread]);
      expect(answers.get('AUTH')).toEqual(['OK', expect.any(String), true, '']);
      const statuses = new Map(routes.map((route) => [route.name, route.answer]));
      expect(statuses.size).toBeGreaterThan(150);
      expect([...statuses].filter(([, status]) => status === 500)).toEqual([]);
      for (const quick of ['/healthz', '/ (NIP-11)', '/docs/json'])
        expect(statuses.get(quick), quick).toBe(200);
      // What is in PostgreSQL is served.
      for (const path of ['/v1/admin/members', '/v1/admin/settings']) expect(statuses.get(path)).toBe(200);
      expect(statuses.get('/v1/admin/events')).toBe(503);
      await eventually('/readyz asks for the tables', async () => (await readiness()) === 503 || undefined);
    } finally {
      dynamodb.thaw();
    }
    await eventually('it is ready again', async () => (await readiness()) === 200 || undefined);
    const event = sign(newAuthor(), { content: 'after' });
    await eventually('events are stored again', async () => (await client.publish(event))[0] || undefined);
    const { events } = await reader.query({ ids: [before.id, event.id] });
    expect(new Set(events)).toEqual(new Set([before, event]));
    await Promise.all([client.close(), reader.close()]);
  });
});
