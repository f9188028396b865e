/** `minato sync` and `minato peers` as programs: with and without a node, killed and run again, watching. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { changeSetting } from '../../src/communities/settings.sql.js';
import { eventually, runCli, startCli } from '../support/cli.js';
import { RawClient } from '../support/clients/client.js';
import { idsOf, openSyncing, type Syncing, someEvents, store } from '../support/domains/sync.js';
import { newAuthor, sign } from '../support/events.js';
import { startTestNode, type TestNode } from '../support/node.js';
import { createTestDatabase, type TestDatabase } from '../support/servers/database.js';

let peer: TestNode;
let filling: Syncing;

beforeAll(async () => {
  peer = await startTestNode({ jobs: [] });
  filling = await openSyncing(peer);
});
afterAll(async () => {
  await filling.close();
  await peer.close();
});

const envOf = ({ url, folder }: TestDatabase) => ({ DATABASE_URL: url, MINATO_DATA_DIR: folder });

async function setPeer(key: Parameters<typeof changeSetting>[1]['key'], value: unknown): Promise<void> {
  const { id } = peer.node.communities.find(undefined, undefined)!;
  await changeSetting(peer.database.pool, { community: id, key, value }, Date.now());
  await eventually(
    `${key} is changed`,
    () => peer.node.communities.get(id)!.settings[key] === value || undefined,
  );
}

async function exported(database: TestDatabase, filter: object): Promise<string[]> {
  const { stdout } = await runCli(['export', '--filter', JSON.stringify(filter)], envOf(database));
  const lines = stdout.split('\n').filter((line) => line !== '');
  return idsOf(lines.map((line) => JSON.parse(line) as { id: string }));
}

describe('minato sync', () => {
  it('works without a running node, reports, and finds nothing more the second time', async () => {
    const database = await createTestDatabase();
    const author = newAuthor();
    const events = someEvents(50, { author });
    await store(filling, events);
    const first = await runCli(['sync', peer.url], envOf(database));
    expect(first.stderr).toBe('');
    expect(first.code).toBe(0);
    expect(first.stdout).toMatch(/^stored +\d+$/m);
    expect(first.stdout).toMatch(/^negentropy, \d+ rounds/m);
    expect(await exported(database, { authors: [author.pubkey] })).toEqual(idsOf(events));
    const second = await runCli(['sync', peer.url], envOf(database));
    expect(second.stdout).toMatch(/^received +0$/m);
    await database.drop();
  });

  it('beside a running node: its subscribers get the events live', async () => {
    const node = await startTestNode({ jobs: [] });
    const author = newAuthor();
    const client = await RawClient.connect(node.url);
    client.send(['REQ', 'live', { authors: [author.pubkey] }]);
    await client.waitFor(([type]) => type === 'EOSE');
    const events = someEvents(5, { author });
    await store(filling, events);
    const { code } = await runCli(['sync', peer.url], envOf(node.test));
    expect(code).toBe(0);
    await client.until(() => client.frames.filter(([type]) => type === 'EVENT').length === 5);
    await client.close();
    await node.close();
  });

  for (const method of ['negentropy', 'pages'] as const) {
    it(`by ${method}: killed in the middle, it continues when it is run again`, async () => {
      await setPeer('limits.negentropySessionsMax', method === 'negentropy' ? 10 : 0);
      const database = await createTestDatabase();
      const author = newAuthor();
      const events = someEvents(4_000, { author });
      await store(filling, events);
      const looking = await startTestNode({ on: database, jobs: [], roles: ['api'] });
      const running = startCli(['sync', peer.url], envOf(database));
      const stored = async () => {
        const { rows } = await looking.database.pool.query<{ count: number }>(
          'SELECT count(*) AS count FROM events',
        );
        return Number(rows[0]!.count);
      };
      await eventually('some events are stored', async () => ((await stored()) > 100 ? true : undefined));
      running.child.kill('SIGKILL');
      await running.ended;
      const before = await stored();
      const { code, stdout } = await runCli(['sync', peer.url], envOf(database));
      expect(code).toBe(0);
      const all = await stored();
      expect(all).toBeGreaterThanOrEqual(4_000);
      const again = Number(/^stored +([\d,]+)$/m.exec(stdout)![1]!.replaceAll(',', ''));
      expect(again).toBeLessThanOrEqual(all - before);
      expect(await exported(database, { authors: [author.pubkey] })).toEqual(idsOf(events));
      await looking.close();
      await database.drop();
    });
  }

  it('--watch follows new events both ways, until it is interrupted', async () => {
    await setPeer('limits.negentropySessionsMax', 10);
    const node = await startTestNode({ jobs: [] });
    const running = startCli(
      ['sync', peer.url, '--watch', '--direction', 'both', '--since', '1h'],
      envOf(node.test),
    );
    const author = newAuthor();
    const [here, there] = await Promise.all([RawClient.connect(node.url), RawClient.connect(peer.url)]);
    const isServed = async (client: RawClient, { id }: { id: string }) =>
      (await client.query({ ids: [id] })).events.length === 1 || undefined;
    const first = sign(author);
    await there.publish(first);
    await eventually('the event of the peer is here', () => isServed(here, first));
    const second = sign(author);
    await here.publish(second);
    await eventually('the event of this node is there', () => isServed(there, second));
    const request = sign(author, { kind: 5, tags: [['e', first.id]] });
    await there.publish(request);
    await eventually('the deletion is here', async () => ((await isServed(here, first)) ? undefined : true));
    running.child.kill('SIGINT');
    expect((await running.ended).code).toBe(130);
    await here.close();
    await there.close();
    await node.close();
  });

  it('refuses what is no address, and says how an unreachable peer ended', async () => {
    const database = await createTestDatabase();
    expect((await runCli(['sync', 'https://example.org'], envOf(database))).stderr).toMatch(/ws:\/\//);
    const { code, stderr } = await runCli(['sync', 'ws://127.0.0.1:1'], envOf(database));
    expect(code).toBe(1);
    expect(stderr).toMatch(/Not complete: ws:\/\/127\.0\.0\.1:1\/ cannot be reached/);
    await database.drop();
  });
});

describe('minato peers', () => {
  it('adds, changes, lists and removes', async () => {
    const database = await createTestDatabase();
    const env = envOf(database);
    const url = 'wss://relay.example.org/';
    expect((await runCli(['peers'], env)).stdout).toMatch(/^No peers/);
    const added = await runCli(['peers', 'add', 'wss://relay.example.org', '--every', '30'], env);
    expect(added.stdout).toMatch(/every 30 min, everything; not synced yet/);
    await runCli(['peers', 'add', url, '--direction', 'both', '--topic', 'kukuri:a'], env);
    const { stdout } = await runCli(['peers', 'list', '--json'], env);
    expect(JSON.parse(stdout)).toEqual({
      url,
      direction: 'both',
      everyMinutes: 15,
      topics: ['kukuri:a'],
      last: null,
    });
    expect((await runCli(['peers', 'remove', url], env)).code).toBe(0);
    expect((await runCli(['peers', 'remove', url], env)).stderr).toMatch(/is not a peer/);
    expect((await runCli(['peers', 'add', 'ws://user:secret@example.org'], env)).code).toBe(1);
    await database.drop();
  });
});
