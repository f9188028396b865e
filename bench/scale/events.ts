/**
 * `node --import tsx bench/scale/events.ts [10000,100000,1000000]`, after `npm run build`: what stored
 * events cost a node whose consumers are paused: disk, memory, CPU while nothing happens, and the time of
 * single posts. The store is filled by SQL (sql-store.ts). How queries grow: `npm run bench -- --growth`.
 */
import { pauseConsumers } from '../consumers.js';
import { withFilledNode } from '../filled-node.js';
import { cleanUpOnSignal, memoryOf, PROGRAM } from '../node.js';
import { cpuShare, untilLogIsShort, untilQuiet } from '../settle.js';
import { postOneByOne } from './posts.js';

const POSTS = 300;
const IDLE_MS = 20_000;
const say = (text: string) => process.stdout.write(`${text}\n`);
const whisper = (text: string) => process.stderr.write(`${text}\n`);

cleanUpOnSignal(whisper);
for (const count of (process.argv[2] ?? '10000,100000,1000000').split(',').map(Number))
  await withFilledNode(count, {}, whisper, async (filled) => {
    const { pid, url } = filled.node;
    await pauseConsumers({ ...filled, program: PROGRAM });
    await untilQuiet(filled);
    const idle = await cpuShare(pid, IDLE_MS);
    const ok = await postOneByOne(url, POSTS);
    const memory = memoryOf(pid)!;
    const disk = (await untilLogIsShort(filled))!;
    const stored = disk.total - disk.wal;
    say(
      `${count.toLocaleString('en')} events: disk ${stored.toFixed(0)} MB without the log ` +
        `(${((stored * 1_000) / count).toFixed(2)} kB each), node ${memory.node.toFixed(0)} MB, ` +
        `PostgreSQL ${memory.database.toFixed(0)} MB, idle ${(idle * 100).toFixed(1)} % of a core, ` +
        `OK p50 ${ok.p50Ms.toFixed(1)} ms, p99 ${ok.p99Ms.toFixed(1)} ms`,
    );
  });
