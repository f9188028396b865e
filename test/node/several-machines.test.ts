/**
 * Three relays and two workers as processes of their own, with a primary, a streaming replica, Redis and a
 * load balancer. Under load instances are killed and added, and sessions of the primary are cut: nothing
 * that was acknowledged is lost (I1), a client that comes back with its cursor receives each event once
 * (I10), and leases move.
 */
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { eventually, type RunningCli, runCli, startCli } from '../support/cli.js';
import { RawClient } from '../support/clients/client.js';
import { Poster } from '../support/clients/poster.js';
import { Returning } from '../support/clients/returning.js';
import { newAuthor, sign } from '../support/events.js';
import { freePort } from '../support/servers/free-port.js';
import { LoadBalancer } from '../support/servers/load-balancer.js';
import { TestRedis } from '../support/servers/redis.js';
import { Replicated } from '../support/servers/replicated.js';

const POSTERS = 6;
const READERS = 4;
const CUTS = 3;

interface Instance {
  readonly port: number;
  readonly cli: RunningCli;
}

let servers: Replicated;
let redis: TestRedis;
let balancer: LoadBalancer;
/** The fourth does not run at the beginning. */
let relayPorts: number[];
const running = new Set<Instance>();

beforeAll(async () => {
  [servers, redis] = await Promise.all([Replicated.start(), TestRedis.start()]);
  relayPorts = [await freePort(), await freePort(), await freePort(), await freePort()];
  balancer = await LoadBalancer.start(relayPorts);
});
afterAll(async () => {
  for (const instance of running) await kill(instance);
  await balancer?.stop();
  await redis?.stop();
  await servers?.stop();
});

const environment = () => ({
  DATABASE_URL: servers.primary.url,
  DATABASE_READ_URL: servers.replica.url,
  REDIS_URL: redis.url,
  MINATO_DATA_DIR: join(servers.folder, 'node'),
  MINATO_TRUSTED_PROXIES: '127.0.0.1',
  MINATO_LOG_LEVEL: 'silent',
});

async function start(roles: string, port: number): Promise<Instance> {
  const instance = {
    port,
    cli: startCli(['serve', '--roles', roles], { ...environment(), MINATO_PORT: `${port}` }),
  };
  running.add(instance);
  await eventually(`${roles} is ready`, async () => {
    if (instance.cli.child.exitCode !== null) throw new Error((await instance.cli.ended).stderr);
    const ready = await fetch(`http://127.0.0.1:${port}/readyz`).catch(() => undefined);
    return ready?.ok ? true : undefined;
  });
  return instance;
}
const startRelay = (port: number) => start('relay,api', port);
const startWorker = async () => start('worker', await freePort());

async function kill(instance: Instance): Promise<void> {
  running.delete(instance);
  instance.cli.child.kill('SIGKILL');
  await instance.cli.ended;
}

async function metric(name: string): Promise<number> {
  const texts = await Promise.all(
    relayPorts.map(async (port) =>
      fetch(`http://127.0.0.1:${port}/metrics`).then(
        (answer) => answer.text(),
        () => '',
      ),
    ),
  );
  const lines = texts.flatMap((text) => text.split('\n').filter((line) => line.startsWith(`${name} `)));
  return lines.reduce((sum, line) => sum + Number(line.slice(name.length + 1)), 0);
}

/** Another instance holds every lease, and its consumer has read everything up to here. */
async function leasesMove(disturb: () => Promise<void>): Promise<void> {
  const { primary } = servers;
  const holders = () =>
    primary.sql<{ consumer: string; holder: string | null; lastSeq: number }>(
      'SELECT consumer, holder, last_seq::int AS "lastSeq" FROM consumer_offsets',
    );
  const before = await eventually('every lease is held', async () => {
    const all = await holders();
    return all.length > 0 && all.every(({ holder }) => holder !== null) ? all : undefined;
  });
  await disturb();
  const [{ head } = { head: 0 }] = await primary.sql<{ head: number }>(
    'SELECT last_seq::int AS head FROM lane_state',
  );
  const old = new Set(before.map(({ holder }) => holder));
  await eventually('every lease has moved, and its work goes on', async () => {
    const all = await holders();
    return all.every(({ holder, lastSeq }) => !old.has(holder) && lastSeq >= head) || undefined;
  });
}

