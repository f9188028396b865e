/**
 * `node --import tsx bench/floods/sockets.ts`: the memory and the CPU of a node with 5,000 idle sockets, then
 * with 3,000 more that request far more than they read. Prints the table of docs/limits.md. `--quick` opens a
 * tenth of the sockets. Needs about 20,000 file descriptors.
 */
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { loadCorpus } from '../corpus.js';
import {
  type BootedNode,
  cleanUpOnSignal,
  makeFolder,
  removeFolder,
  residentMegabytes,
  treeCpuSeconds,
  withCleanUp,
} from '../node.js';
import { handshake, isAccepted, isPing, message, PONG } from './flood.js';
import { fillStore, withNode } from './set-up.js';

const isQuick = process.argv.includes('--quick');
const IDLE = isQuick ? 500 : 5_000;
const SLOW = isQuick ? 300 : 3_000;
const STORED = 10_000;
/** Sockets of one address; a node allows an address 100. */
const PER_ADDRESS = 50;
const OPENED_AT_ONCE = 50;
/** A reader that does not read is closed after 60 s, and after 30 s while memory for all readers is short. */
const CLOSED_AFTER_MS = 70_000;
const SETTLE_MS = 5_000;
const WATCH_MS = 250;

const say = (text: string): void => void process.stderr.write(`sockets: ${text}\n`);

/** A WebSocket that answers pings and ignores everything else; a slow one does not read at all. */
async function open(port: number, number: number, first: Buffer, isSlow: boolean): Promise<Socket> {
  const socket = connect({ port, host: '127.0.0.1', noDelay: true });
  socket.on('error', () => undefined);
  await once(socket, 'connect');
  const place = Math.floor(number / PER_ADDRESS);
  socket.write(handshake(`198.18.${Math.floor(place / 250)}.${(place % 250) + 1}`));
  const [head] = (await once(socket, 'data')) as [Buffer];
  if (!isAccepted(head)) throw new Error(head.toString('latin1', 0, 80));
  socket.write(first);
  if (isSlow) socket.pause();
  else
    socket.on('data', (data) => {
      if (isPing(data)) socket.write(PONG);
    });
  return socket;
}

async function openAll(
  port: number,
  from: number,
  count: number,
  first: (number: number) => Buffer,
  isSlow: boolean,
): Promise<Socket[]> {
  const sockets: Socket[] = [];
  for (let at = 0; at < count; at += OPENED_AT_ONCE) {
    const numbers = Array.from({ length: Math.min(OPENED_AT_ONCE, count - at) }, (_, n) => from + at + n);
    sockets.push(...(await Promise.all(numbers.map((number) => open(port, number, first(number), isSlow)))));
  }
  return sockets;
}

interface Line {
  readonly what: string;
  readonly megabytes: number;
  readonly cores: number;
}

/** The peak memory and the average cores of the node until `goesOn` resolves. */
async function watch(node: BootedNode, what: string, goesOn: Promise<unknown>): Promise<Line> {
  const cpuBefore = treeCpuSeconds(node.pid) ?? Number.NaN;
  const beganMs = performance.now();
  let most = 0;
  let isOver = false;
  void goesOn.finally(() => {
    isOver = true;
  });
  while (!isOver) {
    most = Math.max(most, residentMegabytes(node.pid));
    await sleep(WATCH_MS);
  }
  await goesOn;
  const cores =
    ((treeCpuSeconds(node.pid) ?? Number.NaN) - cpuBefore) / ((performance.now() - beganMs) / 1_000);
  say(`${what}: ${Math.round(most)} MB, ${cores.toFixed(2)} cores`);
  return { what, megabytes: most, cores };
}

async function measure(node: BootedNode, port: number): Promise<Line[]> {
  const mine = (number: number): Buffer =>
    message(['REQ', 'mine', { authors: [number.toString(16).padStart(64, '0')], limit: 1 }]);
  const everything = (number: number): Buffer =>
    message(['REQ', 'all', { kinds: [1, 6, 7, 40_000 + (number % 20_000)], limit: 5_000 }]);
  const lines = [await watch(node, 'before', sleep(SETTLE_MS))];
  const idle = await openAll(port, 0, IDLE, mine, false);
  lines.push(await watch(node, `${count(IDLE)} idle sockets with a subscription each`, sleep(SETTLE_MS)));
  const slow: Socket[] = [];
  const opening = openAll(port, IDLE, SLOW, everything, true).then((sockets) => slow.push(...sockets));
  lines.push(
    await watch(
      node,
      `${count(SLOW)} more that ask for ${count(5_000)} events each and do not read, at most`,
      opening.then(() => sleep(CLOSED_AFTER_MS)),
    ),
  );
  lines.push(await watch(node, 'after they were closed as slow readers', sleep(SETTLE_MS)));
  for (const socket of [...idle, ...slow]) socket.destroy();
  await sleep(SETTLE_MS);
  lines.push(await watch(node, 'after all have left', sleep(SETTLE_MS)));
  return lines;
}

const count = (number: number): string => number.toLocaleString('en');

async function main(): Promise<void> {
  cleanUpOnSignal(say);
  const { corpus } = await loadCorpus(1, STORED, say);
  const folder = makeFolder(tmpdir());
  await withCleanUp(
    async () => removeFolder(folder),
    async () => {
      await fillStore(folder, corpus, {});
      const lines = await withNode(folder, {}, measure);
      process.stdout.write(
        [
          '| | MB of the process | cores, node and database |',
          '|---|---|---|',
          ...lines.map(
            ({ what, megabytes, cores }) => `| ${what} | ${Math.round(megabytes)} | ${cores.toFixed(2)} |`,
          ),
          '',
        ].join('\n'),
      );
    },
  );
}

await main().catch((error: Error) => {
  say(error.message);
  process.exitCode = 1;
});
