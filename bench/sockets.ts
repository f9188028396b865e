/**
 * `npm run bench:sockets`: 5,000 idle and 1,000 active websockets on one node. Each idle one has a
 * subscription that nothing matches. Each active one follows a topic and posts to it by the clock. Memory
 * must stay flat; the table shows it minute by minute.
 */
import { createHash } from 'node:crypto';
import { readdirSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { Connection } from './client.js';
import { changeSettings } from './floods/set-up.js';
import {
  type BootedNode,
  cleanUpOnSignal,
  cpuSecondsOf,
  makeFolder,
  memoryOf,
  removeFolder,
  startNode,
  withCleanUp,
} from './node.js';
import { openSigner, type Sign } from './sign.js';

const TOPICS = 50;
const OPENED_AT_ONCE = 50;
/** Posts of all active sockets together, a second. */
const POSTS_PER_SECOND = 100;
const TICK_MS = 10;
const SETTLE_MS = 10_000;

const say = (text: string) => process.stdout.write(`${text}\n`);
const hash = (text: string) => createHash('sha256').update(text).digest();
const topicOf = (number: number) => `sockets${number % TOPICS}`;

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      idle: { type: 'string', default: '5000' },
      active: { type: 'string', default: '1000' },
      minutes: { type: 'string', default: '3' },
      /** `node.memoryWindowMB`: with a small window memory does not grow with the posts. */
      window: { type: 'string' },
    },
  });
  const [idle, active, minutes] = [Number(values.idle), Number(values.active), Number(values.minutes)];
  cleanUpOnSignal(say);
  const folder = makeFolder(tmpdir());
  const sign = await openSigner();
  let node: BootedNode | undefined;
  await withCleanUp(
    async () => {
      await node?.stop();
      removeFolder(folder);
    },
    async () => {
      if (values.window !== undefined)
        await changeSettings(folder, { 'node.memoryWindowMB': values.window }, {});
      node = await startNode(folder, {});
      await node.ready();
      await measure(node, sign, { idle, active, minutes });
    },
  );
}

interface Numbers {
  readonly idle: number;
  readonly active: number;
  readonly minutes: number;
}

async function measure(
  { url, pid }: BootedNode,
  sign: Sign,
  { idle, active, minutes }: Numbers,
): Promise<void> {
  say('| | open files | node, MB | PostgreSQL, MB | CPU, % of a core | OK p50, p99 ms | deliveries |');
  say('|---|---:|---:|---:|---:|---:|---:|');
  const row = rowsOf(pid);
  await sleep(SETTLE_MS);
  row('booted', '', '');
  const sockets = await openAll(url, idle, (number) => ({ '#t': [`nobody${number}`], limit: 1 }));
  await sleep(SETTLE_MS);
  row(`${sockets.length} idle`, '', '');
  const posters = await openAll(url, active, (number) => ({ '#t': [topicOf(number)], limit: 1 }));
  const load = new Posting(posters, sign);
  const lost = [...sockets, ...posters].map((socket) => watchLoss(socket));
  for (let minute = 1; minute <= minutes; minute += 1) {
    await load.run(60_000);
    const { latency, delivered } = load.take();
    const closed = lost.filter((isLost) => isLost()).length;
    row(
      `and ${posters.length} active, minute ${minute}${closed > 0 ? `, ${closed} closed` : ''}`,
      latency,
      delivered,
    );
  }
  for (const socket of posters) socket.close();
  await sleep(SETTLE_MS);
  row('the active ones closed', '', '');
  for (const socket of sockets) socket.close();
  await sleep(SETTLE_MS);
  row('all closed', '', '');
}

function watchLoss(socket: Connection): () => boolean {
  let isLost = false;
  socket.onLost = () => {
    isLost = true;
  };
  return () => isLost;
}

