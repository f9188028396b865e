/** Two nodes on one database behave as one relay: an event written on one is seen on the other, once. */
import { randomBytes } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest';
import { writeSetting } from '../../src/communities/communities.sql.js';
import { readConfig } from '../../src/node/config.js';
import { createLog } from '../../src/node/log.js';
import { prepareDatabase } from '../../src/node/prepare.js';
import { checkVersion, openDatabase } from '../../src/postgres/database.js';
import { RawClient } from '../support/clients/client.js';
import { newAuthor, nowSeconds, sign } from '../support/events.js';
import { startTestNode, type TestNode } from '../support/node.js';
import { createTestDatabase } from '../support/servers/database.js';
import { FaultProxy } from '../support/servers/fault-proxy.js';

const log = createLog('silent');

describe('two nodes on one database', () => {
  let nodes: [TestNode, TestNode];
  let clients: [RawClient, RawClient];

  beforeAll(async () => {
    const first = await startTestNode();
    nodes = [first, await startTestNode({ on: first.test })];
    clients = [await RawClient.connect(nodes[0].url), await RawClient.connect(nodes[1].url)];
  });
  afterAll(async () => {
    for (const client of clients) await client.close();
    await nodes[1].close();
    await nodes[0].close();
  });

  const sql = async <T>(text: string, values: unknown[] = []): Promise<T[]> =>
    (await nodes[0].database.pool.query(text, values)).rows;

  it.each([
    ['first', 'second', 0, 1],
    ['second', 'first', 1, 0],
  ] as const)(
    'an event published on the %s arrives live on the %s, ephemeral or not',
    async (_, __, from, to) => {
      const author = newAuthor();
      const reader = clients[to];
      reader.send(['REQ', `live${to}`, { authors: [author.pubkey] }]);
      await reader.waitFor((frame) => frame[0] === 'EOSE' && frame[1] === `live${to}`);
      // Larger than a NOTIFY can be.
      const events = [
        sign(author, { content: 'hello' }),
        sign(author, { kind: 20_001, content: 'typing'.repeat(3_000) }),
        sign(author, { kind: 0, content: 'profile' }),
      ];
      for (const event of events) expect(await clients[from].publish(event)).toEqual([true, '']);
      const received = () =>
        reader.frames.filter((frame) => frame[0] === 'EVENT' && frame[1] === `live${to}`).map((f) => f[2]);
      await reader.until(() => received().length >= events.length);
      // Stored and ephemeral events use two tables, so their relative order is undefined.
      expect(sorted(received())).toEqual(sorted(events));
      reader.send(['CLOSE', `live${to}`]);
    },
  );

  it('the same events sent to both at the same moment are stored and announced once', async () => {
    const author = newAuthor();
    const events = Array.from({ length: 200 }, (_, place) => sign(author, { content: `${place}` }));
    const reader = await RawClient.connect(nodes[1].url);
    reader.send(['REQ', 'all', { authors: [author.pubkey], limit: 0 }]);
    await reader.waitFor((frame) => frame[0] === 'EOSE');
    const from = clients.map((client) => client.frames.length);
    for (const event of events) for (const client of clients) client.send(['EVENT', event]);
    const answers = await Promise.all(
      clients.map(async (client, place) => {
        const oks = () => client.frames.slice(from[place]).filter((frame) => frame[0] === 'OK');
        await client.until(() => oks().length === events.length, 30_000);
        return new Map(oks().map(([, id, accepted, message]) => [id as string, [accepted, message]]));
      }),
    );
    const duplicate = [true, 'duplicate: already have this event'];
    for (const { id } of events) {
      const both = answers.map((answer) => answer.get(id)).sort((a, b) => String(a).localeCompare(String(b)));
      expect(both).toEqual([[true, ''], duplicate]);
    }
    const announced = await sql<{ upserts: number; ids: number }>(
      `SELECT count(*) AS upserts, count(DISTINCT event_id) AS ids FROM events_outbox
       WHERE author = decode($1, 'hex')`,
      [author.pubkey],
    );
    expect(announced).toEqual([{ upserts: 200, ids: 200 }]);
    const live = () =>
      reader.frames.filter((frame) => frame[0] === 'EVENT').map((f) => (f[2] as { id: string }).id);
    await reader.until(() => live().length >= events.length);
    expect(live().sort()).toEqual(events.map(({ id }) => id).sort());
    await reader.close();
  });

  it('an ephemeral event that the database forgets in a crash reaches a reader once', async () => {
    const author = newAuthor();
    const reader = await RawClient.connect(nodes[0].url);
    reader.send(['REQ', 'live', { authors: [author.pubkey] }]);
    await reader.waitFor((frame) => frame[0] === 'EOSE');
    const [event, last] = ['typing', 'last'].map((content) => sign(author, { kind: 20_001, content }));
    expect(await clients[0].publish(event!)).toEqual([true, '']);
    await reader.waitFor((frame) => frame[0] === 'EVENT');
    // A crash empties the bus; then an instance that was frozen sends the event once more.
    await sql(`DELETE FROM live_bus WHERE event_id = decode($1, 'hex')`, [event!.id]);
    await sql(
      `INSERT INTO live_bus (sent_at, community, event_id, payload)
       VALUES ($1, 1, decode($2, 'hex'), $3)`,
      [Date.now(), event!.id, JSON.stringify(event)],
    );
    expect(await clients[1].publish(last!)).toEqual([true, '']);
    const received = () => reader.frames.filter((frame) => frame[0] === 'EVENT').map((frame) => frame[2]);
    await reader.until(() => received().length >= 2);
    expect(received()).toEqual([event, last]);
    await reader.close();
  });

  it('an ephemeral event sent to both at the same moment reaches a reader once', async () => {
    const author = newAuthor();
    const readers = await Promise.all(nodes.map((node) => RawClient.connect(node.url)));
    for (const reader of readers) {
      reader.send(['REQ', 'live', { authors: [author.pubkey] }]);
      await reader.waitFor((frame) => frame[0] === 'EOSE');
    }
    const events = Array.from({ length: 50 }, (_, place) =>
      sign(author, { kind: 20_001, content: `${place}` }),
    );
    const from = clients.map((client) => client.frames.length);
    for (const event of events) for (const client of clients) client.send(['EVENT', event]);
    await Promise.all(
      clients.map((client, place) =>
        client.until(
          () =>
            client.frames.slice(from[place]).filter((frame) => frame[0] === 'OK').length === events.length,
        ),
      ),
    );
    const last = sign(author, { kind: 20_001, content: 'last' });
    expect(await clients[0].publish(last)).toEqual([true, '']);
    for (const reader of readers) {
      await reader.waitFor((frame) => frame[0] === 'EVENT' && (frame[2] as { id: string }).id === last.id);
      const received = reader.frames.filter((frame) => frame[0] === 'EVENT').map((frame) => frame[2]);
      expect(sorted(received)).toEqual(sorted([...events, last]));
      await reader.close();
    }
  });

  it.each([
    ['the older one first', [0, 1]],
    ['the newer one first', [1, 0]],
  ] as const)('versions of one key raced over both leave the newest, %s', async (_, order) => {
    const authors = Array.from({ length: 30 }, newAuthor);
    const now = nowSeconds();
    const versions = authors.map((author) => [
      sign(author, { kind: 30_023, created_at: now - 10, content: 'old', tags: [['d', 'x']] }),
      sign(author, { kind: 30_023, created_at: now - 5, content: 'new', tags: [['d', 'x']] }),
    ]);
    // Ties too: the same second, so the lowest id wins.
    const tied = authors.map((author) =>
      ['a', 'b'].map((content) => sign(author, { kind: 0, created_at: now, content })),
    );
    const from = clients.map((client) => client.frames.length);
    for (const pair of [...versions, ...tied]) {
      for (const which of order) clients[which]!.send(['EVENT', pair[which]]);
    }
    await Promise.all(
      clients.map((client, place) =>
        client.until(
          () => client.frames.slice(from[place]).filter((frame) => frame[0] === 'OK').length === 60,
          30_000,
        ),
      ),
    );
    const winners = [
      ...versions.map((pair) => pair[1]!.id),
      ...tied.map((pair) => pair.map(({ id }) => id).sort()[0]!),
    ].sort();
    const pubkeys = authors.map(({ pubkey }) => pubkey);
    for (const client of clients) {
      const { events } = await client.query({ authors: pubkeys });
      expect(events.map(({ id }) => id).sort()).toEqual(winners);
    }
    // The outbox replays to the same view: each key ends with the upsert of its winner.
    const view = new Map<string, string>();
    const rows = await sql<{ op: string; key: string; id: string }>(
      `SELECT op, effective_key AS key, encode(event_id, 'hex') AS id FROM events_outbox
       WHERE encode(author, 'hex') = ANY ($1) ORDER BY seq`,
      [pubkeys],
    );
    for (const { op, key, id } of rows) {
      if (op === 'upsert') {
        expect(view.has(key)).toBe(false);
        view.set(key, id);
      } else if (view.get(key) === id) view.delete(key);
    }
    expect([...view.values()].sort()).toEqual(winners);
  });

  it('a setting changed on one applies on the other without a restart', async () => {
    const other = nodes[1].node.communities.find(undefined, 'default')!;
    await writeSetting(nodes[0].database.pool, other.id, 'relay.name', 'Elsewhere', Date.now());
    await writeSetting(nodes[0].database.pool, other.id, 'limits.tagsMax', 3, Date.now());
    const name = async () => {
      const response = await fetch(nodes[1].http, { headers: { accept: 'application/nostr+json' } });
      return ((await response.json()) as { name: string }).name;
    };
    await eventually(async () => (await name()) === 'Elsewhere');
    await eventually(async () => nodes[1].node.communities.get(other.id)?.settings['limits.tagsMax'] === 3);
    const tags = Array.from({ length: 4 }, (_, place) => ['x', `${place}`]);
    const [accepted, message] = await clients[1].publish(sign(newAuthor(), { tags }));
    expect(accepted).toBe(false);
    expect(message).toMatch(/^invalid: .* more than 3 tags/);
    await writeSetting(nodes[0].database.pool, other.id, 'limits.tagsMax', 2_000, Date.now());
  });

  it('a listening session that is killed repeatedly does not stop live delivery', async () => {
    const author = newAuthor();
    const reader = await RawClient.connect(nodes[1].url);
    reader.send(['REQ', 'live', { authors: [author.pubkey], limit: 0 }]);
    await reader.waitFor((frame) => frame[0] === 'EOSE');
    let killing = true;
    let killed = 0;
    const kill = async () => {
      while (killing) {
        const rows = await sql(
          `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
           WHERE datname = current_database() AND query = 'LISTEN minato_outbox'`,
        );
        killed += rows.length;
        await delay(20);
      }
    };
    const loop = kill();
    const events = Array.from({ length: 30 }, (_, place) => sign(author, { content: `${place}` }));
    for (const event of events) {
      expect(await clients[0].publish(event)).toEqual([true, '']);
      await delay(50);
    }
    const live = () =>
      reader.frames.filter((frame) => frame[0] === 'EVENT').map((f) => (f[2] as { id: string }).id);
    await reader.until(() => live().length >= events.length);
    killing = false;
    await loop;
    expect(killed).toBeGreaterThan(2);
    expect(live()).toEqual(events.map(({ id }) => id));
    await reader.close();
  });
});

