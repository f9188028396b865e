/**
 * `minato events copy --to postgres`: the events of a running node move from DynamoDB to PostgreSQL. A copy
 * that is killed continues; the view, what is refused and what can be restored are the same afterwards;
 * nothing is announced twice; and a copy there and back has the same hashes.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { hashOfItem } from '../../src/events/copy/items.js';
import { Dynamodb, keyText } from '../../src/events/dynamodb/client.js';
import { itemOf } from '../../src/events/dynamodb/items.js';
import { type NostrEvent, serializeEvent } from '../../src/events/rules/event.js';
import { Keep } from '../../src/events/rules/keep.js';
import { eventually, runCli, startCli } from '../support/cli.js';
import { RawClient } from '../support/clients/client.js';
import { type Draft, newAuthor, nowSeconds, sign } from '../support/events.js';
import { startTestNode, type TestNode } from '../support/node.js';
import { createTestDatabase, type TestDatabase } from '../support/servers/database.js';
import { CREDENTIALS, DynamodbProxy, sharedDynamodb } from '../support/servers/dynamodb.js';
import { READY } from '../support/servers/templates.js';

let test: TestDatabase;
let proxy: DynamodbProxy;
let node: TestNode;
let client: RawClient;
let env: Record<string, string>;
let isOpen = true;
const [alice, bob, carol] = [newAuthor(), newAuthor(), newAuthor()];

beforeAll(async () => {
  test = await createTestDatabase(READY);
  const { url } = await sharedDynamodb();
  proxy = await DynamodbProxy.start(url);
  const { endpoint } = proxy.place();
  node = await startTestNode({ on: test, store: 'dynamodb', endpoint, jobs: [], consumers: [] });
  client = await RawClient.connect(node.url);
  env = {
    ...CREDENTIALS,
    DATABASE_URL: test.url,
    MINATO_DATA_DIR: test.folder,
    MINATO_EVENT_STORE: 'dynamodb',
    DYNAMODB_ENDPOINT: endpoint,
    MINATO_DYNAMODB_PREFIX: `${test.connection.database}_`,
  };
});
afterAll(async () => {
  await client?.close();
  if (isOpen) await node?.close();
  await proxy?.stop();
  await test?.drop();
});

const close = async () => {
  isOpen = false;
  await client.close();
  await node.close();
};
const publish = async (author: ReturnType<typeof newAuthor>, draft: Draft = {}) => {
  const event = sign(author, draft);
  expect(await client.publish(event)).toEqual([true, '']);
  return event;
};
const refOf = ({ id }: NostrEvent) => ({ community: 1, id });
const remove = (events: readonly NostrEvent[]) =>
  node.node.store.hide({
    hidden: 'removed',
    purge: false,
    which: { by: 'ids', refs: events.map(refOf) },
  });
const answers = async () => {
  const filters = [
    { limit: 500 },
    { kinds: [0, 5] },
    { '#t': ['sea'], limit: 500 },
    { authors: [bob.pubkey] },
    { kinds: [30_023], '#d': ['x'] },
  ];
  const all: string[][] = [];
  for (const filter of filters) all.push((await client.query(filter)).events.map(({ id }) => id));
  return all;
};
const rowsOf = async <T extends object>(sql: string) => (await node.database.pool.query<T>(sql)).rows;
const totals = () => rowsOf<object>('SELECT * FROM community_totals');
const copy = (...options: string[]) => runCli(['events', 'copy', '--to', 'postgres', ...options], env);
/** The hashes of all items that a copy compares, by their keys. */
async function hashes(prefix: string): Promise<Map<string, string>> {
  const db = new Dynamodb({ ...proxy.place(), prefix });
  const found = new Map<string, string>();
  for (const table of ['events', 'state'] as const)
    for (const item of (await db.scan(table, undefined)).items)
      if (table === 'events' || /\/(head|tombstone|marks?)(\/|$)/.test(String(item.pk)))
        found.set(keyText(table, item), hashOfItem(item));
  await db.close();
  return found;
}

