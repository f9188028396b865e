/**
 * `node --import tsx bench/scale/lanes.ts [1:1,2:1,2:2,4:1,4:4,8:1,8:8] [events of each] [in flight of
 * each]`, after `npm run build`: 8 communities post at once to P relays that share L lanes (P:L), on one
 * PostgreSQL. A lane belongs to a database, so L lanes are L databases of that server with 8 ÷ L communities
 * each: the most that lanes by community could give, without the cost of keeping one order over all of them.
 * No role worker runs, so nothing but the lanes writes.
 */
import { mkdirSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type pg from 'pg';
import { createLog } from '../../src/node/log.js';
import { openDatabase } from '../../src/postgres/database.js';
import { type EmbeddedServer, startEmbedded } from '../../src/postgres/embedded.js';
import { type Connection, publish } from '../client.js';
import { type Corpus, loadCorpus } from '../corpus.js';
import { latency } from '../measure.js';
import {
  type BootedNode,
  cleanUpOnSignal,
  makeFolder,
  PROGRAM,
  postmasterOf,
  removeFolder,
  startNode,
  withCleanUp,
} from '../node.js';
import { makeCommunities, openAt } from './communities-of.js';
import { LockWatch, lockText } from './lock.js';
import { useDuring, useText } from './use.js';

const COMMUNITIES = 8;
const EVENTS_EACH = Number(process.argv[3] ?? 3_000);
const IN_FLIGHT = Number(process.argv[4] ?? 100);
const say = (text: string) => process.stdout.write(`${text}\n`);
const whisper = (text: string) => process.stderr.write(`${text}\n`);

async function main(): Promise<void> {
  const plans = (process.argv[2] ?? '1:1,2:1,2:2,4:1,4:4,8:1,8:8').split(',').map((plan) => {
    const [relays, lanes] = plan.split(':').map(Number);
    return { relays: relays!, lanes: lanes! };
  });
  const { corpus } = await loadCorpus(1, COMMUNITIES * EVENTS_EACH, whisper);
  for (const plan of plans) {
    const folder = makeFolder(tmpdir());
    await withCleanUp(
      async () => removeFolder(folder),
      () => measure(folder, plan, corpus),
    );
  }
}

interface Plan {
  readonly relays: number;
  readonly lanes: number;
}

/** A new server for each plan, so that each writes into an empty store. */
async function measure(folder: string, plan: Plan, corpus: Corpus): Promise<void> {
  const server = await startEmbedded(join(folder, 'server'), createLog('warn', 'stderr'));
  const nodes: BootedNode[] = [];
  const connections: Connection[] = [];
  const cleanUp = async () => {
    for (const connection of connections) connection.close();
    await Promise.all(nodes.map((node) => node.stop()));
    await server.stop();
  };
  await withCleanUp(cleanUp, async () => {
    whisper(`${plan.relays} relays, ${plan.lanes} lanes`);
    const urls = await makeLanes(server, plan);
    for (let place = 0; place < plan.relays; place += 1) {
      const own = join(folder, `lane${place % plan.lanes}`);
      mkdirSync(own, { recursive: true });
      const env = { DATABASE_URL: urls[place % plan.lanes]! };
      const node = await startNode(own, env, PROGRAM, undefined, ['--roles', 'relay,api']);
      nodes.push(node);
      // The first of a database migrates it.
      if (place < plan.lanes) await node.ready();
    }
    await Promise.all(nodes.map((node) => node.ready()));
    for (const [lane, url] of urls.entries()) {
      const database = openDatabase({ url });
      const slugs = names().filter((_, at) => at % plan.lanes === lane);
      await makeCommunities(database.pool, slugs).finally(() => database.close());
    }
    for (const [at, slug] of names().entries())
      connections.push(await openAt(nodes[at % plan.relays]!.url, slug));
    const pids = [...nodes.map(({ pid }) => pid), postmasterOf(join(folder, 'server'))];
    const watch = await LockWatch.start(connectionTo(server, 'postgres'));
    const { result, use } = await useDuring(pids, () => postAll(connections, corpus));
    const lock = await watch.stop();
    const { p50Ms, p99Ms } = latency(result);
    const perSecond = (COMMUNITIES * EVENTS_EACH) / use.seconds;
    say(
      `${plan.relays} relays, ${plan.lanes} lanes: ${Math.round(perSecond).toLocaleString('en')} events/s, ` +
        `OK p50 ${p50Ms.toFixed(0)} ms, p99 ${p99Ms.toFixed(0)} ms`,
    );
    say(`  ${(await batchEvents(nodes)).toFixed(0)} events in a batch; ${useText(use)}`);
    say(`  ${lockText(lock)}`);
  });
}

const names = (): string[] => Array.from({ length: COMMUNITIES }, (_, at) => `c${at}`);

const connectionTo = ({ connection }: EmbeddedServer, database: string): pg.ClientConfig => ({
  ...connection,
  database,
});

async function makeLanes(server: EmbeddedServer, { lanes }: Plan): Promise<string[]> {
  const { host, port, user } = server.connection;
  const admin = openDatabase({ ...server.connection, database: 'postgres' });
  try {
    const urls: string[] = [];
    for (let lane = 0; lane < lanes; lane += 1) {
      await admin.pool.query(`CREATE DATABASE lane${lane}`);
      urls.push(`postgres://${user}@localhost:${port}/lane${lane}?host=${encodeURIComponent(host)}`);
    }
    return urls;
  } finally {
    await admin.close();
  }
}

/** The average size of a batch of the lane. */
async function batchEvents(nodes: readonly BootedNode[]): Promise<number> {
  const texts = await Promise.all(
    nodes.map(async ({ url }) => (await fetch(`${url.replace(/^ws/, 'http')}/metrics`)).text()),
  );
  const sum = (name: string) =>
    texts.reduce((total, text) => total + Number(new RegExp(`^${name} (\\S+)`, 'm').exec(text)?.[1] ?? 0), 0);
  return sum('minato_lane_batch_events_sum') / sum('minato_lane_batch_events_count');
}

async function postAll(connections: readonly Connection[], corpus: Corpus): Promise<number[]> {
  const published = await Promise.all(
    connections.map((connection, at) =>
      publish([connection], corpus.outgoing(at * EVENTS_EACH, (at + 1) * EVENTS_EACH), IN_FLIGHT),
    ),
  );
  const refused = published.flatMap((each) => each.refused);
  if (refused.length > 0) throw new Error(`refused: ${refused[0]}`);
  return published.flatMap(({ latenciesMs }) => latenciesMs);
}

cleanUpOnSignal(whisper);
await main();
