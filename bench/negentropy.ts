/**
 * `node --import tsx bench/negentropy.ts [events] [percent,percent…]`, after `npm run build`: negentropy
 * (NIP-77) with a node that holds 1,000,000 events (sql-store.ts). A client whose set differs by 0, 1, 10 or
 * 100 % compares, over a socket. Each line: what it found, rounds, bytes of both directions and bytes per
 * difference, time, and how much the memory of the node grew meanwhile. The result is checked.
 */
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { join } from 'node:path';
import WebSocket from 'ws';
import { smallDigest } from '../src/sync/digest.js';
import { fromHex, openingMessage, reconcile, toHex } from '../src/sync/rules-negentropy.js';
import { pauseConsumers } from './consumers.js';
import { withDatabase } from './database.js';
import { withFilledNode } from './filled-node.js';
import { cleanUpOnSignal, nodeEnvironment, PROGRAM, residentMegabytes, runCommand } from './node.js';

const EVENTS = Number(process.argv[2] ?? 1_000_000);
const PERCENTS = (process.argv[3] ?? '0,0.01,0.1,1,10,100').split(',').map(Number);
const MESSAGE_BYTES_MAX = 60_000;
const LOOK_MS = 50;
const say = (text: string) => process.stdout.write(`${text}\n`);
const shown = (value: number) => Math.round(value).toLocaleString('en');

interface Item {
  readonly createdAt: number;
  readonly id: string;
}

async function main(): Promise<void> {
  await withFilledNode(EVENTS, {}, say, async (bench) => {
    const { node, folder } = bench;
    // Consumers would index a million events meanwhile.
    await pauseConsumers({ ...bench, program: PROGRAM });
    // The window of the newest events would fill meanwhile, and hide how much a session needs.
    await withoutWindow(folder);
    const items = await readItems(bench);
    say(`${shown(items.length)} events; the node uses ${shown(residentMegabytes(node.pid))} MB`);
    for (const percent of PERCENTS) await compare(node, items, percent);
  });
}

async function withoutWindow(folder: string): Promise<void> {
  const env = nodeEnvironment(join(folder, 'data'), 0, {});
  const { code, output } = await runCommand(['settings', 'set', 'node.memoryWindowMB', '0'], env);
  if (code !== 0) throw new Error(output);
}

async function readItems(bench: Parameters<typeof withDatabase>[0]): Promise<Item[]> {
  return withDatabase(bench, async (client) => {
    const { rows } = await client.query<[string, string]>({
      text: `SELECT created_at, encode(id, 'hex') FROM events WHERE hidden IS NULL`,
      rowMode: 'array',
    });
    return rows.map(([createdAt, id]) => ({ createdAt: Number(createdAt), id }));
  });
}

async function compare(node: { url: string; pid: number }, all: readonly Item[], percent: number) {
  const differing = Math.round((all.length * percent) / 100);
  // Every n-th event is missing, and as many others are there.
  const step = differing === 0 ? Number.POSITIVE_INFINITY : all.length / differing;
  const missing = new Set(Array.from({ length: differing }, (_, at) => Math.floor(at * step)));
  const own = all.map((item, at) =>
    missing.has(at) ? { ...item, id: createHash('sha256').update(`other ${at}`).digest('hex') } : item,
  );
  const records = (await smallDigest(own))!;
  const before = residentMegabytes(node.pid);
  let most = before;
  const watching = setInterval(() => {
    most = Math.max(most, residentMegabytes(node.pid));
  }, LOOK_MS);
  const found = { have: 0, need: 0 };
  let rounds = 0;
  let bytes = 0;
  let nodeMs = 0;
  const begunMs = performance.now();
  const socket = new WebSocket(node.url, { maxPayload: 4_000_000 });
  try {
    await new Promise((resolve, reject) => socket.once('open', resolve).once('error', reject));
    const ask = async (frame: unknown[]): Promise<string> => {
      const text = JSON.stringify(frame);
      bytes += text.length;
      const askedMs = performance.now();
      socket.send(text);
      const [data] = (await once(socket, 'message')) as [Buffer];
      const received = String(data);
      nodeMs += performance.now() - askedMs;
      bytes += received.length;
      const [type, , hex] = JSON.parse(received) as [string, string, string];
      if (type !== 'NEG-MSG') throw new Error(received.slice(0, 200));
      return hex;
    };
    let answer = await ask(['NEG-OPEN', 'bench', {}, toHex(await openingMessage(records))]);
    for (;;) {
      rounds += 1;
      const next = await reconcile(fromHex(answer), records, MESSAGE_BYTES_MAX, {
        have: async (ids) => {
          found.have += ids.length;
        },
        need: async (ids) => {
          found.need += ids.length;
        },
      });
      if (next === undefined) break;
      answer = await ask(['NEG-MSG', 'bench', toHex(next)]);
    }
  } finally {
    clearInterval(watching);
    socket.terminate();
  }
  const tookMs = performance.now() - begunMs;
  const isRight = found.have === differing && found.need === differing;
  const each = differing === 0 ? '–' : shown(bytes / (2 * differing));
  say(
    `${String(percent).padStart(5)} %: ${shown(2 * differing)} differences, ${shown(rounds)} rounds, ` +
      `${shown(bytes / 1_000)} kB, ${each} bytes per difference, ${(tookMs / 1_000).toFixed(1)} s ` +
      `(${(nodeMs / 1_000).toFixed(1)} s waiting for the node), memory +${shown(most - before)} MB` +
      (isRight ? '' : `; WRONG: ${found.have} and ${found.need} found`),
  );
  if (!isRight) process.exitCode = 1;
}

cleanUpOnSignal(say);
await main();
