/**
 * Stored events are read from a real streaming replica only while nobody can tell the difference: own writes
 * are seen, deleted events are not served, and a replica that lags, hangs or is dead only costs its reads.
 */
import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { nip77 } from 'nostr-tools';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { readConfig } from '../../src/node/config.js';
import { openDatabase } from '../../src/postgres/database.js';
import { eventually, runCli } from '../support/cli.js';
import { RawClient } from '../support/clients/client.js';
import { Follower } from '../support/clients/follower.js';
import { newAuthor, sign } from '../support/events.js';
import { startTestNode, type TestNode, useWindow } from '../support/node.js';
import type { TestDatabase } from '../support/servers/database.js';
import { createTestDatabase } from '../support/servers/database.js';
import { Replicated } from '../support/servers/replicated.js';

let servers: Replicated;
let node: TestNode;
let client: RawClient;

const on = (): TestDatabase => ({
  connection: { host: '127.0.0.1', port: servers.primary.port, user: 'minato', database: 'minato' },
  url: servers.primary.url,
  folder: join(servers.folder, 'node'),
  drop: async () => undefined,
});

beforeAll(async () => {
  servers = await Replicated.start();
  const env = { DATABASE_URL: servers.primary.url, DATABASE_READ_URL: servers.replica.url };
  node = await startTestNode({ on: on(), env });
  // Nothing from memory: every read asks a database.
  await useWindow(node, 0);
  client = await RawClient.connect(node.url);
});
afterEach(async () => {
  servers.replica.thaw();
  await servers.replica.sql('SELECT pg_wal_replay_resume()');
  await isUsedAgain();
});
afterAll(async () => {
  await client?.close();
  await node?.close();
  await servers?.stop();
});

const reads = async (result: string): Promise<number> => {
  const { values } = await node.node.metrics.replicaReads.get();
  return values.find(({ labels }) => labels.result === result)?.value ?? 0;
};
const isUsed = async () => (await node.node.metrics.replicaUsed.get()).values[0]!.value === 1;
const isUsedAgain = () =>
  eventually('the replica is used', async () => {
    await client.query({ ids: [randomBytes(32).toString('hex')] });
    return (await isUsed()) || undefined;
  });

const idsOf = async (...filters: unknown[]) => (await client.query(...filters)).events.map(({ id }) => id);

it('reads go to the replica, and each sees what was acknowledged before it', async () => {
  const author = newAuthor();
  const served = await reads('served');
  for (let place = 0; place < 50; place++) {
    const event = sign(author, { content: `${place}` });
    expect(await client.publish(event)).toEqual([true, '']);
    expect(await idsOf({ ids: [event.id] })).toEqual([event.id]);
    client.send(['COUNT', `c${place}`, { authors: [author.pubkey] }]);
    const count = await client.waitFor((frame) => frame[0] === 'COUNT' && frame[1] === `c${place}`);
    expect(count[2]).toEqual({ count: place + 1 });
  }
  // Two reads of each round; on a busy machine the replica may have been late for some.
  expect(await reads('served')).toBeGreaterThan(served);
});

/** The ids that NIP-77 finds for a client that has nothing. */
async function neededBy(filter: object): Promise<string[]> {
  const storage = new nip77.NegentropyStorageVector();
  storage.seal();
  const client77 = new nip77.Negentropy(storage);
  const from = client.frames.length;
  client.send(['NEG-OPEN', 'walk', filter, client77.initiate()]);
  const [verb, , message] = await client.waitFor((frame) => frame[1] === 'walk', from);
  expect(verb, String(message)).toBe('NEG-MSG');
  const needed: string[] = [];
  client77.reconcile(
    String(message),
    () => undefined,
    (id) => needed.push(id),
  );
  client.send(['NEG-CLOSE', 'walk']);
  return needed.sort();
}

