/**
 * `node --import tsx bench/gossip.ts [nodes] [events]`, after `npm run build`: nodes on this machine that
 * gossip, each with a PostgreSQL of its own. Events of about 1 kB are posted at the first node, 20 a second;
 * the time is from its `OK` until a subscriber of another node has the event. Also the gossip messages that
 * all nodes together sent and received per event. As root, run it inside
 * `unshare -n sh -c 'ip link set lo up; exec …'`, so that iroh reaches nobody else.
 */
import { mkdirSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { RawClient } from '../test/support/clients/client.js';
import { newAuthor, sign } from '../test/support/events.js';
import { latency } from './measure.js';
import {
  type BootedNode,
  cleanUpOnSignal,
  makeFolder,
  nodeEnvironment,
  removeFolder,
  runCommand,
  startNode,
  withCleanUp,
} from './node.js';

const NODES = Number(process.argv[2] ?? 3);
const EVENTS = Number(process.argv[3] ?? 500);
const EVERY_MS = 50;
const WAIT_MS = 120_000;
const TOPIC = 'kukuri:global';
const say = (text: string) => process.stdout.write(`${text}\n`);

interface Member {
  readonly node: BootedNode;
  readonly folder: string;
}

async function main(): Promise<void> {
  const folder = makeFolder(tmpdir());
  const members: Member[] = [];
  await withCleanUp(
    async () => {
      for (const { node } of members) await node.stop();
      removeFolder(folder);
    },
    async () => {
      for (let place = 0; place < NODES; place += 1) {
        const own = join(folder, String(place));
        mkdirSync(own);
        members.push({ node: await startNode(own, {}), folder: own });
        await members[place]!.node.ready();
        await command(members[place]!, 'settings', 'set', 'p2p.bind', '127.0.0.1');
        await command(members[place]!, 'settings', 'set', 'p2p.port', '0');
        await command(members[place]!, 'settings', 'set', 'p2p.enabled', 'true');
      }
      const ticket = await untilSome(() => command(members[0]!, 'p2p', 'ticket'));
      for (const member of members.slice(1)) await command(member, 'p2p', 'join', ticket.trim());
      for (const member of members) await untilSome(() => neighbours(member));
      await measure(members);
    },
  );
}

async function command({ folder }: Member, ...args: string[]): Promise<string> {
  const { code, output } = await runCommand(args, nodeEnvironment(join(folder, 'data'), 0, {}));
  if (code !== 0) throw new Error(`minato ${args.join(' ')}: ${output}`);
  return output;
}

async function untilSome<T>(look: () => Promise<T | undefined>): Promise<T> {
  const deadline = performance.now() + WAIT_MS;
  for (;;) {
    const found = await look().catch(() => undefined);
    if (found !== undefined) return found;
    if (performance.now() > deadline) throw new Error('the nodes did not find each other in time');
    await sleep(500);
  }
}

async function neighbours(member: Member): Promise<true | undefined> {
  const status = JSON.parse(await command(member, 'p2p', 'status', '--json')) as {
    readonly state: { readonly neighbours: readonly unknown[] } | null;
  };
  return status.state !== null && status.state.neighbours.length === NODES - 1 ? true : undefined;
}

async function messages({ node }: Member): Promise<{ readonly sent: number; readonly received: number }> {
  const text = await (await fetch(`${node.url.replace(/^ws/, 'http')}/metrics`)).text();
  const sum = (name: string) =>
    [...text.matchAll(new RegExp(`^${name}(?:\\{[^}]*\\})? (\\d+)`, 'gm'))].reduce(
      (total, [, value]) => total + Number(value),
      0,
    );
  return {
    sent: sum('minato_gossip_sent_messages_total'),
    received: sum('minato_gossip_received_messages_total'),
  };
}

async function measure(members: readonly Member[]): Promise<void> {
  const author = newAuthor();
  const publisher = await RawClient.connect(members[0]!.node.url);
  const readers = await Promise.all(members.slice(1).map(({ node }) => RawClient.connect(node.url)));
  const arrivals = readers.map(() => new Map<string, number>());
  for (const [place, reader] of readers.entries()) {
    reader.ws.on('message', (data) => {
      const frame = JSON.parse(String(data)) as [string, string, { id: string }];
      if (frame[0] === 'EVENT') arrivals[place]!.set(frame[2].id, performance.now());
    });
    reader.send(['REQ', 'live', { authors: [author.pubkey], '#t': [TOPIC], limit: 0 }]);
    await reader.waitFor((frame) => frame[0] === 'EOSE');
  }
  const before = await Promise.all(members.map(messages));
  const accepted = new Map<string, number>();
  for (let sent = 0; sent < EVENTS; sent += 1) {
    const event = sign(author, { tags: [['t', TOPIC]], content: `${sent} `.padEnd(600, 'x') });
    const [isAccepted, why] = await publisher.publish(event);
    if (!isAccepted) throw new Error(why);
    accepted.set(event.id, performance.now());
    await sleep(EVERY_MS);
  }
  await untilSome(async () => arrivals.every((each) => each.size === EVENTS) || undefined);
  const after = await Promise.all(members.map(messages));
  const times = arrivals.flatMap((each) => [...each].map(([id, at]) => Math.max(0, at - accepted.get(id)!)));
  const { p50Ms, p99Ms } = latency(times);
  const per = (kind: 'sent' | 'received') =>
    after.reduce((sum, now, place) => sum + now[kind] - before[place]![kind], 0) / EVENTS;
  say(`${NODES} nodes, ${EVENTS} events, ${(1_000 / EVERY_MS).toFixed(0)} a second`);
  say(`OK → delivery at another node: p50 ${p50Ms.toFixed(1)} ms, p99 ${p99Ms.toFixed(1)} ms`);
  say(
    `messages per event, all nodes: sent ${per('sent').toFixed(2)}, received ${per('received').toFixed(2)}`,
  );
  for (const client of [publisher, ...readers]) await client.close();
}

cleanUpOnSignal(say);
await main();