function rowsOf(pid: number): (what: string, latency: string, delivered: string) => void {
  let before = { cpu: cpuSecondsOf(pid), at: performance.now() };
  return (what, latency, delivered) => {
    const now = { cpu: cpuSecondsOf(pid), at: performance.now() };
    const used = now.cpu!.node + now.cpu!.database - before.cpu!.node - before.cpu!.database;
    const percent = Math.round((used / ((now.at - before.at) / 1_000)) * 100);
    before = now;
    const memory = memoryOf(pid)!;
    const files = readdirSync(`/proc/${pid}/fd`).length;
    const cells = [
      what,
      files,
      Math.round(memory.node),
      Math.round(memory.database),
      percent,
      latency,
      delivered,
    ];
    say(`| ${cells.join(' | ')} |`);
  };
}

/** Opens sockets, each with one subscription, and waits until each has its EOSE. */
async function openAll(
  url: string,
  count: number,
  filterOf: (number: number) => object,
): Promise<Connection[]> {
  const sockets: Connection[] = [];
  while (sockets.length < count) {
    const numbers = Array.from({ length: Math.min(OPENED_AT_ONCE, count - sockets.length) }, (_, at) => at);
    const opened = await Promise.all(numbers.map(() => Connection.open(url)));
    await Promise.all(opened.map((socket, at) => subscribe(socket, filterOf(sockets.length + at))));
    sockets.push(...opened);
  }
  return sockets;
}

function subscribe(socket: Connection, filter: object): Promise<void> {
  return new Promise((resolve, reject) => {
    socket.onLost = reject;
    socket.onFrame = (frame) => {
      if (frame.includes('"EOSE"')) resolve();
      else if (frame.includes('"CLOSED"')) reject(new Error(String(frame)));
    };
    socket.send(JSON.stringify(['REQ', 'one', filter]));
  });
}

class Posting {
  private readonly sentAt = new Map<string, number>();
  private latencies: number[] = [];
  private delivered = 0;
  private posted = 0;

  constructor(
    private readonly sockets: readonly Connection[],
    private readonly sign: Sign,
  ) {
    for (const socket of sockets) socket.onFrame = (frame) => this.onFrame(frame);
  }

  async run(ms: number): Promise<void> {
    const until = performance.now() + ms;
    let owed = 0;
    let before = performance.now();
    while (performance.now() < until) {
      await sleep(TICK_MS);
      const now = performance.now();
      owed += ((now - before) / 1_000) * POSTS_PER_SECOND;
      before = now;
      for (; owed >= 1; owed -= 1) this.post();
    }
  }

  take(): { readonly latency: string; readonly delivered: string } {
    const sorted = this.latencies.sort((a, b) => a - b);
    const at = (share: number) => Math.round(sorted[Math.floor(sorted.length * share)] ?? 0);
    const taken = { latency: `${at(0.5)}, ${at(0.99)}`, delivered: `${this.delivered}` };
    this.latencies = [];
    this.delivered = 0;
    return taken;
  }

  /** The sockets take turns. */
  private post(): void {
    const number = this.posted % this.sockets.length;
    this.posted += 1;
    const created_at = Math.floor(Date.now() / 1_000);
    const draft = { kind: 1, created_at, tags: [['t', topicOf(number)]], content: `${this.posted}` };
    const event = this.sign(draft, hash(`sockets ${number}`));
    this.sentAt.set(event.id, performance.now());
    this.sockets[number]!.send(JSON.stringify(['EVENT', event]));
  }

  private onFrame(frame: Buffer): void {
    if (!frame.subarray(0, 5).equals(OK)) {
      if (frame.subarray(0, 8).equals(EVENT)) this.delivered += 1;
      return;
    }
    const [, id, accepted, why] = JSON.parse(String(frame)) as [string, string, boolean, string];
    if (!accepted) throw new Error(why);
    const at = this.sentAt.get(id);
    if (at === undefined) return;
    this.sentAt.delete(id);
    this.latencies.push(performance.now() - at);
  }
}
const OK = Buffer.from('["OK"');
const EVENT = Buffer.from('["EVENT"');

await main();
process.exit(0);
