/** One process can have all roles, or several can share them: each role does its own part only. */
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { ROLES } from '../../src/node/roles.js';
import { runCli } from '../support/cli.js';
import { RawClient } from '../support/clients/client.js';
import { newAuthor, sign } from '../support/events.js';
import { startTestNode, type TestNode } from '../support/node.js';

let relay: TestNode;
let api: TestNode;
let worker: TestNode;
const clients: RawClient[] = [];

beforeAll(async () => {
  relay = await startTestNode({ roles: ['relay'] });
  api = await startTestNode({ roles: ['api'], on: relay.test });
  worker = await startTestNode({ roles: ['worker'], on: relay.test });
});
afterAll(async () => {
  await Promise.all(clients.map((client) => client.close()));
  for (const node of [worker, api, relay]) await node.close();
});

const status = async ({ http }: TestNode, path: string) => (await fetch(http + path)).status;
const canConnect = async ({ url }: TestNode) => {
  try {
    clients.push(await RawClient.connect(url));
    return true;
  } catch {
    return false;
  }
};

describe('each role', () => {
  it('reports that it is alive and ready', async () => {
    for (const node of [relay, api, worker]) {
      for (const path of ['/healthz', '/readyz', '/metrics']) expect(await status(node, path)).toBe(200);
    }
  });

  it('the relay accepts sockets and has no API', async () => {
    expect(await canConnect(relay)).toBe(true);
    expect(await status(relay, '/v1/topics')).toBe(404);
    expect(await status(relay, '/docs')).toBe(404);
    const accept = { headers: { accept: 'application/nostr+json' } };
    const { supported_nips } = (await (await fetch(relay.http, accept)).json()) as {
      supported_nips: number[];
    };
    expect(supported_nips).toContain(42);
    expect(supported_nips).not.toContain(86);
  });

  it('the API answers and accepts no sockets', async () => {
    expect(await status(api, '/v1/topics')).toBe(200);
    expect(await canConnect(api)).toBe(false);
  });

  it('the worker does neither, and alone runs the jobs', async () => {
    expect(await status(worker, '/v1/topics')).toBe(404);
    expect(await canConnect(worker)).toBe(false);
    expect(relay.node.schedule).toBeUndefined();
    expect(api.node.schedule).toBeUndefined();
    expect(worker.node.schedule).toBeDefined();
  });
});

it('the worker sweeps events that expire at the relay', async () => {
  const client = await RawClient.connect(relay.url);
  clients.push(client);
  const soon = Math.floor(Date.now() / 1_000) + 2;
  const event = sign(newAuthor(), { tags: [['expiration', `${soon}`]] });
  expect(await client.publish(event)).toEqual([true, '']);
  const swept = async () => {
    // The schedule may still be starting.
    await worker.node.schedule!.trigger('expire').catch(() => undefined);
    const { rows } = await relay.database.pool.query(
      "SELECT 1 FROM events_outbox WHERE event_id = $1 AND reason = 'expiration'",
      [Buffer.from(event.id, 'hex')],
    );
    return rows.length === 1;
  };
  await vi.waitUntil(swept, { timeout: 30_000, interval: 500 });
});

it('an unknown role is an error that names the existing roles', async () => {
  const { code, stderr } = await runCli(['serve', '--roles', 'relay,captain'], {});
  expect(code).not.toBe(0);
  expect(stderr).toContain('captain');
  for (const role of ROLES) expect(stderr).toContain(role);
});
