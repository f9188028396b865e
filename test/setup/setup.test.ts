/** The first set-up of a node that has no operator, over real HTTP and with the real program. */
import { npubEncode } from 'nostr-tools/nip19';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { addCommunity, writeSetting } from '../../src/communities/communities.sql.js';
import { addOperator, removeOperator } from '../../src/members/operators.sql.js';
import { openSetup } from '../../src/setup/setup.sql.js';
import { eventually, startCli } from '../support/cli.js';
import { type Api, createApi } from '../support/clients/api.js';
import { newAuthor } from '../support/events.js';
import { startTestNode, type TestNode } from '../support/node.js';
import { createTestDatabase } from '../support/servers/database.js';

const SETUP = '/v1/setup';
const NOBODY = { fixed: [] };

async function closeAfter<T>(relay: TestNode, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } finally {
    await relay.close();
  }
}

describe('a node without an operator', () => {
  let relay: TestNode;
  let second: TestNode;
  let api: Api;
  let other: Api;
  let home: number;
  let code: string;
  const operator = newAuthor();

  beforeAll(async () => {
    relay = await startTestNode();
    second = await startTestNode({ on: relay.test });
    [api, other] = [createApi(relay.http), createApi(second.http)];
    await addCommunity(relay.database.pool, 'art', undefined, Date.now());
    await relay.node.communities.refresh();
    home = relay.node.communities.find(undefined, undefined)!.id;
    const earlier = (await openSetup(relay.database.pool, NOBODY))!;
    code = (await openSetup(relay.database.pool, NOBODY))!;
    expect(code).not.toBe(earlier);
    await api.refused(404, 'NOT_FOUND', 'GET', SETUP, withCode(earlier));
  });
  afterAll(async () => {
    await second.close();
    await relay.close();
  });

  const withCode = (given: string, body?: unknown) => ({
    headers: { 'x-setup-code': given },
    ...(body === undefined ? {} : { body }),
  });
  const whole = {
    operator: npubEncode(operator.pubkey),
    name: 'Our harbour',
    picture: 'https://harbour.example/icon.png',
    topic_mode: 'required',
    topics: ['Ships', 'Tea'],
    terms: { title: 'Terms', content: 'Be kind.' },
  };
  /** Everything that a set-up writes. */
  const written = async () => {
    const { rows } = await relay.database.pool.query<Record<string, number>>(
      `SELECT (SELECT count(*)::int FROM operators) AS operators,
         (SELECT count(*)::int FROM community_settings WHERE key LIKE 'relay.%') AS settings,
         (SELECT count(*)::int FROM node_subscriptions WHERE name IN ('Ships', 'Tea')) AS topics,
         (SELECT count(*)::int FROM policy_versions) AS policies,
         (SELECT count(*)::int FROM audit_log) AS audited`,
    );
    return rows[0]!;
  };
  const NOTHING = { operators: 0, settings: 0, topics: 0, policies: 0, audited: 0 };

  it('answers 404 without the right code, whatever is sent, and in another community', async () => {
    for (const at of [api, other]) {
      for (const given of [undefined, '', 'x', code.slice(1), 'x'.repeat(1_000)]) {
        const asking = given === undefined ? {} : withCode(given);
        await at.refused(404, 'NOT_FOUND', 'GET', SETUP, asking);
        for (const body of [whole, {}, { operator: 1 }])
          await at.refused(404, 'NOT_FOUND', 'POST', SETUP, { ...asking, body });
      }
      await at.refused(404, 'NOT_FOUND', 'GET', `/c/art${SETUP}`, withCode(code));
      await at.refused(404, 'NOT_FOUND', 'POST', `/c/art${SETUP}`, withCode(code, whole));
      // The code is not read from the URL, which logs keep.
      expect((await at.ask('GET', `${SETUP}?code=${code}`)).status).not.toBe(200);
    }
    expect(await written()).toEqual(NOTHING);
  });

  it('stores the code as a hash only', async () => {
    const { rows } = await relay.database.pool.query('SELECT n::text AS row FROM node_state n');
    expect(JSON.stringify(rows)).not.toContain(code);
  });

  it('shows its values with the code, on every instance', async () => {
    for (const at of [api, other])
      expect(await at.ask('GET', SETUP, withCode(code))).toMatchObject({
        status: 200,
        body: { name: 'Minato', picture: '', topic_mode: 'open' },
      });
  });

  it('refuses wrong values, names all of them, and writes nothing', async () => {
    const wrong = {
      operator: 'npub1wrong',
      name: 'x'.repeat(201),
      topics: ['Ships', '   '],
      terms: { title: '', content: '', locale: '!' },
    };
    const { body } = await api.refused(400, 'INVALID_REQUEST', 'POST', SETUP, withCode(code, wrong));
    const paths = (body.details.problems as { path: string }[]).map(({ path }) => path);
    expect(paths).toEqual([
      'body/operator',
      'body (relay.name)',
      'body/topics/1',
      'body/terms/locale',
      'body/terms',
    ]);
    for (const bad of [{}, { ...whole, topic_mode: 'x' }, { ...whole, more: 1 }])
      await api.refused(400, 'INVALID_REQUEST', 'POST', SETUP, withCode(code, bad));
    expect(await written()).toEqual(NOTHING);
  });

  it('writes all or nothing', async () => {
    const { pool } = relay.database;
    await writeSetting(pool, home, 'topic.enabledMax', 1, Date.now());
    await relay.node.communities.refresh();
    await api.refused(429, 'TOPIC_LIMIT_REACHED', 'POST', SETUP, withCode(code, whole));
    expect(await written()).toEqual(NOTHING);
    await writeSetting(pool, home, 'topic.enabledMax', 100, Date.now());
    await relay.node.communities.refresh();
    await second.node.communities.refresh();
  });

  it('is set up once, by one of two who try at the same moment, and then never again', async () => {
    const answers = await Promise.all(
      [api, other].map((at) => at.ask<Record<string, unknown>>('POST', SETUP, withCode(code, whole))),
    );
    expect(answers.map(({ status }) => status).sort()).toEqual([201, 404]);
    expect(answers.find(({ status }) => status === 201)!.body).toEqual({
      operator: operator.pubkey,
      name: 'Our harbour',
      picture: 'https://harbour.example/icon.png',
      topic_mode: 'required',
      topics: [expect.stringMatching(/^kukuri:/), expect.stringMatching(/^kukuri:/)],
    });
    expect(await written()).toMatchObject({ operators: 1, settings: 2, topics: 2, policies: 1 });
    expect((await other.ask('GET', '/v1/admin/audit-log', { as: operator })).status).toBe(200);
    const terms = await other.ask<{ items: object[] }>('GET', '/v1/admin/policies', { as: operator });
    expect(terms.body.items).toMatchObject([{ type: 'terms', version: '1', status: 'current' }]);
    const directory = await api.ask<{ items: { name: string }[] }>('GET', '/v1/topics');
    expect(directory.body.items.map(({ name }) => name)).toEqual(expect.arrayContaining(['Ships', 'Tea']));
    const isDead = async () => {
      for (const at of [api, other]) {
        await at.refused(404, 'NOT_FOUND', 'GET', SETUP, withCode(code));
        await at.refused(404, 'NOT_FOUND', 'POST', SETUP, withCode(code, whole));
      }
      expect(await openSetup(relay.database.pool, NOBODY)).toBeUndefined();
    };
    await isDead();
    // Also when nobody is an operator any more.
    const { pool } = relay.database;
    await removeOperator(pool, { community: home, pubkey: operator.pubkey }, NOBODY, Date.now());
    await isDead();
  });
});

