import { setTimeout as delay } from 'node:timers/promises';
import type { VerifiedEvent } from 'nostr-tools/pure';
import type { Client } from 'pg';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { type ConsumerState, readConsumers } from '../../src/outbox/consumers/admin.sql.js';
import { askRebuild } from '../../src/outbox/consumers/consumers.sql.js';
import { type Database, openDatabase } from '../../src/postgres/database.js';
import { eventually, type RunningCli, startCli } from '../support/cli.js';
import { RawClient } from '../support/clients/client.js';
import { newAuthor, nowSeconds, sign } from '../support/events.js';
import { createTestDatabase, type TestDatabase } from '../support/servers/database.js';
import { freePort } from '../support/servers/free-port.js';

const KILLS = 3;
const AT_ONCE = 12;
const ENOUGH = 300;
/** Of those that are sent here, all but the requests for deletion. */
const SEARCHED = [0, 1, 30_023];

let test: TestDatabase;
let database: Database;
let client: Client;
let running: Set<RunningCli>;

beforeEach(async () => {
  test = await createTestDatabase();
  database = openDatabase(test.connection);
  client = await database.connect();
  running = new Set();
});
afterEach(async () => {
  for (const cli of running) await kill(cli);
  await client.end();
  await database.close();
  await test.drop();
});

async function serve(port: number, roles: string): Promise<RunningCli> {
  const env = { DATABASE_URL: test.url, MINATO_PORT: `${port}`, MINATO_LOG_LEVEL: 'error' };
  const cli = startCli(['serve', '--roles', roles], env);
  running.add(cli);
  await eventually('it is ready', async () => {
    const ready = await fetch(`http://127.0.0.1:${port}/readyz`).catch(() => undefined);
    await delay(20);
    return ready?.ok ? true : undefined;
  });
  return cli;
}

async function kill(cli: RunningCli): Promise<void> {
  running.delete(cli);
  cli.child.kill('SIGKILL');
  await cli.ended;
}

/**
 * Sends posts, versions of a profile and of an article, and deletions of any of them, until it is stopped. It
 * reconnects whenever the connection breaks.
 */
class Publisher {
  private readonly author = newAuthor();
  private readonly posted: VerifiedEvent[] = [];
  private made = 0;
  private going = true;
  private readonly start = nowSeconds() - 100_000;
  private readonly loop: Promise<void>;

  constructor(private readonly url: string) {
    this.loop = this.run();
  }

  /** Not before there is something to compare, however slow the machine. */
  async stop(): Promise<void> {
    await eventually('enough was sent', () => (this.posted.length >= ENOUGH ? true : undefined));
    this.going = false;
    await this.loop;
  }

  private next(): VerifiedEvent {
    this.made += 1;
    const draft = { created_at: this.start + this.made, content: `harbour ${this.made} light` };
    if (this.made % 5 === 0) return sign(this.author, { ...draft, kind: 0 });
    if (this.made % 7 === 0) {
      const tags = [['d', `${this.made % 3}`]];
      return sign(this.author, { ...draft, kind: 30_023, tags });
    }
    const target =
      this.made % 4 === 0 ? this.posted[Math.floor(Math.random() * this.posted.length)] : undefined;
    return target === undefined
      ? sign(this.author, draft)
      : sign(this.author, { ...draft, kind: 5, tags: [['e', target.id]] });
  }

  private async run(): Promise<void> {
    while (this.going) {
      const socket = await RawClient.connect(this.url).catch(() => undefined);
      if (socket === undefined) await delay(50);
      else await this.publish(socket);
    }
  }

  private async publish(socket: RawClient): Promise<void> {
    while (this.going && socket.closed === undefined) {
      const from = socket.frames.length;
      const events = Array.from({ length: AT_ONCE }, () => this.next());
      for (const event of events) socket.send(['EVENT', event]);
      await socket.until(() => socket.frames.length >= from + AT_ONCE || socket.closed !== undefined);
      // Enough to be always at work, not to try how much it can take.
      await delay(40);
      this.posted.push(...events.filter(({ kind }) => kind !== 5));
    }
    socket.ws.terminate();
  }
}

const states = () => readConsumers(client, Date.now());

async function allAre(what: string, is: (state: ConsumerState) => boolean): Promise<void> {
  await eventually(what, async () => {
    const all = await states();
    await delay(10);
    return all.length > 0 && all.every(is) ? true : undefined;
  });
}

/** Kills it at a random moment of its work; half of the time also during a rebuild. */
async function killAtWork(cli: RunningCli, at: number): Promise<void> {
  const before = new Map((await states()).map(({ consumer, applied }) => [consumer, applied]));
  await allAre('each has worked', ({ consumer, applied }) => applied > (before.get(consumer) ?? 0));
  if (at % 2 === 1)
    for (const { consumer } of await states()) await askRebuild(client, consumer, 'asked for', 0);
  await delay(Math.random() * 250);
  await kill(cli);
  // As after the seconds that a watcher waits; the last one really waits.
  if (at < KILLS - 1) await client.query('UPDATE consumer_offsets SET holder = NULL');
}

/**
 * The generation that is read, without its number; what is deleted is kept there for a while, and is not
 * found.
 */
async function documents(): Promise<{ readonly id: string }[]> {
  const { rows } = await client.query<{ id: string }>(
    `SELECT community, kind, created_at, seq, encode(event_id, 'hex') AS id,
       encode(author, 'hex') AS author, words::text
     FROM post_search_documents WHERE deleted_at IS NULL
       AND generation = (SELECT generation FROM consumer_offsets WHERE consumer = 'search') ORDER BY seq`,
  );
  return rows;
}

async function expectAsRebuilt(): Promise<void> {
  const isDone = ({ lagRows, rebuild }: ConsumerState) => lagRows === 0 && rebuild === undefined;
  await allAre('everything is passed', isDone);
  const followed = await documents();
  const generations = new Map((await states()).map(({ consumer, generation }) => [consumer, generation]));
  for (const consumer of generations.keys()) await askRebuild(client, consumer, 'to compare', 0);
  await allAre(
    'all are rebuilt',
    (state) => isDone(state) && state.generation > generations.get(state.consumer)!,
  );
  expect(await documents()).toEqual(followed);
  const { rows } = await client.query<{ id: string }>(
    `SELECT encode(id, 'hex') AS id FROM events WHERE hidden IS NULL AND kind = ANY ($1) ORDER BY seq`,
    [SEARCHED],
  );
  expect(followed.map(({ id }) => id)).toEqual(rows.map(({ id }) => id));
  expect(followed.length).toBeGreaterThan(50);
  for (const { consumer, deadLetters } of await states())
    expect({ consumer, deadLetters }).toEqual({ consumer, deadLetters: 0 });
}

it('a node that is killed again and again ends in the same state as a rebuild', async () => {
  const port = await freePort();
  const publisher = new Publisher(`ws://127.0.0.1:${port}`);
  for (let at = 0; at < KILLS; at += 1) await killAtWork(await serve(port, 'relay,api,worker'), at);
  await serve(port, 'relay,api,worker');
  await publisher.stop();
  await expectAsRebuilt();
});

it('so does a separate worker beside a running relay', async () => {
  const [port, workerPort] = [await freePort(), await freePort()];
  await serve(port, 'relay');
  const publisher = new Publisher(`ws://127.0.0.1:${port}`);
  for (let at = 0; at < KILLS; at += 1) await killAtWork(await serve(workerPort, 'worker'), at);
  await publisher.stop();
  await serve(workerPort, 'worker');
  await expectAsRebuilt();
});