describe('a copy to PostgreSQL', () => {
  const gone: NostrEvent[] = [];
  let later: NostrEvent;
  let last: NostrEvent;
  let removed: NostrEvent;
  let restored: NostrEvent;
  let expired: NostrEvent;
  let vanished: NostrEvent;
  let old: NostrEvent;
  let view: string[][];
  let held: NostrEvent;

  it('is killed, resumed, and finished while the node serves', async () => {
    for (let at = 0; at < 240; at += 24)
      await Promise.all(
        Array.from({ length: 24 }, (_, next) =>
          publish(alice, { content: `${at + next}`, tags: [['t', 'sea']] }),
        ),
      );
    expired = await publish(bob, { tags: [['expiration', `${nowSeconds() + 2}`]] });
    later = await publish(bob, { content: 'later' });
    old = await publish(bob, { kind: 0, created_at: nowSeconds() - 9, content: 'old' });
    await publish(bob, { kind: 0, content: 'new' });
    gone.push(await publish(bob), sign(bob, { content: 'deleted before it arrives' }));
    const address = { kind: 30_023, tags: [['d', 'gone']], created_at: nowSeconds() - 5 };
    gone.push(await publish(bob, address));
    const deleted = gone.slice(0, 2).map(({ id }) => ['e', id]);
    await publish(bob, { kind: 5, tags: [...deleted, ['a', `30023:${bob.pubkey}:gone`]] });
    await publish(bob, { kind: 30_023, tags: [['d', 'x']], created_at: nowSeconds() - 3 });
    await publish(bob, { kind: 30_023, tags: [['d', 'x']], content: 'newer' });
    removed = await publish(bob, { content: 'removed' });
    restored = await publish(bob, { content: 'restored', tags: [['t', 'sea']] });
    await remove([removed, restored]);
    expect(await node.node.store.restore([refOf(restored)])).toEqual(['stored']);
    vanished = await publish(carol, { created_at: nowSeconds() - 5 });
    await publish(carol, { kind: 62, tags: [['relay', 'ALL_RELAYS']] });
    await eventually('it has expired', async () => {
      const which = { by: 'expiration', limit: 10 } as const;
      return (await node.node.store.hide({ hidden: 'expired', purge: true, which })) === 1 || undefined;
    });
    await eventually('the log has the deletion', async () => {
      const rows = await rowsOf(`SELECT 1 FROM events_outbox WHERE op = 'delete' AND reason = 'expiration'`);
      return rows.length === 1 || undefined;
    });
    // A rule has held it on arrival: it was never announced.
    held = sign(bob, { content: 'held' });
    const submission = { community: 1, event: held, payload: serializeEvent(held) };
    const from = { ingestedAt: Date.now(), keep: Keep.days30, bound: [] };
    const db = new Dynamodb(proxy.place(env.MINATO_DYNAMODB_PREFIX));
    await db.write([{ table: 'events', put: itemOf({ submission, ...from, hidden: 'removed' }) }]);
    await db.close();
    await node.database.pool.query(
      `INSERT INTO node_state (key, value) VALUES ('retention_cursor', '${Date.now()}')`,
    );
    // The log no longer has the first changes.
    await node.database.pool.query('UPDATE lane_state SET outbox_floor = 21');
    await node.database.pool.query('DELETE FROM events_outbox WHERE seq <= 20');

    // The second page of the log waits until the process is killed.
    let pages = 0;
    proxy.interfere = ({ operation, body }) => {
      const [keys] = Object.entries(body.RequestItems ?? {}).filter(([name]) => name.endsWith('_Events'));
      if (operation !== 'BatchGetItem' || keys === undefined) return undefined;
      if ((keys[1] as unknown as { Keys: object[] }).Keys.length < 10) return undefined;
      pages += 1;
      // 200 rows of a page are two requests.
      return pages <= 2 ? undefined : { before: () => new Promise(() => undefined) };
    };
    const killed = startCli(['events', 'copy', '--to', 'postgres'], env);
    await eventually('it is in the second page', () => (pages > 2 ? true : undefined));
    killed.child.kill('SIGKILL');
    await killed.ended;
    proxy.interfere = () => undefined;
    const { code, stdout, stderr } = await copy();
    expect(code, stderr).toBe(0);
    expect(stderr).toContain('Resuming');
    expect(stdout).toContain('Next: stop all instances of the node');
  });

  it('brings over at the switch what changed meanwhile, and compares both stores', async () => {
    // The node stops before it has read the last changes from the stream.
    proxy.interfere = ({ operation }) =>
      operation === 'GetRecords' ? { refuse: 'InternalServerError' } : undefined;
    gone.push(later);
    await publish(bob, { kind: 5, tags: [['e', later.id]] });
    last = await publish(alice, { content: 'after the copy' });
    view = await answers();
    await close();
    proxy.interfere = () => undefined;
    const { code, stdout, stderr } = await copy('--switch');
    expect(code, `${stdout}${stderr}`).toBe(0);
    for (const [section, number] of [
      ['events', '(\\d+)'],
      ['hidden', '(5)'],
      ['tombstones', '(4)'],
      ['heads', '(3)'],
      ['gone', '(1)'],
      ['marks', '(2)'],
    ])
      expect(stdout).toMatch(
        new RegExp(`^${section} +${number} in PostgreSQL +\\1 in DynamoDB +0 differ$`, 'm'),
      );
    expect(stdout).toContain('Start it with MINATO_EVENT_STORE=postgres');
  });

  it('is the same node afterwards, and announces nothing again', async () => {
    await expect(startTestNode({ on: test, store: 'dynamodb', jobs: [], consumers: [] })).rejects.toThrow(
      'MINATO_EVENT_STORE is dynamodb, but the events of this node are in postgres',
    );
    node = await startTestNode({ on: test, jobs: [], consumers: [] });
    isOpen = true;
    client = await RawClient.connect(node.url);
    expect(await answers()).toEqual(view);
    for (const event of gone)
      expect(await client.publish(event)).toEqual([false, 'blocked: deleted by its author']);
    for (const known of [old, restored])
      expect(await client.publish(known)).toEqual([true, 'duplicate: already have this event']);
    for (const refused of [expired, vanished, removed, held])
      expect((await client.publish(refused))[0], refused.content).toBe(false);
    const twice = await rowsOf<{ id: string }>(
      `SELECT encode(event_id, 'hex') AS id FROM events_outbox WHERE op = 'upsert'
       GROUP BY event_id HAVING count(*) > 1`,
    );
    expect(twice).toEqual([{ id: restored.id }]);
    const announced = await rowsOf<{ op: string; id: string }>(
      `SELECT op, encode(event_id, 'hex') AS id FROM events_outbox
       WHERE event_id IN ('\\x${last.id}', '\\x${later.id}') ORDER BY op, event_id = '\\x${last.id}'`,
    );
    expect(announced).toEqual([
      { op: 'delete', id: later.id },
      { op: 'upsert', id: later.id },
      { op: 'upsert', id: last.id },
    ]);
    const [{ last_seq: before }] = (await rowsOf<{ last_seq: number }>(
      'SELECT last_seq FROM lane_state',
    )) as [{ last_seq: number }];
    expect(await rowsOf(`SELECT value FROM node_state WHERE key = 'retention_cursor'`)).toEqual([
      { value: '0' },
    ]);
    const fresh = await publish(alice, { content: 'in PostgreSQL' });
    const next = await rowsOf<{ seq: number; id: string }>(
      `SELECT seq, encode(event_id, 'hex') AS id FROM events_outbox WHERE seq > ${before}`,
    );
    expect(next).toEqual([{ seq: before + 1, id: fresh.id }]);
    expect(await node.node.store.restore([refOf(removed)])).toEqual(['stored']);
    const [counted] = await rowsOf('SELECT count(*)::int AS events FROM events WHERE hidden IS NULL');
    expect((await totals())[0]).toMatchObject({ ...counted });
  });

  it('keeps offsets of the log, and the order in which events came in', async () => {
    const named = await rowsOf<{ count: number }>(
      `SELECT count(*)::int AS count FROM events e JOIN events_outbox o
         ON o.seq = e.seq AND o.event_id = e.id AND o.op = 'upsert' WHERE e.hidden IS NULL`,
    );
    const [all] = await rowsOf<{ count: number; distinct: number }>(
      `SELECT count(*)::int AS count, count(DISTINCT seq)::int AS distinct FROM events`,
    );
    const hidden = 4;
    expect(named).toEqual([{ count: all!.count - hidden - 20 }]);
    expect(all!.distinct).toBe(all!.count);
    const unordered = await rowsOf(
      `SELECT 1 FROM (SELECT ingested_at, lag(ingested_at) OVER (ORDER BY seq) AS before FROM events
         WHERE seq <= 20) e WHERE before > ingested_at`,
    );
    expect(unordered).toEqual([]);
  });

  it('has the same hashes after a copy there and back', async () => {
    await close();
    const again = {
      ...env,
      MINATO_EVENT_STORE: 'postgres',
      MINATO_DYNAMODB_PREFIX: `${env.MINATO_DYNAMODB_PREFIX}b_`,
    };
    const before = await hashes(env.MINATO_DYNAMODB_PREFIX!);
    // PostgreSQL has taken over the last look at a deleted address.
    const refused = await runCli(['events', 'copy', '--to', 'dynamodb', '--switch'], again);
    expect(refused.stderr).toContain('minato jobs run delete-history');
    expect((await runCli(['jobs', 'run', 'delete-history'], again)).code).toBe(0);
    const { code, stdout, stderr } = await runCli(['events', 'copy', '--to', 'dynamodb', '--switch'], again);
    expect(code, `${stdout}${stderr}`).toBe(0);
    const after = await hashes(again.MINATO_DYNAMODB_PREFIX);
    // Restored and posted since.
    const changed = [...after].filter(([key, hash]) => before.get(key) !== hash);
    expect(changed).toHaveLength(2);
    expect([...before.keys()].filter((key) => !after.has(key))).toEqual([]);
    const there = { ...again, MINATO_EVENT_STORE: 'dynamodb' };
    const back = await runCli(['events', 'copy', '--to', 'postgres', '--switch', '--quick'], there);
    expect(back.code, `${back.stdout}${back.stderr}`).toBe(0);
    expect(back.stdout).toMatch(/changed since: \S+ read, 0 written/);
  });

  it('leaves tables in DynamoDB that a command deletes', async () => {
    const used = await runCli(['events', 'drop', '--from', 'postgres', '--yes'], {
      ...env,
      MINATO_EVENT_STORE: 'postgres',
    });
    expect(used.stderr).toContain('the events of this node are in PostgreSQL');
    const { code, stderr } = await runCli(['events', 'drop', '--from', 'dynamodb', '--yes'], {
      ...env,
      MINATO_EVENT_STORE: 'postgres',
    });
    expect(code, stderr).toBe(0);
    await expect(hashes(env.MINATO_DYNAMODB_PREFIX!)).rejects.toThrow();
  });
});