describe.each([
  ['a replica that keeps up', async () => undefined],
  ['a replica whose replay is paused', () => servers.replica.sql('SELECT pg_wal_replay_pause()')],
])('%s', (name, disturb) => {
  it('a client that comes back gets every change, and negentropy finds the same', async () => {
    const author = newAuthor();
    const filter = { authors: [author.pubkey] };
    const follower = new Follower([filter]);
    await follower.connect(node.url);
    const events = Array.from({ length: 5 }, (_, place) => sign(author, { content: `${place}` }));
    for (const event of events.slice(0, 3)) expect(await client.publish(event)).toEqual([true, '']);
    await follower.client!.until(() => follower.apply() && follower.held.size === 3);
    await follower.leave();
    await disturb();
    for (const event of events.slice(3)) expect(await client.publish(event)).toEqual([true, '']);
    const request = sign(author, { kind: 5, tags: [['e', events[0]!.id]] });
    expect(await client.publish(request)).toEqual([true, '']);
    const before = await reads('served');
    expect((await follower.connect(node.url))[0]).toBe('EOSE');
    const shown = [...events.slice(1), request].map(({ id }) => id).sort();
    expect([...follower.held.keys()].sort()).toEqual(shown);
    expect(follower.doubles).toBe(0);
    expect(await neededBy(filter)).toEqual(shown);
    if (name.endsWith('keeps up')) expect(await reads('served')).toBeGreaterThan(before);
    await follower.leave();
  });
});

it('a cursor whose changes are trimmed is refused, and does not put the replica to rest', async () => {
  const author = newAuthor();
  const follower = new Follower([{ authors: [author.pubkey] }]);
  await follower.connect(node.url);
  await follower.leave();
  expect(await client.publish(sign(author))).toEqual([true, '']);
  await eventually('every consumer has read it', async () => {
    const late = await servers.primary.sql(
      'SELECT FROM consumer_offsets o JOIN lane_state s ON o.last_seq < s.last_seq',
    );
    return late.length === 0 || undefined;
  });
  await servers.primary.sql('UPDATE lane_state SET outbox_floor = last_seq + 1');
  const failed = await reads('failed');
  try {
    await eventually('the replica has it', async () => {
      const rows = await servers.replica.sql<{ trimmed: boolean }>(
        'SELECT outbox_floor > last_seq AS trimmed FROM lane_state',
      );
      return rows[0]!.trimmed || undefined;
    });
    const [verb, , why] = await follower.connect(node.url);
    expect([verb, why]).toEqual(['CLOSED', expect.stringContaining('no longer kept')]);
    expect(await reads('failed')).toBe(failed);
    expect(await isUsed()).toBe(true);
  } finally {
    await servers.primary.sql('UPDATE lane_state SET outbox_floor = 1');
  }
  await follower.leave();
});

describe('a replica whose replay is paused', () => {
  it('serves no event after its deletion, and hides nothing that was acknowledged', async () => {
    const author = newAuthor();
    const [kept, deleted] = [sign(author, { content: 'kept' }), sign(author, { content: 'deleted' })];
    for (const event of [kept, deleted]) expect(await client.publish(event)).toEqual([true, '']);
    expect((await idsOf({ authors: [author.pubkey] })).sort()).toEqual([kept.id, deleted.id].sort());
    await servers.replica.sql('SELECT pg_wal_replay_pause()');
    const request = sign(author, { kind: 5, tags: [['e', deleted.id]] });
    expect(await client.publish(request)).toEqual([true, '']);
    const late = sign(author, { content: 'late' });
    expect(await client.publish(late)).toEqual([true, '']);
    // The replica still has it: without the check it would be served.
    const stale = await servers.replica.sql<{ hidden: number | null }>(
      `SELECT hidden FROM events WHERE id = '\\x${deleted.id}'`,
    );
    expect(stale).toEqual([{ hidden: null }]);
    expect((await idsOf({ authors: [author.pubkey] })).sort()).toEqual([kept.id, request.id, late.id].sort());
    expect(await idsOf({ ids: [deleted.id] })).toEqual([]);
    expect(await isUsed()).toBe(false);
    expect(await reads('behind')).toBeGreaterThan(0);
  });

  it('gives each subscription every event once, stored or live', async () => {
    const author = newAuthor();
    await servers.replica.sql('SELECT pg_wal_replay_pause()');
    const writer = await RawClient.connect(node.url);
    const events = Array.from({ length: 60 }, (_, place) => sign(author, { content: `${place}` }));
    const posting = (async () => {
      for (const [place, event] of events.entries()) {
        if (place === 30) await servers.replica.sql('SELECT pg_wal_replay_resume()');
        await writer.publish(event);
      }
    })();
    const names = Array.from({ length: 20 }, (_, place) => `s${place}`);
    for (const name of names) {
      client.send(['REQ', name, { authors: [author.pubkey] }]);
      await client.waitFor((frame) => frame[0] === 'EOSE' && frame[1] === name);
    }
    await posting;
    const got = (name: string) =>
      client.frames
        .filter((frame) => frame[0] === 'EVENT' && frame[1] === name)
        .map((frame) => (frame[2] as { id: string }).id);
    await client.until(() => names.every((name) => got(name).length >= events.length));
    const all = events.map(({ id }) => id).sort();
    for (const name of names) expect(got(name).sort()).toEqual(all);
    for (const name of names) client.send(['CLOSE', name]);
    await writer.close();
  });
});

