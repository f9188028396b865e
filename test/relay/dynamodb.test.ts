/**
 * The whole relay with its events in DynamoDB, over sockets: NIP-09, 40 and 62, cursors and NIP-77 on two
 * instances, and consumers that follow and rebuild. `relay.test.ts` and `count.test.ts` run on both stores.
 * Only this store has a log that follows a moment later, so these tests wait for it.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { askRebuild } from '../../src/outbox/consumers/consumers.sql.js';
import { openDatabase } from '../../src/postgres/database.js';
import { eventually } from '../support/cli.js';
import { RawClient } from '../support/clients/client.js';
import { Follower } from '../support/clients/follower.js';
import { type Author, type Draft, newAuthor, nowSeconds, sign } from '../support/events.js';
import { startTestNode, type TestNode } from '../support/node.js';
import { createTestDatabase, type TestDatabase } from '../support/servers/database.js';
import { READY } from '../support/servers/templates.js';
import { type Ledger, makeLedger } from '../support/stores/ledger.js';

let test: TestDatabase;
let ledger: Ledger;
let nodes: [TestNode, TestNode];
let clients: [RawClient, RawClient];
/**
 * Hidden at read, by time or by a request to vanish, and announced by jobs that do not run here: a consumer
 * that comes to such an event later does not see it, one that was faster has it.
 */
const unannounced = new Set<string>();

beforeAll(async () => {
  test = await createTestDatabase(READY);
  const database = openDatabase(test.connection);
  ledger = await makeLedger(database.pool);
  await database.close();
  const start = () =>
    startTestNode({ on: test, store: 'dynamodb', jobs: [], consumers: [ledger], upkeepMs: 200 });
  nodes = [await start(), await start()];
  clients = [await RawClient.connect(nodes[0].url), await RawClient.connect(nodes[1].url)];
});
afterAll(async () => {
  for (const client of clients ?? []) await client.close();
  for (const node of nodes ?? []) await node.close();
  await test?.drop();
});

const publish = async (author: Author, draft: Draft = {}, by = 0) => {
  const event = sign(author, draft);
  expect(await clients[by]!.publish(event)).toEqual([true, '']);
  return event;
};
const ids = async (filter: object, by = 0) => (await clients[by]!.query(filter)).events.map(({ id }) => id);
const BLOCKED = [false, 'blocked: deleted by its author'];

describe('a deletion (NIP-09)', () => {
  it('by id and by address hides at once on every instance, and its targets stay out', async () => {
    const author = newAuthor();
    const authors = [author.pubkey];
    const note = await publish(author);
    const article = await publish(author, { kind: 30_023, created_at: 100, tags: [['d', 'a:b']] });
    const later = sign(author, { kind: 30_023, created_at: nowSeconds() + 5, tags: [['d', 'a:b']] });
    const tags = [
      ['e', note.id],
      ['a', `30023:${author.pubkey}:a:b`],
    ];
    const request = await publish(author, { kind: 5, tags }, 1);
    for (const by of [0, 1]) {
      expect(await ids({ authors }, by)).toEqual([request.id]);
      expect(await clients[by]!.publish(note)).toEqual(BLOCKED);
      expect(await clients[by]!.publish(article)).toEqual(BLOCKED);
    }
    expect(await clients[0].publish(later)).toEqual([true, '']);
    expect(await ids({ authors, kinds: [30_023] }, 1)).toEqual([later.id]);
  });

  it('that arrives first refuses its target; of a stranger it has no effect', async () => {
    const [author, stranger] = [newAuthor(), newAuthor()];
    const [own, other] = [sign(author), sign(author, { content: 'stays' })];
    await publish(author, { kind: 5, tags: [['e', own.id]] });
    await publish(stranger, { kind: 5, tags: [['e', other.id]] });
    expect(await clients[1].publish(own)).toEqual(BLOCKED);
    expect(await clients[1].publish(other)).toEqual([true, '']);
    expect(await ids({ authors: [author.pubkey], kinds: [1] })).toEqual([other.id]);
  });
});

describe('time', () => {
  it('hides an event from its expiration on (NIP-40)', async () => {
    const author = newAuthor();
    const until = nowSeconds() + 3;
    const event = await publish(author, { tags: [['expiration', `${until}`]] });
    if (nowSeconds() < until - 1) expect(await ids({ ids: [event.id] })).toEqual([event.id]);
    unannounced.add(event.id);
    await eventually('it expires', () => nowSeconds() >= until || undefined);
    expect(await ids({ ids: [event.id] })).toEqual([]);
    expect(await ids({ authors: [author.pubkey] }, 1)).toEqual([]);
  });
});

describe('a request to vanish (NIP-62)', () => {
  it('hides everything up to its time on every instance at once, and refuses it again', async () => {
    const author = newAuthor();
    const old = await publish(author, { created_at: nowSeconds() - 10 });
    const wrap = await publish(newAuthor(), { kind: 1_059, tags: [['p', author.pubkey]] });
    for (const { id } of [old, wrap]) unannounced.add(id);
    await publish(author, { kind: 62, tags: [['relay', 'ALL_RELAYS']] }, 1);
    for (const by of [0, 1]) {
      expect(await ids({ authors: [author.pubkey] }, by)).toEqual([]);
      expect((await clients[by]!.publish(old))[0]).toBe(false);
    }
    expect((await nodes[0].node.store.byIds([{ community: 1, id: wrap.id }])).size).toBe(0);
    const fresh = await publish(author, { created_at: nowSeconds() + 5 });
    expect(await ids({ authors: [author.pubkey] })).toEqual([fresh.id]);
    const { rows } = await nodes[0].database.pool.query('SELECT until FROM vanish_marks WHERE pubkey = $1', [
      Buffer.from(author.pubkey, 'hex'),
    ]);
    expect(rows).toHaveLength(1);
  });
});

