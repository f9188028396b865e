/**
 * How long a restart takes: SIGTERM to the built program with its embedded PostgreSQL, then a start on the
 * same data folder and port, with clients connected. Gives the figures of docs/operations/restart.md:
 *   npm run build && node --import tsx bench/restart.ts [--rounds 5 --clients 20]
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import WebSocket from 'ws';
import { freePort } from './node.js';

const PROGRAM = fileURLToPath(new URL('../bin/minato.js', import.meta.url));
const LOOK_MS = 5;
/** The jobs of the start are done by then. */
const SETTLE_MS = 1_500;

const { values } = parseArgs({
  options: { rounds: { type: 'string', default: '5' }, clients: { type: 'string', default: '20' } },
});
const folder = await mkdtemp(join(tmpdir(), 'minato-restart-'));
const port = await freePort();

function start(): ChildProcess {
  return spawn(process.execPath, [PROGRAM, 'serve'], {
    env: {
      PATH: process.env.PATH,
      MINATO_DATA_DIR: folder,
      MINATO_PORT: `${port}`,
      MINATO_TOPIC_MODE: 'open',
    },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
}

function ready({ stdout }: ChildProcess): Promise<number> {
  return new Promise((resolve) => {
    let said = '';
    stdout!.on('data', (chunk) => {
      said += chunk;
      if (said.includes('"msg":"ready"')) resolve(performance.now());
    });
  });
}

async function listening(): Promise<number> {
  for (;;) {
    const socket = connect(port, '127.0.0.1');
    const isOpen = await once(socket, 'connect').then(
      () => true,
      () => false,
    );
    socket.destroy();
    if (isOpen) return performance.now();
    await delay(LOOK_MS);
  }
}

async function client(): Promise<WebSocket> {
  const ws = new WebSocket(`ws://127.0.0.1:${port}`);
  await once(ws, 'open');
  ws.on('error', () => undefined);
  ws.send('["REQ","live",{"kinds":[1],"limit":10}]');
  return ws;
}

const rounds: Record<string, number>[] = [];
let node = start();
await ready(node);
for (let round = 0; round < Number(values.rounds); round += 1) {
  const clients = await Promise.all(Array.from({ length: Number(values.clients) }, client));
  await delay(SETTLE_MS);
  const cut = Promise.race(clients.map((ws) => once(ws, 'close'))).then(() => performance.now());
  const ended = once(node, 'exit').then(() => performance.now());
  const from = performance.now();
  node.kill('SIGTERM');
  const stopped = await ended;
  node = start();
  const [opened, served] = await Promise.all([listening(), ready(node)]);
  const since = { cut: await cut, stopped, 'port open': opened, ready: served };
  rounds.push(Object.fromEntries(Object.entries(since).map(([what, at]) => [what, Math.round(at - from)])));
  console.log(JSON.stringify(rounds.at(-1)));
}
const last = once(node, 'exit');
node.kill('SIGTERM');
await last;
await rm(folder, { recursive: true, force: true });
const least = (what: string) => Math.min(...rounds.map((round) => round[what]!));
console.log(`least, in ms after SIGTERM: ${Object.keys(rounds[0]!).map((what) => `${what} ${least(what)}`)}`);
