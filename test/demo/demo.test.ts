/** `minato demo`, as an operator runs it: without a node, beside one, twice, and after an interruption. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { makeKeys } from '../../src/demo/keys.js';
import type { NostrEvent } from '../../src/events/rules/event.js';
import { type Database, openDatabase } from '../../src/postgres/database.js';
import { type Ended, eventually, runCli, startCli } from '../support/cli.js';
import { createApi } from '../support/clients/api.js';
import { RawClient } from '../support/clients/client.js';
import { newAuthor, sign } from '../support/events.js';
import { startTestNode, type TestNode } from '../support/node.js';
import { createTestDatabase, type TestDatabase } from '../support/servers/database.js';

const boss = newAuthor();
const SMALL = ['--members', '16', '--weeks', '2', '--events', '260'];
/** Several runs of the program, or a new PostgreSQL and the start of a node, on a busy machine. */
const LONG_MS = 300_000;
let test: TestDatabase;
let database: Database;
let node: TestNode | undefined;

beforeAll(async () => {
  test = await createTestDatabase();
  database = openDatabase(test.connection);
});
afterAll(async () => {
  await node?.close();
  await database.close();
  await test.drop();
});

const env = () => ({ DATABASE_URL: test.url, MINATO_PORT: '0', MINATO_DATA_DIR: test.folder });
const demo = (...args: string[]): Promise<Ended> => runCli(['demo', ...args], env());

interface Result {
  readonly community: string;
  readonly changed: number;
  readonly made: Readonly<Record<string, number>>;
  readonly people: readonly { readonly part: string; readonly pubkey: string }[];
}
async function filled(...args: string[]): Promise<Result> {
  const { code, stdout, stderr } = await demo(...args, '--json');
  expect({ code, stderr: stderr.replaceAll(/^\d+ %, .* …\n/gm, '') }).toEqual({ code: 0, stderr: '' });
  return JSON.parse(stdout) as Result;
}

/** How many rows of each sort a community has. */
async function shapeOf(slug: string): Promise<Record<string, unknown>> {
  const { rows } = await database.pool.query<{ of: string; state: string; rows: number }>(
    `WITH c AS (SELECT id FROM communities WHERE slug = $1)
     SELECT 'events' AS of, kind || ' ' || coalesce(hidden::text, 'served') AS state, count(*)::int AS rows
       FROM events, c WHERE community = c.id GROUP BY 2
     UNION ALL SELECT 'members', status, count(*) FROM members, c WHERE community = c.id GROUP BY 2
     UNION ALL SELECT 'requests', status, count(*) FROM topic_subscription_requests, c
       WHERE community = c.id GROUP BY 2
     UNION ALL SELECT 'cases', status, count(*) FROM moderation_cases, c WHERE community = c.id GROUP BY 2
     UNION ALL SELECT 'actions', action, count(*) FROM moderation_actions, c WHERE community = c.id GROUP BY 2
     UNION ALL SELECT 'reports', reason, count(*) FROM reports, c WHERE community = c.id GROUP BY 2
     UNION ALL SELECT 'consents', type, count(*) FROM consents, c WHERE community = c.id GROUP BY 2
     UNION ALL SELECT 'usage', metric, sum(used) FROM usage_counters, c WHERE community = c.id GROUP BY 2
     UNION ALL SELECT 'invites', (used_at IS NULL)::text, count(*) FROM invites, c
       WHERE community = c.id GROUP BY 2
     UNION ALL SELECT 'erasures', cause || ' ' || stage, count(*) FROM erasures, c
       WHERE community = c.id GROUP BY 2
     UNION ALL SELECT 'audit', action, count(*) FROM audit_log, c WHERE community = c.id GROUP BY 2
     ORDER BY 1, 2`,
    [slug],
  );
  return Object.fromEntries(rows.map(({ of, state, rows: number }) => [`${of}: ${state}`, Number(number)]));
}

it('without a node it fills the empty default community, and a second run changes nothing', async () => {
  const first = await filled(...SMALL);
  expect(first.made).toMatchObject({ events: 260, topics: 8, reports: 8, erasures: 2, rules: 2, appeals: 1 });
  const shape = await shapeOf('default');
  const second = await filled();
  expect({ ...second, people: [] }).toMatchObject({ community: 'default', changed: 0, made: {} });
  expect(second.people).toEqual(first.people);
  expect(await shapeOf('default')).toEqual(shape);
  const said = await demo();
  expect(said.stdout).toMatch(/^The demo is in "default" already; nothing was changed\.\n/);
});