describe('a subscription', () => {
  it('gets each event of both instances once, whenever it was opened (I10)', async () => {
    const author = newAuthor();
    const filter = { authors: [author.pubkey], kinds: [1] };
    const readers = await Promise.all(nodes.map(({ url }) => RawClient.connect(url)));
    const sent: string[] = [];
    for (let round = 0; round < 12; round += 1) {
      const [one, other] = await Promise.all(
        [0, 1].map((by) => publish(author, { content: `${round} ${by}` }, by)),
      );
      sent.push(one!.id, other!.id);
      for (const reader of readers) reader.send(['REQ', `${round}`, filter]);
    }
    const got = (reader: RawClient, round: number) =>
      reader.frames.flatMap(([verb, sub, event]) =>
        verb === 'EVENT' && sub === `${round}` ? [(event as { id: string }).id] : [],
      );
    const last = await publish(author, { content: 'last' });
    for (const reader of readers)
      for (let round = 0; round < 12; round += 1) {
        await eventually('the last event', () => got(reader, round).includes(last.id) || undefined);
        expect(got(reader, round).sort()).toEqual([...sent, last.id].sort());
      }
    for (const reader of readers) await reader.close();
  });

  it('with a cursor gets what it missed and each deletion, and continues', async () => {
    const author = newAuthor();
    const filter = { authors: [author.pubkey] };
    const [first, second] = [await publish(author), await publish(author, { content: 'second' })];
    const passed = async () => nodes[0].node.fanout.passed;
    const isLogged = (id: string) =>
      eventually('the log has it', async () => {
        const { rowCount } = await nodes[0].database.pool.query(
          'SELECT 1 FROM events_outbox WHERE event_id = $1',
          [Buffer.from(id, 'hex')],
        );
        const { rows } = await nodes[0].database.pool.query('SELECT last_seq FROM lane_state');
        return (rowCount === 1 && (await passed()) >= rows[0]!.last_seq) || undefined;
      });
    await isLogged(second.id);
    const follower = new Follower([filter]);
    await follower.connect(nodes[0].url);
    expect([...follower.held.keys()].sort()).toEqual([first.id, second.id].sort());
    await follower.leave();
    const third = await publish(author, { content: 'third' }, 1);
    const request = await publish(author, { kind: 5, tags: [['e', first.id]] });
    await isLogged(request.id);
    await follower.connect(nodes[1].url);
    expect([...follower.held.keys()].sort()).toEqual([second.id, third.id, request.id].sort());
    await follower.leave();
  });
});

describe('consumers', () => {
  const held = async () => {
    const { rows } = await nodes[0].database.pool.query<{ id: string }>(
      `SELECT id FROM ledger l JOIN consumer_offsets o ON o.generation = l.generation
       WHERE o.consumer = 'ledger' ORDER BY id`,
    );
    return rows.map(({ id }) => id).filter((id) => !unannounced.has(id));
  };
  const generation = async () =>
    (
      await nodes[0].database.pool.query<{ generation: number }>(
        `SELECT generation FROM consumer_offsets WHERE consumer = 'ledger'`,
      )
    ).rows[0]!.generation;

  it('follow the log with the events of the store, and rebuild the same state (I8, I9)', async () => {
    const author = newAuthor();
    const [kept, gone] = [await publish(author), await publish(author, { content: 'gone' })];
    await publish(author, { kind: 5, tags: [['e', gone.id]] }, 1);
    const all = async () => {
      const served = await nodes[0].node.store.newest(1, { createdAt: Number.MAX_SAFE_INTEGER, id: '' });
      return served.events.flatMap(({ id }) => (unannounced.has(id) ? [] : [id])).sort();
    };
    await eventually('the ledger has followed', async () => {
      const [now, view] = [await held(), await all()];
      return (now.length === view.length && now.every((id, at) => id === view[at])) || undefined;
    });
    expect(await held()).toContain(kept.id);
    expect(await held()).not.toContain(gone.id);
    const before = await generation();
    await askRebuild(nodes[0].database.pool, 'ledger', 'test', Date.now());
    await eventually('the ledger is rebuilt', async () => (await generation()) > before || undefined);
    expect(await held()).toEqual(await all());
  });
});

describe('a search', () => {
  it('finds what is served, ahead of its index too, and never what was deleted', async () => {
    const node = await startTestNode({ store: 'dynamodb', jobs: [], consumers: [], upkeepMs: 200 });
    const own = await startTestNode({ on: node.test, store: 'dynamodb', jobs: [] });
    const client = await RawClient.connect(own.url);
    const author = newAuthor();
    const send = async (content: string, draft: Draft = {}) => {
      const event = sign(author, { content, ...draft });
      expect(await client.publish(event)).toEqual([true, '']);
      return event.id;
    };
    const found = async (filter: object) => (await client.query(filter)).events.map(({ id }) => id).sort();
    const [boat, other] = [await send('a red boat'), await send('a green boat', { kind: 30_023 })];
    const isFound = (filter: object, ids: string[]) =>
      eventually('the search finds them', async () => {
        const now = await found(filter);
        return JSON.stringify(now) === JSON.stringify([...ids].sort()) || undefined;
      });
    await isFound({ search: 'boat' }, [boat, other]);
    await isFound({ search: 'boat', authors: [author.pubkey], kinds: [1] }, [boat]);
    await send('', { kind: 5, tags: [['e', boat]] });
    expect(await found({ search: 'boat' })).toEqual([other]);
    await client.close();
    await own.close();
    await node.close();
  });
});
