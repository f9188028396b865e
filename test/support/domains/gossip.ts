/** Nodes that gossip, as processes on a network with only loopback; and a raw peer that sends anything. */
import type { ChildProcess } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { get } from 'node:http';
import { fileURLToPath } from 'node:url';
import pg from 'pg';
import { changeNodeSetting } from '../../../src/communities/node-settings.sql.js';
import type { NodeSettingKey } from '../../../src/communities/rules-node-settings.js';
import type { IngestPolicy } from '../../../src/events/rules/retention.js';
import { readP2pLease } from '../../../src/p2p/p2p.sql.js';
import type { Call, FromEndpoint, Opened, PeerAddress } from '../../../src/p2p/protocol.js';
import type { P2pState } from '../../../src/p2p/rules-state.js';
import { readTicket, type Ticket } from '../../../src/p2p/rules-ticket.js';
import { eventually } from '../cli.js';
import { RawClient } from '../clients/client.js';
import { createTestDatabase, type TestDatabase } from '../servers/database.js';
import type { Loopback } from '../servers/loopback.js';
import { writeTopic } from './topics.js';

const ROOT = fileURLToPath(new URL('../../..', import.meta.url));
const FAULTY_IROH = fileURLToPath(new URL('../servers/faulty-iroh.cjs', import.meta.url));
/** Sixty-four hex digits, as the id of a topic has them. */
export const newTopic = () => `kukuri:${randomBytes(32).toString('hex')}`;

export interface GossipNodeOptions {
  readonly topics: readonly string[];
  readonly mode?: 'required' | 'default' | 'open';
  readonly settings?: Partial<Record<NodeSettingKey, unknown>>;
  /** Another instance on this database, on another machine: with a data folder of its own. */
  readonly beside?: GossipNode;
  /** A file with the fault of its endpoint: nothing, `drop`, `lagged` or `broken` (faulty-iroh.cjs). */
  readonly faultFile?: string;
}

/** One running instance. */
export class GossipNode {
  private child: ChildProcess | undefined;
  private said = '';

  private constructor(
    private readonly net: Loopback,
    readonly test: TestDatabase,
    readonly pool: pg.Pool,
    readonly url: string,
    private readonly port: number,
    readonly folder: string,
    private readonly mode: string,
    private readonly isOwner: boolean,
    private readonly faultFile: string | undefined,
  ) {}

  static async start(net: Loopback, options: GossipNodeOptions): Promise<GossipNode> {
    const { beside, topics, mode = 'required', settings = {} } = options;
    const test = beside?.test ?? (await createTestDatabase());
    const { port, url } = await net.port();
    const pool = beside?.pool ?? new pg.Pool({ ...test.connection, max: 2 });
    const folder = `${test.folder}-${port}`;
    const node = new GossipNode(
      net,
      test,
      pool,
      url,
      port,
      folder,
      mode,
      beside === undefined,
      options.faultFile,
    );
    await node.run();
    if (beside === undefined) {
      const wanted = { 'p2p.bind': '127.0.0.1', 'p2p.port': 0, ...settings };
      for (const [key, value] of Object.entries(wanted)) await node.set(key as NodeSettingKey, value);
      for (const topic of topics) await node.carry(topic);
      await node.set('p2p.enabled', true);
    }
    return node;
  }

