/**
 * `node --import tsx bench/scale/connections.ts [10,100,1000,9990]`, after `npm run build`: what open
 * connections cost one process. Each has one subscription; five have the same topic. With them open: memory
 * of the node per connection, CPU while nothing happens, and the times of single posts: until OK, and until
 * the five subscriptions have the event. A process takes 10,000 websockets; ten are left for those who post.
 */
import { tmpdir } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { newAuthor, sign } from '../../test/support/events.js';
import { Connection, frameType } from '../client.js';
import type { Booted } from '../database.js';
import { latency } from '../measure.js';
import {
  type BootedNode,
  cleanUpOnSignal,
  makeFolder,
  memoryOf,
  removeFolder,
  startNode,
  withCleanUp,
} from '../node.js';
import { cpuShare, untilQuiet } from '../settle.js';

const READERS_EACH = 5;
const POSTS = 300;
const PAUSE_MS = 10;
const IDLE_MS = 20_000;
const AT_ONCE = 50;
const say = (text: string) => process.stdout.write(`${text}\n`);
const whisper = (text: string) => process.stderr.write(`${text}\n`);

async function main(): Promise<void> {
  const counts = (process.argv[2] ?? '10,100,1000,9990').split(',').map(Number);
  for (const count of counts) {
    const folder = makeFolder(tmpdir());
    const node = await startNode(folder, {});
    const cleanUp = async () => {
      await node.stop();
      removeFolder(folder);
    };
    await withCleanUp(cleanUp, async () => {
      await node.ready();
      await measure(count, { node, folder, nodeEnv: {} });
    });
  }
}

async function measure(count: number, bench: Booted & { readonly node: BootedNode }): Promise<void> {
  const { url, pid } = bench.node;
  await untilQuiet(bench);
  const before = memoryOf(pid)!.node;
  const topics = count / READERS_EACH;
  const readers: Connection[] = [];
  for (let opened = 0; opened < count; opened += AT_ONCE) {
    const batch = Array.from({ length: Math.min(AT_ONCE, count - opened) }, (_, at) => opened + at);
    readers.push(...(await Promise.all(batch.map((at) => subscribe(url, `topic-${at % topics}`)))));
  }
  await untilQuiet(bench);
  const after = memoryOf(pid)!.node;
  const idle = await cpuShare(pid, IDLE_MS);
  const poster = await Connection.open(url);
  const { oks, deliveries } = await post(poster, readers, topics);
  const [ok, delivery] = [latency(oks), latency(deliveries)];
  say(
    `${count} connections: node ${after.toFixed(0)} MB, ` +
      `${(((after - before) * 1_000) / count).toFixed(1)} kB each; ` +
      `idle ${(idle * 100).toFixed(1)} % of a core`,
  );
  say(
    `  OK p50 ${ok.p50Ms.toFixed(1)} ms, p99 ${ok.p99Ms.toFixed(1)} ms; ` +
      `delivery p50 ${delivery.p50Ms.toFixed(1)} ms, p99 ${delivery.p99Ms.toFixed(1)} ms`,
  );
  for (const connection of [...readers, poster]) connection.close();
}

async function subscribe(url: string, topic: string): Promise<Connection> {
  const connection = await Connection.open(url);
  const answered = new Promise<void>((resolve, reject) => {
    connection.onLost = reject;
    connection.onFrame = (frame) => {
      if (frameType(frame) === 'EOSE') resolve();
    };
  });
  connection.send(JSON.stringify(['REQ', 's', { '#t': [topic] }]));
  await answered;
  return connection;
}

/** One event at a time. Each must come to its five subscriptions and to no other. */
async function post(
  poster: Connection,
  readers: readonly Connection[],
  topics: number,
): Promise<{ readonly oks: number[]; readonly deliveries: number[] }> {
  const author = newAuthor();
  const [oks, deliveries]: number[][] = [[], []];
  for (let place = 0; place < POSTS; place += 1) {
    const event = sign(author, {
      tags: [['t', `topic-${place % topics}`]],
      content: `${place} `.padEnd(200, 'x'),
    });
    let startMs = 0;
    let due = READERS_EACH;
    const all = new Promise<void>((resolve, reject) => {
      let isOk = false;
      const end = () => {
        if (isOk && due === 0) resolve();
      };
      for (const reader of readers)
        reader.onFrame = (frame) => {
          if (frameType(frame) !== 'EVENT') return;
          deliveries!.push(performance.now() - startMs);
          due -= 1;
          end();
        };
      poster.onLost = reject;
      poster.onFrame = (frame) => {
        if (frameType(frame) !== 'OK') return;
        oks!.push(performance.now() - startMs);
        isOk = true;
        end();
      };
    });
    startMs = performance.now();
    poster.send(JSON.stringify(['EVENT', event]));
    await all;
    if (due < 0) throw new Error('an event came too often');
    await sleep(PAUSE_MS);
  }
  return { oks: oks!, deliveries: deliveries! };
}

cleanUpOnSignal(whisper);
await main();
