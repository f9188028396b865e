/**
 * `node --import tsx bench/scale/communities.ts [1,10,100] [events]`, after `npm run build`: what a number
 * of communities costs one node: memory and CPU while nobody is connected, and the rate at which all of them
 * post at once, with 800 events in flight over all.
 */
import { tmpdir } from 'node:os';
import { openDatabase } from '../../src/postgres/database.js';
import { type Connection, publish } from '../client.js';
import { loadCorpus } from '../corpus.js';
import { connectionOf } from '../database.js';
import { latency } from '../measure.js';
import { cleanUpOnSignal, makeFolder, memoryOf, removeFolder, startNode, withCleanUp } from '../node.js';
import { cpuShare, untilQuiet, untilUpToDate } from '../settle.js';
import { makeCommunities, openAt } from './communities-of.js';
import { useDuring, useText } from './use.js';

const EVENTS = Number(process.argv[3] ?? 24_000);
const IN_FLIGHT = 800;
/** Connections of a community, where there are fewer than this many communities. */
const CONNECTIONS_MIN = 8;
const IDLE_MS = 20_000;
const say = (text: string) => process.stdout.write(`${text}\n`);
const whisper = (text: string) => process.stderr.write(`${text}\n`);

async function main(): Promise<void> {
  const counts = (process.argv[2] ?? '1,10,100').split(',').map(Number);
  const { corpus } = await loadCorpus(1, EVENTS, whisper);
  for (const count of counts) {
    const folder = makeFolder(tmpdir());
    const node = await startNode(folder, {});
    const bench = { node, folder, nodeEnv: {} };
    const connections: Connection[] = [];
    const cleanUp = async () => {
      for (const connection of connections) connection.close();
      await node.stop();
      removeFolder(folder);
    };
    await withCleanUp(cleanUp, async () => {
      await node.ready();
      const slugs = Array.from({ length: count }, (_, at) => `c${at}`);
      const { host, port, user, database: name } = connectionOf(bench);
      const database = openDatabase({ host: host!, port: port!, user: user!, database: name! });
      await makeCommunities(database.pool, slugs).finally(() => database.close());
      (await openAt(node.url, slugs.at(-1)!)).close();
      await untilQuiet(bench);
      const idle = await cpuShare(node.pid, IDLE_MS);
      const memory = memoryOf(node.pid)!;
      for (let at = 0; at < Math.max(count, CONNECTIONS_MIN); at += 1)
        connections.push(await openAt(node.url, slugs[at % count]!));
      const made = connections.length;
      const each = EVENTS / made;
      const post = () =>
        Promise.all(
          connections.map((connection, at) =>
            publish(
              [connection],
              corpus.outgoing(Math.floor(at * each), Math.floor((at + 1) * each)),
              Math.ceil(IN_FLIGHT / made),
            ),
          ),
        );
      const { result, use } = await useDuring([node.pid], post);
      const refused = result.flatMap((one) => one.refused);
      if (refused.length > 0) throw new Error(`refused: ${refused[0]}`);
      const { p50Ms, p99Ms } = latency(result.flatMap(({ latenciesMs }) => latenciesMs));
      const settled = await untilUpToDate(bench);
      for (const connection of connections.splice(0)) connection.close();
      await untilQuiet(bench);
      const idleAgain = await cpuShare(node.pid, IDLE_MS);
      say(
        `${count} communities: idle ${(idle * 100).toFixed(1)} % of a core, ` +
          `node ${memory.node.toFixed(0)} MB, ` +
          `PostgreSQL ${memory.database.toFixed(0)} MB`,
      );
      say(
        `  ${made} connections post ${Math.round(EVENTS / use.seconds)} events/s, ` +
          `OK p50 ${p50Ms.toFixed(0)} ms, p99 ${p99Ms.toFixed(0)} ms; ` +
          `consumers up to date ${settled.toFixed(1)} s later, ` +
          `idle then ${(idleAgain * 100).toFixed(1)} % of a core`,
      );
      say(`  ${useText(use)}`);
    });
  }
}

cleanUpOnSignal(whisper);
await main();