  /** Starts it, or starts it again. */
  async run(): Promise<void> {
    this.said = '';
    const child = this.net.spawn(['bin/minato.js', 'serve'], {
      cwd: ROOT,
      env: {
        PATH: process.env.PATH,
        DATABASE_URL: this.test.url,
        MINATO_DATA_DIR: this.folder,
        MINATO_PORT: `${this.port}`,
        MINATO_TOPIC_MODE: this.mode,
        MINATO_LOG_LEVEL: 'warn',
        ...(this.faultFile && { NODE_OPTIONS: `--require ${FAULTY_IROH}`, FAULT_FILE: this.faultFile }),
      },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    this.child = child;
    const keep = (chunk: Buffer) => {
      this.said = (this.said + String(chunk)).slice(-10_000);
    };
    child.stdout?.on('data', keep);
    child.stderr?.on('data', keep);
    await eventually('the node serves', async () => {
      if (child.exitCode !== null) throw new Error(`the node has ended: ${this.said}`);
      const client = await RawClient.connect(this.url).catch(() => undefined);
      await client?.close();
      return client && true;
    });
  }

  async end(signal: NodeJS.Signals = 'SIGTERM'): Promise<void> {
    const { child } = this;
    this.child = undefined;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    const exited = once(child, 'exit');
    child.kill(signal);
    await exited;
  }

  /** The processes of its endpoint. */
  endpoints(): number[] {
    const { pid } = this.child!;
    const children = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim().split(/\s+/);
    return children.map(Number).filter((child) => {
      const command = readFileSync(`/proc/${child}/cmdline`, 'utf8');
      return command.includes('endpoint-process');
    });
  }

  get output(): string {
    return this.said;
  }

  async close(): Promise<void> {
    await this.end('SIGKILL');
    if (!this.isOwner) return;
    await this.pool.end();
    await this.test.drop();
  }

  set(key: NodeSettingKey, value: unknown): Promise<unknown> {
    return changeNodeSetting(this.pool, { key, value }, Date.now());
  }

  async carry(topic: string, policy: IngestPolicy = {}, isPublic = true): Promise<void> {
    const rules = { pinned: true, public: isPublic, priority: 0, policy };
    await writeTopic(this.pool, await this.community(), topic, rules, Date.now());
  }

  async community(): Promise<number> {
    const { rows } = await this.pool.query<{ id: number }>(
      "SELECT id FROM communities WHERE slug = 'default'",
    );
    return rows[0]!.id;
  }

  connect(): Promise<RawClient> {
    return RawClient.connect(this.url);
  }

  /** What the holder of the endpoint has written last. */
  async state(): Promise<P2pState | undefined> {
    const { rows } = await this.pool.query<{ state: P2pState }>(
      'SELECT state FROM p2p_machines WHERE state IS NOT NULL',
    );
    return rows[0]?.state;
  }

  async offset(): Promise<number> {
    return Number((await readP2pLease(this.pool)).lastSeq ?? -1);
  }

  async head(): Promise<number> {
    const { rows } = await this.pool.query<{ last_seq: number }>('SELECT last_seq FROM lane_state');
    return Number(rows[0]!.last_seq);
  }

  /** The NIP-11 document. */
  information(): Promise<{ readonly p2p?: { readonly ticket: string } }> {
    return new Promise((resolve, reject) => {
      const path = this.url.match(/^ws\+unix:\/\/(.*):\/$/)?.[1];
      const place = path === undefined ? { port: this.port, host: '127.0.0.1' } : { socketPath: path };
      const headers = { accept: 'application/nostr+json' };
      get({ ...place, path: '/', headers }, (response) => {
        let text = '';
        response.on('data', (chunk) => {
          text += chunk;
        });
        response.on('end', () => resolve(JSON.parse(text)));
      }).on('error', reject);
    });
  }

  async ticket(): Promise<{ readonly text: string; readonly ticket: Ticket }> {
    return eventually('NIP-11 has the ticket', async () => {
      const text = (await this.information()).p2p?.ticket;
      const ticket = text === undefined ? undefined : readTicket(text);
      const hasAddress = ticket?.machines.some(({ addresses }) => addresses.length > 0);
      return hasAddress ? { text: text!, ticket: ticket! } : undefined;
    });
  }

  /** Waits until it has so many neighbours and has joined so many topics. */
  async settled(neighbours: number, topics: number): Promise<P2pState> {
    return eventually(`${neighbours} neighbours and ${topics} topics\n`, async () => {
      const state = await this.state();
      const isThere = state?.neighbours.length === neighbours && state.topics === topics;
      const all = state?.neighbours.every((neighbour) => neighbour.topics === topics);
      return isThere && all ? state : undefined;
    });
  }

  /** Everything in the outbox has been sent. */
  async drained(): Promise<void> {
    await eventually('the outbox is sent', async () =>
      (await this.offset()) === (await this.head()) ? true : undefined,
    );
  }
}

/** Joins every node to the first one, and waits until gossip has begun. */
export async function connect(nodes: readonly GossipNode[]): Promise<void> {
  const { text } = await nodes[0]!.ticket();
  for (const node of nodes.slice(1)) await node.set('p2p.peers', [text]);
}

// ── A raw peer ─────────────────────────────────────────────────────────────────────────────────────────────

/** The endpoint of a node without the node: sends any bytes, and keeps what it receives. */
export class RawPeer {
  readonly received: { readonly topic: string; readonly content: Uint8Array }[] = [];
  readonly up = new Set<string>();
  /** Of all topics; each report as it came. */
  readonly changes: { readonly type: 'up' | 'down'; readonly peer: string }[] = [];
  private next = 1;

  private constructor(
    private readonly child: ChildProcess,
    readonly opened: Opened,
  ) {}

  static async open(net: Loopback): Promise<RawPeer> {
    const file = fileURLToPath(new URL('../../../dist/p2p/endpoint-process.js', import.meta.url));
    const child = net.spawn(['--no-deprecation', file], {
      stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
      serialization: 'advanced',
    });
    const options = {
      secret: randomBytes(32).toString('hex'),
      bind: '127.0.0.1',
      port: 0,
      discovery: false,
      limits: { messagesPerSecond: 100_000 },
    };
    const opened = (await callOn(child, 0, { type: 'open', options })) as Opened;
    const peer = new RawPeer(child, opened);
    child.on('message', (message) => peer.take(message as FromEndpoint));
    return peer;
  }

  get address(): PeerAddress {
    return { id: this.opened.id, addresses: this.opened.addresses };
  }

  private take(message: FromEndpoint): void {
    if (message.type === 'up') this.up.add(message.topic);
    if (message.type === 'up' || message.type === 'down')
      this.changes.push({ type: message.type, peer: message.peer });
    if (message.type !== 'message') return;
    this.received.push({ topic: message.topic, content: message.content });
    this.child.send({ type: 'took', peer: message.peer, count: 1 });
  }

  async join(
    topic: string,
    { machines }: { readonly machines: readonly PeerAddress[]; readonly urls?: readonly string[] },
    awaitsPeer = true,
  ): Promise<void> {
    await this.call({ type: 'join', topic, peers: machines });
    if (!awaitsPeer) return;
    await eventually('the raw peer is connected', () => this.up.has(topic) || undefined);
  }

  async send(topic: string, ...contents: Uint8Array[]): Promise<void> {
    await this.call({ type: 'send', topic, contents });
  }

  private call(what: Call): Promise<unknown> {
    return callOn(this.child, this.next++, what);
  }

  async close(): Promise<void> {
    const exited = once(this.child, 'exit');
    this.child.kill('SIGKILL');
    await exited;
  }
}

function callOn(child: ChildProcess, call: number, what: Call): Promise<Opened | undefined> {
  return new Promise((resolve, reject) => {
    const onMessage = (message: FromEndpoint): void => {
      if (message.type !== 'done' || message.call !== call) return;
      child.off('message', onMessage);
      if (message.error === undefined) resolve(message.opened);
      else reject(new Error(message.error));
    };
    child.on('message', onMessage);
    child.send({ type: 'call', call, what });
  });
}
