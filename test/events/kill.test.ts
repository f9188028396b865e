/**
 * I1: after `OK true` an event survives `kill -9` of every process at any moment. The test spawns the real
 * program with its own PostgreSQL, publishes without pause, and kills its processes.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmod, mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import type { VerifiedEvent } from 'nostr-tools/pure';
import pg from 'pg';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { LANE_LOCK } from '../../src/events/postgres/lane/lock.js';
import { isAlive } from '../../src/postgres/data-lock.js';
import { runningEmbedded } from '../../src/postgres/embedded.js';
import { RawClient } from '../support/clients/client.js';
import { type Author, newAuthor, nowSeconds, sign } from '../support/events.js';
import { freePort } from '../support/servers/free-port.js';
import { copyCluster } from '../support/servers/postgres.js';

const root = fileURLToPath(new URL('../..', import.meta.url));
const WAIT_MS = 120_000;

let parent: string;
let dataDir: string;
let port: number;
let children: ChildProcess[];

beforeEach(async () => {
  parent = await mkdtemp(join(tmpdir(), 'minato-test-'));
  await chmod(parent, 0o755);
  dataDir = join(parent, 'data');
  await copyCluster(dataDir);
  port = await freePort();
  children = [];
});

afterEach(async () => {
  for (const child of children) {
    if (child.exitCode === null && child.signalCode === null) {
      child.kill('SIGKILL');
      await once(child, 'exit');
    }
  }
  const server = await serverPid().catch(() => undefined);
  if (server !== undefined && (await isAlive(server))) {
    process.kill(server, 'SIGQUIT');
    await eventually(async () => !(await isAlive(server)), 'the database of this test is gone');
  }
  await rm(parent, { recursive: true, force: true });
});

async function eventually(condition: () => Promise<boolean> | boolean, what: string): Promise<void> {
  const deadline = Date.now() + WAIT_MS;
  while (!(await condition())) {
    if (Date.now() > deadline) throw new Error(`did not happen: ${what}`);
    await delay(20);
  }
}

interface Serving {
  readonly child: ChildProcess;
  /** Its output so far. */
  said(): string;
}

