/**
 * `minato events copy`: the events of a running node move from PostgreSQL to DynamoDB. A copy that is killed
 * continues; what changes meanwhile is brought over at the switch; the view, what is refused and what can be
 * restored are the same afterwards; nothing is announced twice.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { NostrEvent } from '../../src/events/rules/event.js';
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
let view: string[];
const [alice, bob, carol] = [newAuthor(), newAuthor(), newAuthor()];

beforeAll(async () => {
  test = await createTestDatabase(READY);
  const { url } = await sharedDynamodb();
  proxy = await DynamodbProxy.start(url);
  node = await startTestNode({ on: test, jobs: [], consumers: [] });
  client = await RawClient.connect(node.url);
  env = {
    ...CREDENTIALS,
    DATABASE_URL: test.url,
    MINATO_DATA_DIR: test.folder,
    DYNAMODB_ENDPOINT: proxy.place().endpoint,
    MINATO_DYNAMODB_PREFIX: `${test.connection.database}_`,
  };
});
afterAll(async () => {
  await client?.close();
  await node?.close();
  await proxy?.stop();
  await test?.drop();
});

const publish = async (author: ReturnType<typeof newAuthor>, draft: Draft = {}) => {
  const event = sign(author, draft);
  expect(await client.publish(event)).toEqual([true, '']);
  return event;
};
const remove = (events: readonly NostrEvent[]) =>
  node.node.store.hide({
    hidden: 'removed',
    purge: false,
    which: { by: 'ids', refs: events.map(({ id }) => ({ community: 1, id })) },
  });
const served = async () => {
  const { events } = await client.query({ limit: 500 });
  return events.map(({ id }) => id);
};
const lastSeq = async () =>
  (await node.database.pool.query<{ last_seq: number }>('SELECT last_seq FROM lane_state')).rows[0]!.last_seq;
const there = () => ({ ...env, MINATO_EVENT_STORE: 'dynamodb' });
const total = async () =>
  (
    await node.database.pool.query<{ events: number }>(
      'SELECT events FROM community_totals WHERE community = 1',
    )
  ).rows[0]!.events;

describe('a copy', () => {
  let note: NostrEvent;
  let later: NostrEvent;
  let removed: NostrEvent;
  let old: NostrEvent;
  let refused: NostrEvent;
  let vanished: NostrEvent;
  let events: number;

  it('is killed, resumed, and finished while the node serves', async () => {
    for (let at = 0; at < 230; at += 1) await publish(alice, { content: `${at}`, tags: [['t', 'sea']] });
    note = await publish(bob);
    later = await publish(bob, { content: 'later' });
    old = await publish(bob, { kind: 0, created_at: nowSeconds() - 9, content: 'old' });
    await publish(bob, { kind: 0, content: 'new' });
    refused = sign(bob, { content: 'deleted before it arrives' });
    await publish(bob, {
      kind: 5,
      tags: [
        ['e', refused.id],
        ['e', note.id],
      ],
    });
    removed = await publish(bob, { content: 'removed' });
    await remove([removed]);
    vanished = await publish(carol, { created_at: nowSeconds() - 5 });
    await publish(carol, { kind: 62, tags: [['relay', 'ALL_RELAYS']] });

    // The second page of events waits until the process is killed.
    const killed = startCli(['events', 'copy', '--to', 'dynamodb'], env);
    let pages = 0;
    proxy.interfere = ({ operation, body }) => {
      const isEvents = Object.keys(body.RequestItems ?? {}).some((name) => name.endsWith('_Events'));
      if (operation !== 'BatchGetItem' || !isEvents) return undefined;
      pages += 1;
      // 200 rows of a page are two requests.
      return pages <= 2 ? undefined : { before: () => new Promise(() => undefined) };
    };
    await eventually('it is in the second page', () => (pages > 2 ? true : undefined));
    killed.child.kill('SIGKILL');
    await killed.ended;
    proxy.interfere = () => undefined;

    const { code, stdout, stderr } = await runCli(['events', 'copy', '--to', 'dynamodb'], env);
    expect(code, stderr).toBe(0);
    expect(stderr).toContain('Resuming');
    expect(stdout).toContain('Next: stop all instances of the node');
  });

  it('is not switched while a node runs', async () => {
    await eventually('its sessions are older', async () => {
      const { rows } = await node.database.pool.query<{ old: boolean }>(
        `SELECT bool_or(backend_start < now() - interval '5 seconds') AS old FROM pg_stat_activity
         WHERE datname = current_database()`,
      );
      return rows[0]!.old || undefined;
    });
    const { code, stderr } = await runCli(['events', 'copy', '--to', 'dynamodb', '--switch'], env);
    expect(code).toBe(1);
    expect(stderr).toContain('stop all its instances first');
  });

  it('brings over at the switch what changed meanwhile, and compares both stores', async () => {
    await publish(bob, { kind: 5, tags: [['e', later.id]] });
    await publish(alice, { content: 'after the copy' });
    view = await served();
    events = await total();
    await client.close();
    await node.close();
    const { code, stdout, stderr } = await runCli(['events', 'copy', '--to', 'dynamodb', '--switch'], env);
    expect(code, `${stdout}${stderr}`).toBe(0);
    expect(stdout).toMatch(/^events +(\d+) in PostgreSQL +\1 in DynamoDB +0 differ$/m);
    expect(stdout).toMatch(/^hidden +(\d+) in PostgreSQL +\1 in DynamoDB +0 differ$/m);
    expect(stdout).toMatch(/^tombstones +3 in PostgreSQL +3 in DynamoDB +0 differ$/m);
    expect(stdout).toMatch(/^heads +1 in PostgreSQL +1 in DynamoDB +0 differ$/m);
    expect(stdout).toContain('Start it with MINATO_EVENT_STORE=dynamodb');
  });

  it('is the same node afterwards, and announces nothing again', async () => {
    await expect(startTestNode({ on: test, jobs: [], consumers: [] })).rejects.toThrow(
      'MINATO_EVENT_STORE is postgres, but the events of this node are in dynamodb',
    );
    node = await startTestNode({ on: test, store: 'dynamodb', jobs: [], consumers: [] });
    client = await RawClient.connect(node.url);
    expect(await served()).toEqual(view);
    for (const gone of [note, later, refused])
      expect(await client.publish(gone)).toEqual([false, 'blocked: deleted by its author']);
    expect(await client.publish(old)).toEqual([true, 'duplicate: already have this event']);
    expect((await client.publish(vanished))[0]).toBe(false);
    expect(await node.node.store.restore([{ community: 1, id: removed.id }])).toEqual(['stored']);
    const before = await lastSeq();
    const fresh = await publish(alice, { content: 'in DynamoDB' });
    await eventually('the log has the new event', async () => {
      const { rowCount } = await node.database.pool.query(
        `SELECT 1 FROM events_outbox WHERE event_id = $1 AND op = 'upsert'`,
        [Buffer.from(fresh.id, 'hex')],
      );
      return rowCount === 1 || undefined;
    });
    // The restored event and the new one; none of the copies.
    expect((await lastSeq()) - before).toBeLessThanOrEqual(2);
    await eventually('the totals have them', async () => ((await total()) === events + 2 ? true : undefined));
  });

  it('leaves a copy in PostgreSQL from which erasures delete as well', async () => {
    const left = async (author: typeof bob) => {
      const { rows } = await node.database.pool.query<{ count: number }>(
        'SELECT count(*)::int AS count FROM events WHERE pubkey = $1',
        [Buffer.from(author.pubkey, 'hex')],
      );
      return rows[0]!.count;
    };
    expect(await left(bob)).toBeGreaterThan(0);
    const { code, stdout, stderr } = await runCli(['erase', 'member', bob.pubkey, '--yes'], there());
    expect(code, `${stdout}${stderr}`).toBe(0);
    expect(await left(bob)).toBe(0);
    expect(await left(alice)).toBeGreaterThan(0);
  });

  it('leaves a copy in PostgreSQL that a command deletes', async () => {
    expect((await runCli(['events', 'drop', '--from', 'postgres'], there())).stderr).toContain('--yes');
    const { code, stderr } = await runCli(['events', 'drop', '--from', 'postgres', '--yes'], there());
    expect(code, stderr).toBe(0);
    const { rows } = await node.database.pool.query('SELECT 1 FROM events LIMIT 1');
    expect(rows).toEqual([]);
  });
});