it('the same seed with other sizes is refused with a sentence', async () => {
  const { code, stderr } = await demo('--members', '20');
  expect({ code, stderr }).toEqual({
    code: 1,
    stderr:
      'minato: the demo of this seed is here with 16 members, 2 weeks and 260 events; ' +
      'leave these options out, or choose another community or seed\n',
  });
  const few = await demo('-c', 'few', '--members', '100', '--events', '150');
  expect(few.stderr).toBe('minato: 100 members need --events 400 or more\n');
  const { rows } = await database.pool.query('SELECT slug FROM communities');
  expect(rows).toEqual([{ slug: 'default' }]);
});

it('a node then has everything that the demo claims, by its API and its relay', async () => {
  node = await startTestNode({ on: test, env: { MINATO_ADMIN_PUBKEYS: boss.pubkey } });
  const { ask } = createApi(node.http);
  const items = async <T = Record<string, unknown>>(path: string): Promise<T[]> => {
    const { status, body } = await ask<{ items: T[] }>('GET', `/v1${path}`, { as: boss });
    expect({ path, status }).toEqual({ path, status: 200 });
    return body.items;
  };
  const statuses = async (path: string) =>
    new Set((await items<{ status: string }>(path)).map(({ status }) => status));
  expect(await items('/topics?limit=100')).toHaveLength(9);
  expect(await items('/admin/members?limit=100')).toHaveLength(14);
  for (const status of ['pending', 'active', 'rejected', 'cancelled'])
    expect(
      (await items(`/admin/topic-subscription-requests?status=${status}`)).length,
      status,
    ).toBeGreaterThan(0);
  expect(await items('/admin/invites?limit=100')).toHaveLength(5);
  expect((await items<{ plan_id: string }>('/admin/plans')).map((one) => one.plan_id)).toContain('supporter');
  expect((await items('/admin/usage')).length).toBeGreaterThan(3);
  expect((await items('/admin/consents?limit=100')).length).toBeGreaterThan(20);
  expect(await statuses('/admin/members?limit=100')).toEqual(new Set(['active', 'disabled']));
  // The two reports by events become cases as soon as the consumer of the node has read them.
  await eventually('the reports by events are in a case', async () =>
    (await items<{ reports: number }>('/admin/moderation/cases?reason=spam&status=open')).some(
      ({ reports }) => reports === 2,
    )
      ? true
      : undefined,
  );
  const found = await items<{ status: string; appeal: string | null }>('/admin/moderation/cases?limit=100');
  expect(new Set(found.map(({ status }) => status))).toEqual(
    new Set(['open', 'held', 'resolved', 'dismissed']),
  );
  expect(found.filter(({ appeal }) => appeal !== null)).toHaveLength(1);
  expect((await items('/admin/reports?limit=100')).length).toBe(10);
  const erasures = await items<{ erasure_id: string; cause: string; stage: string }>('/admin/erasures');
  const ends = erasures.map(({ cause, stage }) => `${cause} ${stage}`).sort();
  expect(ends).toEqual(['member completed', 'member grace', 'vanish completed']);
  for (const { erasure_id, stage } of erasures) {
    const { status } = await ask('GET', `/v1/admin/erasures/${erasure_id}/certificate`, { as: boss });
    expect(status).toBe(stage === 'completed' ? 200 : 409);
  }

  const client = await RawClient.connect(node.url);
  client.send(['REQ', 'all', { kinds: [0, 1, 3, 5, 6, 7, 62, 1985, 30_023], limit: 1_000 }]);
  await client.waitFor(([type]) => type === 'EOSE');
  const events = client.frames.flatMap(([type, , event]) => (type === 'EVENT' ? [event as NostrEvent] : []));
  const ofKind = (kind: number) => events.filter((event) => event.kind === kind);
  expect(ofKind(0)).toHaveLength(14);
  expect(ofKind(3)).toHaveLength(14);
  expect(ofKind(30_023)).toHaveLength(5);
  expect(ofKind(62)).toEqual([]);
  for (const kind of [5, 6, 7]) expect(ofKind(kind).length, String(kind)).toBeGreaterThan(0);
  expect(ofKind(1).filter(({ tags }) => tags.some(([name]) => name === 'expiration')).length).toBe(5);
  expect(ofKind(1).some(({ content }) => content.startsWith('The prize draw of the festival'))).toBe(true);
  expect(ofKind(1).some(({ content }) => /chosen for our prize draw|Gold watches/.test(content))).toBe(false);
  client.ws.close();
});