function spawnNode(): Serving {
  const child = spawn(process.execPath, ['bin/minato.js', 'serve'], {
    cwd: root,
    env: {
      PATH: process.env.PATH,
      MINATO_DATA_DIR: dataDir,
      MINATO_PORT: `${port}`,
      MINATO_TOPIC_MODE: 'open',
    },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  children.push(child);
  let said = '';
  for (const stream of [child.stdout!, child.stderr!]) {
    createInterface({ input: stream }).on('line', (line) => {
      said += `${line}\n`;
    });
  }
  return { child, said: () => said };
}

async function startNode(): Promise<Serving> {
  const serving = spawnNode();
  await eventually(() => {
    if (serving.child.exitCode !== null) throw new Error(`the node ended: ${serving.said()}`);
    return serving.said().includes('"msg":"ready"');
  }, `the node is ready; it said: ${serving.said()}`);
  return serving;
}

async function killHard(child: ChildProcess): Promise<void> {
  child.kill('SIGKILL');
  if (child.exitCode === null && child.signalCode === null) await once(child, 'exit');
}

async function serverPid(): Promise<number> {
  return Number((await readFile(join(dataDir, 'postgres', 'postmaster.pid'), 'utf8')).split('\n')[0]);
}

async function sql<T>(text: string, values: unknown[] = []): Promise<T[]> {
  const client = new pg.Client(await runningEmbedded(dataDir));
  client.on('error', () => undefined);
  await client.connect();
  try {
    return (await client.query(text, values)).rows;
  } finally {
    await client.end();
  }
}

/** The backend of the lane's session. Under load it holds its lock nearly all the time. */
async function laneBackend(): Promise<number> {
  let pid = 0;
  await eventually(async () => {
    const rows = await sql<{ pid: number }>(
      "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND objid = $1 AND granted",
      [LANE_LOCK],
    );
    pid = rows[0]?.pid ?? 0;
    return pid > 0;
  }, 'the lane has its lock');
  return pid;
}

const url = () => `ws://127.0.0.1:${port}`;
const IN_FLIGHT_MAX = 16;
const HAVE_NEWER = 'duplicate: have a newer version';

/** Publishes without end. It reconnects when it is disconnected, and sends unanswered events again. */
class Publisher {
  readonly acknowledged = new Map<string, VerifiedEvent>();
  readonly refused: string[] = [];
  connections = 0;
  /** Called synchronously with each `OK true`. */
  onOk: (() => void) | undefined;
  private readonly author: Author = newAuthor();
  private readonly unanswered = new Map<string, VerifiedEvent>();
  private made = 0;
  private running = true;
  private readonly start = nowSeconds() - 100_000;
  private readonly loop = this.run();

  async stop(): Promise<void> {
    this.running = false;
    await this.loop;
  }

  /** Every fifth is a version of the author's profile. */
  private next(): VerifiedEvent {
    this.made += 1;
    const kind = this.made % 5 === 0 ? 0 : 1;
    return sign(this.author, { kind, created_at: this.start + this.made, content: `${this.made}` });
  }

  private async run(): Promise<void> {
    while (this.running) {
      const client = await RawClient.connect(url()).catch(() => undefined);
      if (client === undefined) await delay(50);
      else {
        this.connections += 1;
        await this.publish(client);
      }
    }
  }

  private async publish(client: RawClient): Promise<void> {
    let read = 0;
    for (const event of this.unanswered.values()) client.send(['EVENT', event]);
    while (this.running && client.closed === undefined) {
      while (this.unanswered.size < IN_FLIGHT_MAX) {
        const event = this.next();
        this.unanswered.set(event.id, event);
        client.send(['EVENT', event]);
      }
      const seen = read;
      await client
        .until(() => client.frames.length > seen || client.closed !== undefined || !this.running, 500)
        .catch(() => undefined);
      for (; read < client.frames.length; read++) this.hear(client.frames[read]!);
    }
    client.ws.terminate();
  }

  private hear([type, id, accepted, message]: unknown[]): void {
    if (type !== 'OK') return;
    const event = this.unanswered.get(id as string);
    if (event === undefined) return;
    this.unanswered.delete(event.id);
    if (accepted === true) {
      // Versions that are in flight together may pass each other. The older one is not stored then.
      if (message !== HAVE_NEWER) this.acknowledged.set(event.id, event);
      this.onOk?.();
    } else this.refused.push(message as string);
  }
}

/** Every acknowledged event is served once. No version older than the newest acknowledged one is served. */
async function expectKept(acknowledged: readonly VerifiedEvent[]): Promise<void> {
  const reader = await RawClient.connect(url());
  const regular = acknowledged.filter((event) => event.kind === 1);
  const served = new Map<string, unknown>();
  for (let at = 0; at < regular.length; at += 400) {
    const ids = regular.slice(at, at + 400).map(({ id }) => id);
    for (const event of (await reader.query({ ids, limit: 500 })).events) served.set(event.id, event);
  }
  const missing = regular.filter(({ id }) => !served.has(id));
  expect(missing.map(({ content }) => content)).toEqual([]);
  expect(served.get(regular[0]!.id)).toEqual(regular[0]);

  for (const pubkey of new Set(acknowledged.map((event) => event.pubkey))) {
    const versions = acknowledged.filter((event) => event.kind === 0 && event.pubkey === pubkey);
    if (versions.length === 0) continue;
    const { events } = await reader.query({ kinds: [0], authors: [pubkey] });
    expect(events).toHaveLength(1);
    // A version whose OK was lost may be even newer.
    const newest = Math.max(...versions.map(({ created_at }) => created_at));
    expect((events[0] as VerifiedEvent).created_at).toBeGreaterThanOrEqual(newest);
  }
  await reader.close();

  const known = await sql<{ count: number }>(
    'SELECT count(*)::int FROM event_dedupe WHERE event_id = ANY ($1::bytea[])',
    [acknowledged.map(({ id }) => Buffer.from(id, 'hex'))],
  );
  expect(known[0]!.count).toBe(acknowledged.length);
  const doubles = await sql(
    `SELECT event_id FROM events_outbox WHERE op = 'upsert' GROUP BY event_id HAVING count(*) > 1
     UNION ALL SELECT id FROM events GROUP BY id HAVING count(*) > 1`,
  );
  expect(doubles).toEqual([]);
  const whole = await sql(
    `SELECT count(*) = max(seq) AND max(seq) = (SELECT last_seq FROM lane_state) AS outbox,
       (SELECT count(*) FROM events) = (SELECT count(*) FROM event_dedupe) AS rows
     FROM events_outbox`,
  );
  expect(whole).toEqual([{ outbox: true, rows: true }]);
}

describe('kill -9', () => {
  it('of node, PostgreSQL or backend, repeatedly under load, loses no acknowledged event', async () => {
    let serving = await startNode();
    const publishers = Array.from({ length: 4 }, () => new Publisher());
    const acknowledged = () => publishers.flatMap((publisher) => [...publisher.acknowledged.values()]);
    /** Every publisher gets OKs again. */
    const publishesAgain = async (what: string) => {
      const goals = publishers.map(({ acknowledged }) => acknowledged.size + 40);
      await eventually(
        () => publishers.every(({ acknowledged }, place) => acknowledged.size >= goals[place]!),
        `OKs after ${what}; the node said: ${serving.said().slice(-2_000)}`,
      );
    };
    /** Kills at the moment of an OK. */
    const killAtOk = (...pids: number[]) =>
      new Promise<void>((resolve) => {
        for (const publisher of publishers) {
          publisher.onOk = () => {
            for (const each of publishers) each.onOk = undefined;
            for (const pid of pids) process.kill(pid, 'SIGKILL');
            resolve();
          };
        }
      });
    try {
      await publishesAgain('the start');

      await killAtOk(serving.child.pid!);
      await killHard(serving.child);
      serving = await startNode();
      await publishesAgain('the node was killed');

      const connections = publishers.map((publisher) => publisher.connections);
      const server = await serverPid();
      await killAtOk(server);
      await publishesAgain('PostgreSQL was killed');
      expect(await serverPid()).not.toBe(server);

      await killAtOk(await laneBackend());
      await publishesAgain("the lane's backend was killed");
      // The clients stayed connected.
      expect(publishers.map((publisher) => publisher.connections)).toEqual(connections);
      expect(serving.child.exitCode).toBeNull();

      await killAtOk(await laneBackend(), serving.child.pid!, await serverPid());
      await killHard(serving.child);
      serving = await startNode();
      await publishesAgain('all were killed at once');

      // During the recovery from the last kill.
      process.kill(await serverPid(), 'SIGKILL');
      await delay(300);
      await killHard(serving.child);
      serving = await startNode();
      await publishesAgain('the node was killed while PostgreSQL was coming back');
    } finally {
      await Promise.all(publishers.map((publisher) => publisher.stop()));
    }
    // A refusal is allowed during an outage, but only for the right reason.
    for (const publisher of publishers) {
      for (const message of publisher.refused) expect(message).toMatch(/^error: /);
    }
    await expectKept(acknowledged());

    // Once more after a restart, from the disk.
    await killHard(serving.child);
    serving = await startNode();
    await expectKept(acknowledged());
  }, 600_000);
});

describe('SIGTERM', () => {
  it('finishes the lane, cuts sockets so that clients reconnect, stops PostgreSQL, exits 0', async () => {
    let serving = await startNode();
    const server = await serverPid();
    const author = newAuthor();
    const clients = await Promise.all(Array.from({ length: 4 }, () => RawClient.connect(url())));
    const bursts = clients.map((_, place) =>
      Array.from({ length: 250 }, (__, number) => sign(author, { content: `${place}.${number}` })),
    );
    clients.forEach((client, place) => {
      for (const event of bursts[place]!) client.send(['EVENT', event]);
    });
    await clients[0]!.waitFor((frame) => frame[0] === 'OK');
    const exited = once(serving.child, 'exit');
    serving.child.kill('SIGTERM');
    expect(await exited).toEqual([0, null]);
    expect(await isAlive(server)).toBe(false);

    const acknowledged: VerifiedEvent[] = [];
    for (const [place, client] of clients.entries()) {
      await client.until(() => client.closed !== undefined);
      expect(client.closed?.code).toBe(1_006);
      const oks = client.frames.filter((frame) => frame[0] === 'OK');
      expect(new Set(oks.map(([, id]) => id)).size).toBe(oks.length);
      for (const [, id, accepted, message] of oks) {
        if (accepted === true) acknowledged.push(bursts[place]!.find((event) => event.id === id)!);
        else expect(message).toBe('error: the relay is shutting down');
      }
    }
    expect(acknowledged.length).toBeGreaterThan(0);

    serving = await startNode();
    await expectKept(acknowledged);
    // Other events were refused or not answered; none is stored partially.
    const stored = await sql<{ count: number }>('SELECT count(*)::int FROM events');
    expect(stored[0]!.count).toBe(acknowledged.length);
  });
});

describe('a second node on the same data folder', () => {
  it('is refused with a message that names the first, which continues', async () => {
    const first = await startNode();
    const client = await RawClient.connect(url());
    const holder = port;
    port = await freePort();
    const second = spawnNode();
    expect(await once(second.child, 'exit')).toEqual([1, null]);
    port = holder;
    await eventually(() => second.said().includes('in use'), 'the sentence');
    expect(second.said()).toMatch(
      new RegExp(
        `^minato: The data folder .* is in use by process ${first.child.pid}\\..*MINATO_DATA_DIR`,
        'm',
      ),
    );
    expect(await client.publish(sign(newAuthor()))).toEqual([true, '']);
    await client.close();
  });
});
