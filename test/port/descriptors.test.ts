/** A node with few file descriptors reserves some for its database, however many its clients open. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { connect as connectSocket, type Socket } from 'node:net';
import { fileURLToPath } from 'node:url';
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { addCommunity } from '../../src/communities/communities.sql.js';
import { RESERVED_DESCRIPTORS, readDescriptorLimit, roomFor } from '../../src/port/descriptors.js';
import { eventually } from '../support/cli.js';
import { RawClient } from '../support/clients/client.js';
import { newAuthor, sign } from '../support/events.js';
import { createTestDatabase, type TestDatabase } from '../support/servers/database.js';

const PROGRAM = fileURLToPath(new URL('../../bin/minato.js', import.meta.url));
const LIMIT = 256;
let test: TestDatabase;
beforeAll(async () => {
  test = await createTestDatabase();
});
afterAll(() => test.drop());

describe('room for connections', () => {
  const wanted = { http: 2_000, websockets: 10_000 };

  it('is the configured number where there are enough descriptors, or their number is unknown', () => {
    expect(roomFor(1_000_000, wanted)).toBe(wanted);
    expect(roomFor(undefined, wanted)).toBe(wanted);
  });

  it('leaves the reserve, and some descriptors to both kinds', () => {
    for (const descriptors of [256, 512, 1_024, 4_096, 12_000]) {
      const { http, websockets } = roomFor(descriptors, wanted);
      expect(http + websockets).toBe(descriptors - RESERVED_DESCRIPTORS);
      expect(Math.min(http, websockets)).toBeGreaterThan(10);
    }
  });

  it('is counted from the limit of the process', async () => {
    const limit = await readDescriptorLimit();
    if (process.platform === 'linux') expect(limit).toBeGreaterThan(0);
  });
});

/** A node that may open few files; `use` gets its port and what it has logged. */
async function withFewFiles(use: (port: number, log: () => string) => Promise<void>): Promise<void> {
  const env = {
    PATH: process.env.PATH,
    DATABASE_URL: test.url,
    MINATO_DATA_DIR: test.folder,
    MINATO_PORT: '0',
    MINATO_TOPIC_MODE: 'open',
  };
  const command = `ulimit -n ${LIMIT} && exec "${process.execPath}" "${PROGRAM}" serve`;
  const child = spawn('bash', ['-c', command], { env, stdio: ['ignore', 'pipe', 'pipe'] });
  let log = '';
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (data) => (log += data));
  try {
    const port = await eventually('it listens', () => /ws:\/\/127\.0\.0\.1:(\d+)/.exec(log)?.[1]);
    await use(Number(port), () => log);
  } finally {
    child.kill('SIGTERM');
    await once(child, 'close');
  }
}

describe('a node that may open 256 files', () => {
  it('gets a warning from doctor', async () => {
    const command = `ulimit -n ${LIMIT} && exec "${process.execPath}" "${PROGRAM}" doctor --json`;
    const env = { PATH: process.env.PATH, DATABASE_URL: test.url, MINATO_PORT: '0' };
    const child = spawn('bash', ['-c', command], { env, stdio: ['ignore', 'pipe', 'ignore'] });
    let text = '';
    child.stdout.on('data', (data) => (text += data));
    await once(child, 'close');
    const { findings } = JSON.parse(text) as { findings: { level: string; text: string; advice?: string }[] };
    expect(findings).toContainEqual({
      level: 'warn',
      text:
        '256 open files: room for 42 websockets and 14 HTTP connections; ' +
        '200 files are reserved for the database',
      advice: expect.stringContaining('ulimit -n 12200'),
    });
  });

  it('reaches its database while hundreds of connections are held open', async () => {
    const held: Socket[] = [];
    const hold = (port: number) => {
      const socket = connectSocket(port, '127.0.0.1').on('error', () => undefined);
      held.push(socket);
      return socket;
    };
    await withFewFiles(async (port, log) => {
      expect(log()).toContain('the limit of open files is low');
      // The attacker holds them open, whatever the node does.
      for (let n = 0; n < 2 * LIMIT; n++) {
        const socket = hold(port);
        if (n % 2 === 0)
          socket.write('POST /v1/auth/challenge HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n{');
        await once(socket, 'connect');
      }
      for (let n = 0; n < 20; n++) {
        hold(port);
        expect((await fetch(`http://127.0.0.1:${port}/readyz`)).status).toBe(200);
      }
      const client = await RawClient.connect(`ws://127.0.0.1:${port}`);
      for (let n = 0; n < 20; n++) expect(await client.publish(sign(newAuthor()))).toEqual([true, '']);
      await client.close();
      expect(log()).not.toContain('EMFILE');
    }).finally(() => {
      for (const socket of held) socket.destroy();
    });
  });

  it('gives one of two communities half of its websockets, and the other can still connect', async () => {
    const pool = new pg.Pool({ ...test.connection, max: 1 });
    await addCommunity(pool, 'crowd', undefined, Date.now());
    await pool.end();
    await withFewFiles(async (port) => {
      const clients: RawClient[] = [];
      const join = async (path: string) => {
        const client = await RawClient.connect(`ws://127.0.0.1:${port}${path}`).catch(() => undefined);
        if (client !== undefined) clients.push(client);
        return client !== undefined;
      };
      const crowd: boolean[] = [];
      for (let n = 0; n < 30; n++) crowd.push(await join('/c/crowd'));
      expect(crowd.filter(Boolean)).toHaveLength(21);
      for (let n = 0; n < 10; n++) expect(await join('/')).toBe(true);
      for (const client of clients) await client.close();
    });
  });
});