/** Asks any relay for what another has just acknowledged. Counts what was not there. */
async function askForOwnWrites(posters: readonly Poster[], signal: AbortSignal) {
  const found = { asked: 0, missing: [] as string[] };
  while (!signal.aborted) {
    const client = await RawClient.connect(balancer.url).catch(() => undefined);
    const id = posters[found.asked % posters.length]!.acknowledged.at(-1);
    if (client === undefined || id === undefined) {
      await delay(20);
      continue;
    }
    const isEnd = (type: unknown) => type === 'EOSE' || type === 'CLOSED';
    client.send(['REQ', 'own', { ids: [id] }]);
    await client.until(() => client.closed !== undefined || client.frames.some(([type]) => isEnd(type)));
    // Cut off, or refused while the database could not be reached: no answer.
    if (client.frames.some(([type]) => type === 'EOSE')) {
      found.asked += 1;
      if (!client.frames.some(([type]) => type === 'EVENT')) found.missing.push(id);
    }
    client.ws.terminate();
  }
  return found;
}

it('instances are killed and added under load, and nobody misses or gets anything twice', async () => {
  const { primary } = servers;
  const first = await startRelay(relayPorts[0]!);
  // Nothing from memory: every read of stored events asks a database.
  const set = await runCli(['settings', 'set', 'node.memoryWindowMB', '0'], environment());
  expect(set.code, set.stderr).toBe(0);
  // The first worker takes every lease before the other starts.
  const startWorkers = async () => [await startWorker(), await startWorker()] as const;
  const [second, third, [worker]] = await Promise.all([
    startRelay(relayPorts[1]!),
    startRelay(relayPorts[2]!),
    startWorkers(),
  ]);

  const readers = Array.from({ length: READERS }, () => new Returning(balancer.url, { kinds: [1] }));
  await Promise.all(readers.map(({ started }) => started));
  const posters = Array.from({ length: POSTERS }, () => new Poster(balancer.url));
  const asking = new AbortController();
  const asked = askForOwnWrites(posters, asking.signal);
  const allPost = () => {
    const from = posters.map(({ acknowledged }) => acknowledged.length);
    return eventually(
      'all post',
      () => posters.every((each, at) => each.acknowledged.length > from[at]! + 5) || undefined,
    );
  };
  await allPost();

  let fourth: Instance | undefined;
  const moveRelays = async () => {
    await kill(first);
    await allPost();
    fourth = await startRelay(relayPorts[3]!);
    // Its clients go to the third relay, and to the one that was added.
    await kill(second);
    await allPost();
  };
  await Promise.all([moveRelays(), leasesMove(() => kill(worker))]);
  for (let cut = 0; cut < CUTS; cut++) {
    // Those of the replica too.
    await primary.sql(
      `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
       WHERE pid <> pg_backend_pid() AND backend_type IN ('client backend', 'walsender')`,
    );
    await allPost();
  }

  await Promise.all(posters.map((each) => each.stop()));
  asking.abort();
  const own = await asked;
  expect(own.missing).toEqual([]);
  expect(own.asked).toBeGreaterThan(0);
  // Again and again: an event whose poster was cut off may be committed by a later attempt of its relay.
  const readStored = async () =>
    (
      await primary.sql<{ id: string }>(
        `SELECT encode(id, 'hex') AS id FROM events WHERE kind = 1 ORDER BY seq`,
      )
    ).map(({ id }) => id);
  const atLeast = await readStored();
  for (const { acknowledged } of posters) expect(atLeast).toEqual(expect.arrayContaining(acknowledged));
  for (const reader of readers) {
    const stored = await eventually('everything is delivered', async () => {
      if (reader.failure !== undefined) throw new Error(reader.failure);
      const ids = await readStored();
      return reader.deliveries.length === ids.length ? ids : undefined;
    });
    // In the order of the commits, each once, over all its connections.
    expect(reader.deliveries.slice(0, stored.length)).toEqual(stored);
  }
  // Some were cut off, and came back at another relay.
  expect(readers.reduce((sum, { visits }) => sum + visits, 0)).toBeGreaterThan(READERS);
  expect(await metric('minato_replica_reads_total{result="served"}')).toBeGreaterThan(0);

  // Ephemeral events are not in the database: Redis carries them from one relay to the other.
  const [reader, writer] = await Promise.all(
    [fourth!.port, third.port].map((port) => RawClient.connect(`ws://127.0.0.1:${port}`)),
  );
  reader!.send(['REQ', 'live', { kinds: [20_001] }]);
  await reader!.waitFor(([type]) => type === 'EOSE');
  const event = sign(newAuthor(), { kind: 20_001 });
  expect(await writer!.publish(event)).toEqual([true, '']);
  await reader!.waitFor((frame) => frame[0] === 'EVENT' && (frame[2] as { id: string }).id === event.id);
  await Promise.all([reader!, writer!].map((client) => client.close()));
  await Promise.all(readers.map((each) => each.stop()));
});