describe('polling is enough', () => {
  it('a node that gets no NOTIFY still delivers, ephemeral events too', async () => {
    const writing = await startTestNode();
    const proxy = await FaultProxy.start(writing.test.connection);
    const cut = proxy.when('LISTEN', { kind: 'cut' }, Number.POSITIVE_INFINITY);
    const deaf = await startTestNode({ on: { ...writing.test, connection: proxy.connection } });
    await cut;
    const writer = await RawClient.connect(writing.url);
    const reader = await RawClient.connect(deaf.url);
    try {
      const author = newAuthor();
      reader.send(['REQ', 'live', { authors: [author.pubkey] }]);
      await reader.waitFor((frame) => frame[0] === 'EOSE');
      for (const kind of [1, 20_001, 1]) {
        const event = sign(author, { kind, content: randomBytes(8).toString('hex') });
        expect(await writer.publish(event)).toEqual([true, '']);
        const frame = await reader.waitFor(
          (f) => f[0] === 'EVENT' && (f[2] as { id: string }).id === event.id,
        );
        expect(frame[2]).toEqual(event);
      }
      const { rows } = await writing.database.pool.query(
        `SELECT count(*)::int FROM pg_stat_activity
         WHERE datname = current_database() AND query = 'LISTEN minato_outbox'`,
      );
      // Only the writing node listens. The scheduler uses another channel.
      expect(rows).toEqual([{ count: 1 }]);
    } finally {
      await writer.close();
      await reader.close();
      await deaf.close();
      await proxy.stop();
      await writing.close();
    }
  });
});