it('without the mark of a whole run, no step that was done before is done again', async () => {
  const [host] = makeKeys('minato', 1);
  const { rows } = await database.pool.query<{ payload: string }>(
    `SELECT payload FROM events WHERE community = 1 AND kind = 30078 AND hidden IS NULL`,
  );
  const mark = JSON.parse(rows[0]!.payload) as NostrEvent;
  const content = JSON.stringify({ ...JSON.parse(mark.content), done: false });
  const { kind, created_at } = mark;
  const tags = mark.tags.map((tag) => [...tag]);
  const client = await RawClient.connect(node!.url);
  client.send(['EVENT', sign(host!, { kind, created_at: created_at + 1, tags, content })]);
  expect(await client.waitFor(([type]) => type === 'OK')).toMatchObject({ 2: true });
  client.ws.close();
  const before = await shapeOf('default');
  const again = await filled();
  expect(again).toMatchObject({ changed: 0, made: {} });
  expect(await shapeOf('default')).toEqual(before);
});

it(
  'a community with people of its own is refused; a new one is made beside a running node',
  async () => {
    const client = await RawClient.connect(`${node!.url}/c/harbour`).catch(() => undefined);
    expect(client).toBeUndefined();
    await filled('-c', 'harbour', ...SMALL, '--seed', 'another');
    await eventually('the node knows it', () => node!.node.communities.find(undefined, 'harbour'));
    const reader = await RawClient.connect(`${node!.url}/c/harbour`);
    reader.send(['REQ', 'x', { kinds: [0], limit: 100 }]);
    await reader.waitFor(([type]) => type === 'EOSE');
    expect(reader.frames.filter(([type]) => type === 'EVENT')).toHaveLength(14);
    reader.ws.close();
    const { code, stderr } = await demo('-c', 'harbour', ...SMALL, '--seed', 'third');
    expect(code).toBe(1);
    expect(stderr).toMatch(/^minato: the community "harbour" has members or events of others; .* --force\n$/);
    const forced = await filled('-c', 'harbour', ...SMALL, '--seed', 'third', '--force');
    expect(forced.made.events).toBe(260);
  },
  LONG_MS,
);

it(
  'an interrupted run is continued by the same command, with the same result',
  async () => {
    const story = [...SMALL, '--until', '2026-01-31T12:00:00Z'];
    await filled('-c', 'whole', ...story);
    const running = startCli(['demo', '-c', 'broken', ...story], env());
    await eventually('some events are stored', async () => {
      const { rowCount } = await database.pool.query(
        `SELECT 1 FROM events e JOIN communities c ON c.id = e.community WHERE c.slug = 'broken' LIMIT 50`,
      );
      return rowCount === 50 ? true : undefined;
    });
    running.child.kill('SIGINT');
    const { code, stderr } = await running.ended;
    expect(code).toBe(130);
    expect(stderr).toContain('Interrupted. Run the same command again to continue.\n');
    // Without the sizes and the end: the mark in the community knows them.
    const rest = await filled('-c', 'broken');
    expect(rest.changed).toBeGreaterThan(0);
    expect(await shapeOf('broken')).toEqual(await shapeOf('whole'));
    expect((await filled('-c', 'broken')).changed).toBe(0);
  },
  LONG_MS,
);

it(
  '--serve fills a node of its own and runs it, and never uses the database of another',
  async () => {
    const folder = await mkdtemp(join(tmpdir(), 'minato-demo-'));
    const before = await shapeOf('default');
    const args = ['demo', '--serve', folder, ...SMALL];
    const running = startCli(args, { DATABASE_URL: test.url, MINATO_LOG_LEVEL: 'info' });
    try {
      let output = '';
      running.child.stdout!.on('data', (part: Buffer) => {
        output += String(part);
      });
      const address = await eventually(
        'it is ready',
        () => /"address":"(ws:[^"]+)"/.exec(output)?.[1],
        LONG_MS,
      );
      expect(output).toContain(`"database":"embedded PostgreSQL in ${folder}"`);
      expect(output).toContain(`Connect any Nostr client to ${address}\n`);
      const client = await RawClient.connect(address);
      client.send(['REQ', 'x', { kinds: [1], limit: 10 }]);
      await client.waitFor(([type]) => type === 'EOSE');
      expect(client.frames.filter(([type]) => type === 'EVENT')).toHaveLength(10);
      client.ws.close();
    } finally {
      running.child.kill('SIGTERM');
      await running.ended;
      await rm(folder, { recursive: true });
    }
    expect(await shapeOf('default')).toEqual(before);
  },
  LONG_MS,
);
