/**
 * `minato serve --instances`: several processes behind one port are one relay. A crash, a rolling restart and
 * a stop lose nothing that was acknowledged, and refuse nobody.
 */
import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';
import pg from 'pg';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { writeSetting } from '../../src/communities/communities.sql.js';
import type { PassedPort } from '../../src/node/instances/instance.js';
import { eventually, runCli, startCli } from '../support/cli.js';
import { RawClient } from '../support/clients/client.js';
import { Poster } from '../support/clients/poster.js';
import { newAuthor, sign } from '../support/events.js';
import { Cluster, childrenOf, isRunning } from '../support/instances.js';
import { startTestNode, type TestNode } from '../support/node.js';
import { createTestDatabase, type TestDatabase } from '../support/servers/database.js';

const descriptorsMax = (pid: number): string =>
  execFileSync('prlimit', ['--pid', `${pid}`, '--nofile', '--output', 'SOFT', '--noheadings', '--raw'], {
    encoding: 'utf8',
  }).trim();

const limitDescriptors = (pid: number, max: string): void => {
  execFileSync('prlimit', ['--pid', `${pid}`, `--nofile=${max}:`]);
};

describe('two instances behind one port', () => {
  let test: TestDatabase;
  let cluster: Cluster;
  const open: RawClient[] = [];

  beforeAll(async () => {
    test = await createTestDatabase();
    cluster = await Cluster.start(2, { DATABASE_URL: test.url, MINATO_DATA_DIR: test.folder });
  });
  afterEach(async () => {
    for (const client of open.splice(0)) await client.close();
  });
  afterAll(async () => {
    await cluster.stop();
    await test.drop();
  });

  const join = async (): Promise<RawClient> => {
    const client = await RawClient.connect(cluster.url);
    open.push(client);
    return client;
  };

  const storedIds = async (author: string): Promise<string[]> => {
    const client = new pg.Client(test.connection);
    await client.connect();
    try {
      const { rows } = await client.query<{ id: string }>(
        `SELECT encode(id, 'hex') AS id FROM events WHERE pubkey = decode($1, 'hex') ORDER BY seq`,
        [author],
      );
      return rows.map(({ id }) => id);
    } finally {
      await client.end();
    }
  };

  it('two clients are served by two processes, and an event of one reaches the other live', async () => {
    const [reader, writer] = [await join(), await join()];
    const author = newAuthor();
    reader.send(['REQ', 'live', { authors: [author.pubkey] }]);
    await reader.waitFor((frame) => frame[0] === 'EOSE');
    for (const kind of [1, 20_001]) {
      const event = sign(author, { kind, content: 'hello' });
      expect(await writer.publish(event)).toEqual([true, '']);
      await reader.waitFor((frame) => frame[0] === 'EVENT' && (frame[2] as { id: string }).id === event.id);
    }
    // The metrics are those of all processes, whichever is asked.
    expect(await cluster.metric('minato_sockets')).toBe(2);
    expect(await cluster.metric('minato_instances{state="serving"}')).toBe(3);
    expect(await (await fetch(`${cluster.http}/readyz`)).json()).toEqual({ status: 'ready' });
  });

  it('says once how to set the node up, and each line names its instance', () => {
    expect(cluster.lines.filter(({ setup }) => setup !== undefined)).toHaveLength(1);
    expect(new Set(cluster.lines.map(({ instance }) => instance))).toEqual(
      new Set(['primary', '1', '2', 'worker']),
    );
  });

  it('a killed instance cuts off only its own clients, who are served at once by the other', async () => {
    const clients = [await join(), await join()];
    const before = await cluster.metric('minato_instance_restarts_total');
    const killed = cluster.pidOf('1');
    process.kill(killed, 'SIGKILL');
    await eventually('one is cut off', () => clients.some(({ closed }) => closed) || undefined);
    expect(clients.filter(({ closed }) => closed === undefined)).toHaveLength(1);
    // At least one of them is given to the process that has just ended.
    for (const again of await Promise.all([join(), join(), join(), join()]))
      expect(await again.publish(sign(newAuthor()))).toEqual([true, '']);
    await eventually('it is started again', async () => {
      const isBack = (await cluster.metric('minato_instances{state="serving"}')) === 3;
      return (isBack && cluster.pidOf('1') !== killed) || undefined;
    });
    expect(await cluster.metric('minato_instance_restarts_total')).toBe(before + 1);
  });

  it('an instance that the system does not start is tried again, and the other serves', async () => {
    const clients = [await join(), await join()];
    const ENDED = 'an instance ended unexpectedly; it is started again';
    const endings = cluster.lines.filter(({ msg }) => msg === ENDED).length;
    const [primary, killed] = [cluster.cli.child.pid!, cluster.pidOf('1')];
    const before = descriptorsMax(primary);
    // Fewer than it has open.
    limitDescriptors(primary, '8');
    try {
      process.kill(killed, 'SIGKILL');
      // Two starts have failed.
      await cluster.until(ENDED, 'primary', endings + 3);
      const served = clients.find(({ closed }) => closed === undefined)!;
      expect(await served.publish(sign(newAuthor()))).toEqual([true, '']);
      expect(cluster.pidOf('1')).toBe(killed);
    } finally {
      limitDescriptors(primary, before);
    }
    await eventually('it is started again', async () => {
      const isBack = (await cluster.metric('minato_instances{state="serving"}')) === 3;
      return (isBack && cluster.pidOf('1') !== killed) || undefined;
    });
  });

  it('an instance that hangs does not keep the metrics of the others from being read', async () => {
    const frozen = cluster.pidOf('worker');
    process.kill(frozen, 'SIGSTOP');
    try {
      expect(await cluster.metric('minato_instances{state="serving"}')).toBe(2);
      expect(await cluster.metric('minato_instances{state="wanted"}')).toBe(3);
    } finally {
      process.kill(frozen, 'SIGCONT');
    }
  });

  it('a rolling restart under load replaces every process, refuses nobody and loses nothing', async () => {
    const names = ['1', '2', 'worker'];
    const before = names.map((name) => cluster.pidOf(name));
    const posters = Array.from({ length: 4 }, () => new Poster(cluster.url));
    await eventually('all post', () => posters.every((each) => each.acknowledged.length > 3) || undefined);
    cluster.cli.child.kill('SIGHUP');
    await cluster.until('rolling restart: done', 'primary');
    const counts = posters.map(({ acknowledged }) => acknowledged.length);
    await eventually(
      'all post again',
      () => posters.every((each, at) => each.acknowledged.length > counts[at]! + 3) || undefined,
    );
    await Promise.all(posters.map((each) => each.stop()));
    expect(posters.flatMap(({ refusals }) => refusals)).toEqual([]);
    expect(posters.every(({ cuts }) => cuts <= 2)).toBe(true);
    expect(names.filter((name, at) => cluster.pidOf(name) === before[at])).toEqual([]);
    expect(before.filter(isRunning)).toEqual([]);
    for (const { author, acknowledged } of posters)
      expect(await storedIds(author.pubkey)).toEqual(expect.arrayContaining(acknowledged));
  });

  it('SIGTERM under load ends every process, and all that was acknowledged is stored', async () => {
    const posters = Array.from({ length: 4 }, () => new Poster(cluster.url));
    await eventually('all post', () => posters.every((each) => each.acknowledged.length > 3) || undefined);
    const processes = childrenOf(cluster.cli.child.pid!);
    expect(processes).toHaveLength(3);
    expect(await cluster.stop()).toBe(0);
    await Promise.all(posters.map((each) => each.stop()));
    expect(processes.filter(isRunning)).toEqual([]);
    for (const { author, acknowledged } of posters)
      expect(await storedIds(author.pubkey)).toEqual(expect.arrayContaining(acknowledged));
  });

  it('instances whose primary was killed end by themselves', async () => {
    const other = await Cluster.start(1, { DATABASE_URL: test.url, MINATO_DATA_DIR: test.folder });
    const processes = childrenOf(other.cli.child.pid!);
    expect(processes).toHaveLength(2);
    other.cli.child.kill('SIGKILL');
    await eventually('they end', () => !processes.some(isRunning) || undefined);
  });
});