describe('the schema', () => {
  const config = readConfig({ MINATO_TOPIC_MODE: 'open' });

  it('is created once when several instances boot together on an empty database', async () => {
    const connection = { ...inject('postgres'), database: `test_${randomBytes(6).toString('hex')}` };
    await asAdmin(`CREATE DATABASE ${connection.database}`);
    const databases = Array.from({ length: 3 }, () => openDatabase(connection));
    try {
      const prepared = await Promise.all(
        databases.map((database) => prepareDatabase(database, config, Date.now, log)),
      );
      // Values fixed at the first boot are the same for all instances.
      expect(new Set(prepared.map(({ tagHash }) => tagHash(1, 't', 'sea'))).size).toBe(1);
      const { rows } = await databases[0]!.pool.query(
        `SELECT (SELECT count(*)::int FROM communities) AS communities,
           (SELECT count(*) = count(DISTINCT name) FROM schema_migrations) AS once,
           (SELECT count(*)::int FROM lane_state) AS lanes`,
      );
      expect(rows).toEqual([{ communities: 1, once: true, lanes: 1 }]);
    } finally {
      for (const database of databases) await database.close();
      await asAdmin(`DROP DATABASE ${connection.database} WITH (FORCE)`);
    }
  });

  it('that is newer than the program is refused with a message, and not changed', async () => {
    const test = await createTestDatabase();
    const database = openDatabase(test.connection);
    try {
      await database.pool.query(
        "INSERT INTO schema_migrations (name, run_on) VALUES ('999999-from-the-future', '2030-01-01')",
      );
      const boot = () => prepareDatabase(database, config, Date.now, log);
      await expect(boot()).rejects.toThrow(
        /schema of the database is newer than this program .*999999-from-the-future.*newer Minato/,
      );
      // The refusal leaves no lock: a second boot gets the same error immediately.
      await expect(boot()).rejects.toThrow(/newer than this program/);
      const { rows } = await database.pool.query('SELECT 1 FROM communities');
      expect(rows).toEqual([]);
    } finally {
      await database.close();
      await test.drop();
    }
  });

  it('is not touched on a PostgreSQL older than 15, which is refused with a message', async () => {
    const test = await createTestDatabase();
    const client = new pg.Client(test.connection);
    await client.connect();
    try {
      // A function earlier in the search path replaces the server's answer.
      await client.query(`
        CREATE SCHEMA old;
        CREATE FUNCTION old.current_setting(name text) RETURNS text LANGUAGE sql AS $$
          SELECT CASE name WHEN 'server_version_num' THEN '140011' ELSE '14.11' END $$;`);
      expect(await checkVersion(client)).toMatch(/^1[5-9]|^[2-9]\d/);
      await client.query('SET search_path = old, pg_catalog, public');
      await expect(checkVersion(client)).rejects.toThrow(/PostgreSQL 14\.11 is too old: .*15 or newer/);
      await client.query(
        `CREATE OR REPLACE FUNCTION old.current_setting(name text) RETURNS text LANGUAGE sql AS $$
         SELECT '150000' $$`,
      );
      expect(await checkVersion(client)).toBe('150000');
    } finally {
      await client.end();
      await test.drop();
    }
  });
});

function sorted(events: unknown[]): unknown[] {
  return [...events].sort((a, b) => ((a as { id: string }).id < (b as { id: string }).id ? -1 : 1));
}

async function eventually(condition: () => Promise<boolean>, timeoutMs = 15_000): Promise<void> {
  const deadline = Date.now() + timeoutMs;
  while (!(await condition())) {
    if (Date.now() > deadline) throw new Error('it did not happen');
    await delay(50);
  }
}

async function asAdmin(statement: string): Promise<void> {
  const admin = new pg.Client({ ...inject('postgres'), database: 'postgres' });
  await admin.connect();
  await admin.query(statement);
  await admin.end();
}
