/**
 * PostgreSQL restarts, or its replica takes over, while clients post. With `synchronous_standby_names`
 * nothing that was acknowledged is lost (I1).
 */
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { eventually } from '../support/cli.js';
import { Poster } from '../support/clients/poster.js';
import { startTestNode, type TestNode } from '../support/node.js';
import type { TestDatabase } from '../support/servers/database.js';
import { MovingAddress } from '../support/servers/moving-address.js';
import { type PostgresServer, Replicated } from '../support/servers/replicated.js';

let servers: Replicated;
let address: MovingAddress;
let nodes: TestNode[];

beforeAll(async () => {
  servers = await Replicated.start();
  address = await MovingAddress.start(servers.primary.port);
  const { port } = address;
  const on: TestDatabase = {
    connection: { host: '127.0.0.1', port, user: 'minato', database: 'minato' },
    url: `postgres://minato@127.0.0.1:${port}/minato`,
    folder: join(servers.folder, 'node'),
    drop: async () => undefined,
  };
  const env = { DATABASE_URL: on.url, MINATO_LOG_LEVEL: 'silent' };
  nodes = [await startTestNode({ on, env }), await startTestNode({ on, env, roles: ['relay'] })];
});
afterAll(async () => {
  for (const node of nodes ?? []) await node.close();
  address?.stop();
  await servers?.stop();
});

async function postDuring(disturb: () => Promise<void>, holder: () => PostgresServer): Promise<void> {
  const posters = [...nodes, ...nodes].map(({ url }) => new Poster(url));
  const allPost = (more: number) => {
    const from = posters.map(({ acknowledged }) => acknowledged.length);
    return eventually(
      'all post',
      () => posters.every((each, at) => each.acknowledged.length > from[at]! + more) || undefined,
    );
  };
  await allPost(5);
  await disturb();
  await allPost(5);
  await Promise.all(posters.map((each) => each.stop()));
  for (const { author, acknowledged } of posters) {
    const rows = await holder().sql<{ id: string }>(
      `SELECT encode(id, 'hex') AS id FROM events WHERE pubkey = '\\x${author.pubkey}'`,
    );
    expect(rows.map(({ id }) => id)).toEqual(expect.arrayContaining(acknowledged));
  }
}

it('a restart of PostgreSQL under load loses nothing that was acknowledged', async () => {
  await postDuring(
    async () => {
      await servers.primary.goDown();
      await servers.primary.comeUp();
    },
    () => servers.primary,
  );
});

it('a synchronous replica that takes over has everything that was acknowledged', async () => {
  const { primary, replica } = servers;
  await primary.sql("ALTER SYSTEM SET synchronous_standby_names = 'replica'");
  await primary.sql('SELECT pg_reload_conf()');
  await eventually('it is synchronous', async () => {
    const rows = await primary.sql<{ state: string }>('SELECT sync_state AS state FROM pg_stat_replication');
    return rows[0]?.state === 'sync' || undefined;
  });
  await postDuring(
    async () => {
      await primary.goDown('SIGKILL');
      await replica.sql('SELECT pg_promote()');
      address.moveTo(replica.port);
    },
    () => replica,
  );
  // Each node reads the outbox of the new primary to its end.
  const [{ head } = { head: 0 }] = await replica.sql<{ head: number }>(
    'SELECT last_seq::int AS head FROM lane_state',
  );
  for (const { node } of nodes)
    await eventually('live delivery goes on', () => node.fanout.passed >= head || undefined);
});