describe('a start that fails', () => {
  it('is one sentence, and no process stays', async () => {
    const DATABASE_URL = 'postgres://nobody@127.0.0.1:1/none';
    const { child, ended } = startCli(['serve', '--instances', '2'], { DATABASE_URL, MINATO_PORT: '0' });
    const { code, stderr } = await ended;
    expect(code).toBe(1);
    expect(stderr).toMatch(/^minato: .*ECONNREFUSED 127.0.0.1:1\n$/);
    expect(childrenOf(child.pid!)).toEqual([]);
  });

  it.each(['0', '65', 'two', '1.5', ''])('"%s" instances are refused', async (number) => {
    const { code, stderr } = await runCli(['serve', '--instances', number], {});
    expect(code).not.toBe(0);
    expect(stderr).toContain('It must be auto, or a number from 1 to 64.');
  });
});

describe('a node whose connections another process accepts', () => {
  let server: Server;
  let node: TestNode;
  let url: string;

  beforeAll(async () => {
    let take = (_: Socket): void => undefined;
    server = createServer({ pauseOnConnect: true, allowHalfOpen: true }, (socket) => take(socket));
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    const { port } = server.address() as AddressInfo;
    const passed: PassedPort = {
      port,
      instances: 4,
      onConnection: (taker) => {
        take = taker;
      },
    };
    node = await startTestNode({ passed, httpBounds: { headMsMax: 500 } });
    url = `ws://127.0.0.1:${port}`;
  });
  afterAll(async () => {
    await node.close();
    server.close();
  });

  it('closes one that sends no request, as on a port of its own', async () => {
    const socket = connect(Number(new URL(url).port), '127.0.0.1');
    socket.write('GET / HTTP/1.1\r\n');
    await once(socket.resume(), 'close');
  });

  it('allows an address its share of the connections', async () => {
    const { id } = node.node.communities.find(undefined, 'default')!;
    for (const [key, value] of [
      ['rate.exemptLoopback', false],
      ['limits.connectionsPerAddressMax', 7],
    ] as const)
      await writeSetting(node.database.pool, id, key, value, Date.now());
    const settings = () => node.node.communities.get(id)!.settings;
    await eventually('it is known', () => settings()['limits.connectionsPerAddressMax'] === 7 || undefined);
    // 7 of all, so 2 here, because there are 4 instances.
    const clients = [await RawClient.connect(url), await RawClient.connect(url)];
    await expect(RawClient.connect(url)).rejects.toThrow('429');
    for (const client of clients) await client.close();
  });
});