it('an operator who is added otherwise ends the set-up', async () => {
  const relay = await startTestNode();
  await closeAfter(relay, async () => {
    const api = createApi(relay.http);
    const { pool } = relay.database;
    const headers = { 'x-setup-code': (await openSetup(pool, NOBODY))! };
    expect((await api.ask('GET', SETUP, { headers })).status).toBe(200);
    const community = relay.node.communities.find(undefined, undefined)!.id;
    const pubkey = newAuthor().pubkey;
    // A moderator is no operator.
    await addOperator(pool, { community, pubkey, role: 'moderator' }, NOBODY, Date.now());
    expect((await api.ask('GET', SETUP, { headers })).status).toBe(200);
    await addOperator(pool, { community, pubkey, role: 'operator' }, NOBODY, Date.now());
    const body = { operator: newAuthor().pubkey };
    await api.refused(404, 'NOT_FOUND', 'GET', SETUP, { headers });
    await api.refused(404, 'NOT_FOUND', 'POST', SETUP, { headers, body });
    expect(await openSetup(pool, NOBODY)).toBeUndefined();
  });
});

it('a node with MINATO_ADMIN_PUBKEYS is never set up, also not later without them', async () => {
  const relay = await startTestNode({ env: { MINATO_ADMIN_PUBKEYS: newAuthor().pubkey } });
  await closeAfter(relay, async () => {
    const { pool } = relay.database;
    const code = (await openSetup(pool, NOBODY))!;
    await createApi(relay.http).refused(404, 'NOT_FOUND', 'GET', SETUP, {
      headers: { 'x-setup-code': code },
    });
    expect(await openSetup(pool, { fixed: ['x'] })).toBeUndefined();
    expect(await openSetup(pool, NOBODY)).toBeUndefined();
  });
});

it('minato serve prints the link while there is no operator', async () => {
  const test = await createTestDatabase();
  const env = {
    DATABASE_URL: test.url,
    MINATO_PORT: '0',
    MINATO_TOPIC_MODE: 'open',
    MINATO_LOG_LEVEL: 'info',
  };
  const serve = async (more: Record<string, string> = {}) => {
    const node = startCli(['serve'], { ...env, ...more });
    let text = '';
    node.child.stdout!.on('data', (chunk: Buffer) => {
      text += chunk.toString();
    });
    const logged = () => text;
    await eventually('it is ready', () => (logged().includes('"ready"') ? true : undefined), 60_000);
    return { node, logged };
  };
  const first = await serve();
  const link = /"setup":"(http:\/\/127\.0\.0\.1:\d+)\/admin\/setup#setup=([\w-]{43})"/;
  const [, base, code] = link.exec(first.logged())!;
  const { pubkey } = newAuthor();
  const done = await fetch(base + SETUP, {
    method: 'POST',
    headers: { 'x-setup-code': code!, 'content-type': 'application/json' },
    body: JSON.stringify({ operator: pubkey }),
  });
  expect(done.status).toBe(201);
  first.node.child.kill('SIGTERM');
  await first.node.ended;
  const again = await serve();
  again.node.child.kill('SIGTERM');
  await again.node.ended;
  expect(again.logged()).not.toContain('setup');
  await test.drop();
});
