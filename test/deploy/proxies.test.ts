/**
 * The examples for nginx and Caddy, in front of a real node: websockets pass, and the node sees the address
 * of the client, whatever headers the client writes.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import WebSocket from 'ws';
import { readConfig } from '../../src/node/config.js';
import { createLog } from '../../src/node/log.js';
import { prepareDatabase } from '../../src/node/prepare.js';
import { openDatabase } from '../../src/postgres/database.js';
import { eventually } from '../support/cli.js';
import { newAuthor, sign } from '../support/events.js';
import { startTestNode, type TestNode } from '../support/node.js';
import { createTestDatabase } from '../support/servers/database.js';
import { environmentOf, type Program } from '../support/servers/debian-package.js';
import { freePort } from '../support/servers/free-port.js';
import { findCaddy, findNginx } from '../support/servers/programs.js';

/** Of this machine; the node trusts only 127.0.0.1 to be a proxy. */
const [GOOD, BLOCKED] = ['127.0.0.3', '127.0.0.2'];
let relay: TestNode;
let nodePort: string;
let folder: string;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'minato-proxies-'));
  const test = await createTestDatabase();
  const database = openDatabase(test.connection);
  const config = readConfig({ MINATO_TOPIC_MODE: 'open' });
  await prepareDatabase(database, config, Date.now, createLog('silent'));
  // By SQL: an operator cannot block an address of this machine.
  await database.pool.query(
    'INSERT INTO blocked_addresses (community, network, created_at) VALUES (1, $1, 1)',
    [BLOCKED],
  );
  await database.close();
  relay = await startTestNode({ on: test, env: { MINATO_TRUSTED_PROXIES: '127.0.0.1' } });
  nodePort = new URL(relay.http).port;
});
afterAll(async () => {
  await relay.close();
  await relay.test.drop();
  await rm(folder, { recursive: true, force: true });
});

interface Proxy {
  readonly port: number;
  stop(): Promise<void>;
}

async function start(program: Program, args: string[], port: number, path = '/'): Promise<Proxy> {
  const env = { ...environmentOf(program), HOME: folder, XDG_CONFIG_HOME: folder, XDG_DATA_HOME: folder };
  const child: ChildProcess = spawn(program.path, args, {
    env,
    cwd: folder,
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  let heard = '';
  child.stderr!.on('data', (chunk: Buffer) => (heard += String(chunk)));
  await eventually('the proxy answers', async () => {
    if (child.exitCode !== null) throw new Error(heard);
    return (await statusOf(port, path, GOOD).catch(() => undefined)) === undefined ? undefined : true;
  });
  const stop = async () => {
    if (child.exitCode !== null) return;
    child.kill('SIGKILL');
    await once(child, 'exit');
  };
  return { port, stop };
}

function statusOf(
  port: number,
  path: string,
  localAddress: string,
  headers: Record<string, string> = {},
): Promise<number> {
  return new Promise((resolve, reject) => {
    const asked = request({ host: '127.0.0.1', port, path, localAddress, headers }, (answer) => {
      answer.resume();
      resolve(answer.statusCode!);
    });
    asked.on('error', reject).end();
  });
}

/** Everything by which a client may try to be another one. */
const claiming = (address: string) => ({
  'X-Forwarded-For': address,
  'X-Real-IP': address,
  Forwarded: `for=${address}`,
  'CF-Connecting-IP': address,
  'True-Client-IP': address,
});

/** Posts over a websocket, from an address. */
function posts(port: number, localAddress: string, headers: Record<string, string> = {}): Promise<unknown> {
  return new Promise((resolve) => {
    const socket = new WebSocket(`ws://127.0.0.1:${port}/`, { localAddress, headers });
    const event = sign(newAuthor());
    socket.on('open', () => socket.send(JSON.stringify(['EVENT', event])));
    socket.on('message', (data) => {
      const [kind, id, accepted] = JSON.parse(String(data)) as unknown[];
      if (kind !== 'OK' || id !== event.id) return;
      socket.close();
      resolve(accepted);
    });
    socket.on('error', (error) => resolve(error.message));
  });
}

async function nginx(): Promise<Proxy> {
  const [port, plain] = [await freePort(), await freePort()];
  const example = await readFile('deploy/nginx/minato.conf', 'utf8');
  // Without TLS, on loopback, and in front of the node of this test.
  const changed = example
    .replace('127.0.0.1:7447', `127.0.0.1:${nodePort}`)
    .replace(/^ *(ssl_\w+ .*|listen \[::\].*)\n/gm, '')
    .replace('listen 443 ssl http2;', `listen 127.0.0.1:${port};`)
    .replace('listen 80;', `listen 127.0.0.1:${plain};`);
  expect(changed).not.toMatch(/ssl|7447/);
  const temporary = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi']
    .map((name) => `${name}_temp_path ${folder}/${name};`)
    .join('\n');
  const path = join(folder, 'nginx.conf');
  await writeFile(
    path,
    `daemon off; master_process off; pid ${folder}/nginx.pid; error_log stderr;
events { worker_connections 256; }
http { access_log off; ${temporary}
${changed} }`,
  );
  return start(await findNginx(), ['-e', 'stderr', '-p', folder, '-c', path], port);
}

async function caddy(): Promise<Proxy> {
  const port = await freePort();
  const example = await readFile('deploy/caddy/Caddyfile', 'utf8');
  const changed = example
    .replace('127.0.0.1:7447', `127.0.0.1:${nodePort}`)
    .replace('relay.example.org {', `http://127.0.0.1:${port} {`);
  expect(changed).not.toMatch(/7447|example/);
  const path = join(folder, 'Caddyfile');
  await writeFile(path, `{\n\tadmin off\n}\n${changed}`);
  return start(await findCaddy(), ['run', '--config', path, '--adapter', 'caddyfile'], port);
}

describe.each([
  ['nginx', nginx],
  ['Caddy', caddy],
])('%s', (_name, open) => {
  let proxy: Proxy;
  beforeAll(async () => {
    proxy = await open();
  });
  afterAll(() => proxy.stop());

  it('passes websockets and HTTP, and keeps metrics inside', async () => {
    expect(await posts(proxy.port, GOOD)).toBe(true);
    expect(await statusOf(proxy.port, '/readyz', GOOD)).toBe(200);
    expect(await statusOf(proxy.port, '/metrics', GOOD)).toBe(404);
  });

  it('names the real client: a blocked one cannot pretend to be another', async () => {
    expect(await statusOf(proxy.port, '/v1/topics', BLOCKED)).toBe(403);
    expect(await statusOf(proxy.port, '/v1/topics', BLOCKED, claiming('198.51.100.7'))).toBe(403);
    expect(await posts(proxy.port, BLOCKED, claiming('198.51.100.7'))).not.toBe(true);
  });

  it('names the real client: nobody is taken for a blocked one', async () => {
    expect(await statusOf(proxy.port, '/v1/topics', GOOD, claiming(BLOCKED))).not.toBe(403);
    expect(await posts(proxy.port, GOOD, claiming(BLOCKED))).toBe(true);
  });
});
