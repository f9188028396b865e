/** A node with few file descriptors reserves some for its database, however many its clients open. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { connect as connectSocket, type Socket } from 'node:net';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
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
    const held: Socket[] = [];
    try {
      const listening = await eventually('it listens', () => /ws:\/\/127\.0\.0\.1:(\d+)/.exec(log)?.[1]);
      const base = `http://127.0.0.1:${listening}`;
      expect(log).toContain('the limit of open files is low');
      // The attacker holds them open, whatever the node does.
      for (let n = 0; n < 2 * LIMIT; n++) {
        const socket = connectSocket(Number(listening), '127.0.0.1').on('error', () => undefined);
        held.push(socket);
        if (n % 2 === 0)
          socket.write('POST /v1/auth/challenge HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n{');
        await once(socket, 'connect');
      }
      for (let n = 0; n < 20; n++) {
        const socket = connectSocket(Number(listening), '127.0.0.1').on('error', () => undefined);
        held.push(socket);
        expect((await fetch(`${base}/readyz`)).status).toBe(200);
      }
      const client = await RawClient.connect(`ws://127.0.0.1:${listening}`);
      for (let n = 0; n < 20; n++) expect(await client.publish(sign(newAuthor()))).toEqual([true, '']);
      await client.close();
      expect(log).not.toContain('EMFILE');
    } finally {
      for (const socket of held) socket.destroy();
      child.kill('SIGTERM');
      await once(child, 'close');
    }
  });
});