describe('a replica that does not answer', () => {
  it('frozen: reads are answered by the primary, and it is used again afterwards', async () => {
    const event = sign(newAuthor());
    expect(await client.publish(event)).toEqual([true, '']);
    servers.replica.freeze();
    expect(await idsOf({ ids: [event.id] })).toEqual([event.id]);
    expect(await isUsed()).toBe(false);
    // Those after it do not wait for it.
    expect(await idsOf({ ids: [event.id] })).toEqual([event.id]);
    servers.replica.thaw();
    await isUsedAgain();
  });

  it('killed: reads are answered by the primary, and it is used again afterwards', async () => {
    const event = sign(newAuthor());
    expect(await client.publish(event)).toEqual([true, '']);
    await servers.replica.goDown('SIGKILL');
    expect(await idsOf({ ids: [event.id] })).toEqual([event.id]);
    expect(await isUsed()).toBe(false);
    await servers.replica.comeUp();
    await isUsedAgain();
    expect(await idsOf({ ids: [event.id] })).toEqual([event.id]);
  });
});

describe('the configuration', () => {
  it('of a database that is not its replica is refused', async () => {
    const other = await createTestDatabase();
    const database = openDatabase(other.connection);
    try {
      await database.pool.query(
        "INSERT INTO node_state (key, value) VALUES ('tag_hash_seed', '7') ON CONFLICT (key) DO NOTHING",
      );
      const env = { DATABASE_URL: servers.primary.url, DATABASE_READ_URL: other.url };
      await expect(startTestNode({ on: on(), env })).rejects.toThrow(/is not a replica of DATABASE_URL/);
      const { code, stdout } = await runCli(['doctor'], env);
      expect(code).toBe(1);
      expect(stdout).toMatch(/FAIL the replica .* is not a replica of DATABASE_URL, but another database/);
    } finally {
      await database.close();
      await other.drop();
    }
  });

  it('is shown by doctor', async () => {
    const env = { DATABASE_URL: servers.primary.url, DATABASE_READ_URL: servers.replica.url };
    expect((await runCli(['doctor'], env)).stdout).toMatch(/ok {3}the replica postgres:.* has everything/);
    await servers.replica.sql('SELECT pg_wal_replay_pause()');
    expect((await runCli(['doctor'], env)).stdout).toMatch(/warn the replica .* does not replay: paused/);
    const itself = { ...env, DATABASE_READ_URL: servers.primary.url };
    expect((await runCli(['doctor'], itself)).stdout).toMatch(/warn the replica .* is no replica/);
  });

  it('needs DATABASE_URL', () => {
    expect(() => readConfig({ DATABASE_READ_URL: 'postgres://a@b/c' })).toThrow(
      /DATABASE_READ_URL: needs DATABASE_URL/,
    );
  });
});
