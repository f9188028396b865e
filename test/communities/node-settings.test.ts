/** Settings of the node limit those of its communities, and only operators of the node change them. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { addCommunity, writeSetting } from '../../src/communities/communities.sql.js';
import { nodeSettingKeys } from '../../src/communities/rules-node-settings.js';
import { eventually, runCli } from '../support/cli.js';
import { type Api, createApi } from '../support/clients/api.js';
import { RawClient } from '../support/clients/client.js';
import { type Author, newAuthor, sign } from '../support/events.js';
import { startTestNode, type TestNode } from '../support/node.js';

const NODE = '/v1/admin/node-settings';
const root = newAuthor();
/** Operator of the community `art`. */
const artist = newAuthor();
/** Operator of the default community, not of the node. */
const helper = newAuthor();

interface Setting {
  readonly key: string;
  readonly value: unknown;
  readonly version: number;
  readonly in_force?: unknown;
  readonly ceiling?: unknown;
}

let relay: TestNode;
let other: TestNode;
let api: Api;
let art: number;

const settingsIn = (node: TestNode, slug: string) => node.node.communities.find(undefined, slug)!.settings;

beforeAll(async () => {
  relay = await startTestNode({ env: { MINATO_ADMIN_PUBKEYS: root.pubkey } });
  other = await startTestNode({ env: { MINATO_ADMIN_PUBKEYS: root.pubkey }, on: relay.test });
  api = createApi(relay.http);
  art = await addCommunity(relay.database.pool, 'art', undefined, Date.now());
  await eventually('the community is there', () => relay.node.communities.get(art));
  await api.ask('PUT', `/c/art/v1/admin/operators/${artist.pubkey}`, { as: root });
  await api.ask('PUT', `/v1/admin/operators/${helper.pubkey}`, { as: root });
  await api.ask('PUT', '/c/art/v1/admin/settings/topic.mode', {
    as: root,
    body: { value: 'open', version: 0 },
  });
  await eventually('both are operators', () => {
    const { communities } = relay.node;
    const isKnown =
      communities.get(art)!.operators.has(artist.pubkey) &&
      communities.find(undefined, 'default')!.operators.has(helper.pubkey);
    return isKnown ? true : undefined;
  });
});
afterAll(async () => {
  await other.close();
  await relay.close();
});

async function setNode(key: string, value: unknown): Promise<Setting> {
  const { body: before } = await api.ask<Setting>('GET', `${NODE}/${key}`, { as: root });
  const answer = await api.ask<Setting>('PUT', `${NODE}/${key}`, {
    as: root,
    body: { value, version: before.version },
  });
  expect(answer.status).toBe(200);
  return answer.body;
}
const put = (key: string, value: unknown, as: Author = artist) =>
  api.ask<Setting>('PUT', `/c/art/v1/admin/settings/${key}`, { as, body: { value, version: 0 } });

describe('a ceiling of the node', () => {
  it('applies in every community and on every instance, whatever they set before', async () => {
    await writeSetting(relay.database.pool, art, 'limits.eventBytesMax', 1_048_576, Date.now());
    await writeSetting(relay.database.pool, art, 'rate.eventsPerSecond', 0, Date.now());
    for (const node of [relay, other]) {
      await eventually('the ceilings of the defaults hold', () => {
        const { 'limits.eventBytesMax': bytes, 'rate.eventsPerSecond': rate } = settingsIn(node, 'art');
        return bytes === 262_144 && rate === 500 ? true : undefined;
      });
    }
    await setNode('node.limits.eventBytesMax', 2_000);
    for (const node of [relay, other])
      for (const slug of ['art', 'default'])
        await eventually(`it holds in ${slug}`, () =>
          settingsIn(node, slug)['limits.eventBytesMax'] === 2_000 ? true : undefined,
        );
    const client = await RawClient.connect(`${relay.url}/c/art`);
    const [taken, why] = await client.publish(sign(newAuthor(), { content: 'x'.repeat(3_000) }));
    expect([taken, why]).toEqual([false, expect.stringContaining('2000')]);
    await client.close();

    const { body } = await api.ask<Setting>('GET', '/c/art/v1/admin/settings/limits.eventBytesMax', {
      as: artist,
    });
    expect(body).toMatchObject({ value: 1_048_576, in_force: 2_000, ceiling: 2_000 });
    await api.ask(
      'DELETE',
      `${NODE}/node.limits.eventBytesMax?version=${await versionOf('node.limits.eventBytesMax')}`,
      {
        as: root,
      },
    );
    await eventually('the default is back', () =>
      settingsIn(relay, 'default')['limits.eventBytesMax'] === 98_304 ? true : undefined,
    );
  });

  it('refuses a higher value of a community, and names the ceiling', async () => {
    for (const [key, value, ceiling] of [
      ['rate.queriesPerSecond', 501, 500],
      ['rate.queriesPerSecond', 0, 500],
      ['limits.connectionsPerAddressMax', 10_000, 1_000],
    ] as const) {
      const { body } = await api.refused(400, 'INVALID_REQUEST', 'PUT', `/c/art/v1/admin/settings/${key}`, {
        as: artist,
        body: { value, version: 0 },
      });
      expect(JSON.stringify(body.details)).toContain(`the ceiling of the node is ${ceiling} (node.${key})`);
    }
    expect(await put('rate.queriesPerSecond', 500)).toMatchObject({
      status: 200,
      body: { value: 500, in_force: 500, ceiling: 500 },
    });
    await setNode('node.rate.exemptLoopback', false);
    await api.refused(400, 'INVALID_REQUEST', 'PUT', '/c/art/v1/admin/settings/rate.exemptLoopback', {
      as: artist,
      body: { value: true, version: 0 },
    });
    await eventually('nobody is exempt', () =>
      settingsIn(relay, 'default')['rate.exemptLoopback'] ? undefined : true,
    );
    await setNode('node.rate.exemptLoopback', true);
  });

  it('of capacity applies the capacity steps in a community without its own limits', async () => {
    await setNode('node.capacity.maxBytes', 5_000);
    await eventually('it holds', () =>
      settingsIn(relay, 'art')['capacity.maxBytes'] === 5_000 ? true : undefined,
    );
    const client = await RawClient.connect(`${relay.url}/c/art`);
    const refusals: string[] = [];
    await eventually('a step is in force', async () => {
      const [taken, why] = await client.publish(sign(newAuthor(), { content: 'x'.repeat(400) }));
      if (!taken) refusals.push(why);
      return relay.node.communities.get(art)!.capacity.step > 0 ? true : undefined;
    });
    for (const why of refusals) expect(why).toMatch(/^restricted: space is short/);
    const { rows } = await relay.database.pool.query(
      'SELECT bytes FROM community_totals WHERE community = $1',
      [art],
    );
    expect(rows[0].bytes).toBeLessThan(10_000);
    expect(relay.node.communities.find(undefined, 'default')!.capacity.step).toBe(0);
    await client.close();
    await setNode('node.capacity.maxBytes', 0);
  });
});

async function versionOf(key: string): Promise<number> {
  return (await api.ask<Setting>('GET', `${NODE}/${key}`, { as: root })).body.version;
}

describe('settings of the node', () => {
  it('are listed with default and meaning, changed over the version read, and audited', async () => {
    const { body } = await api.ask<{ items: Setting[] }>('GET', NODE, { as: root });
    expect(body.items.map(({ key }) => key)).toEqual(nodeSettingKeys);
    const changed = await setNode('node.outboxStreamsMax', 20);
    expect(changed).toMatchObject({ value: 20, version: expect.any(Number) });
    const stale = { as: root, body: { value: 21, version: 0 } };
    await api.refused(409, 'VERSION_MISMATCH', 'PUT', `${NODE}/node.outboxStreamsMax`, stale);
    await api.refused(400, 'INVALID_REQUEST', 'PUT', `${NODE}/node.rate.eventsPerSecond`, {
      as: root,
      body: { value: 0, version: 0 },
    });
    for (const key of ['rate.eventsPerSecond', 'node.no', '__proto__'])
      await api.refused(404, 'NOT_FOUND', 'GET', `${NODE}/${key}`, { as: root });
    const reset = `${NODE}/node.outboxStreamsMax?version=${changed.version}`;
    expect((await api.ask<Setting>('DELETE', reset, { as: root })).body).toMatchObject({
      value: 16,
      version: 0,
    });
    const { body: log } = await api.ask<{ items: { action: string; target: string; actor: string }[] }>(
      'GET',
      '/v1/admin/audit-log?limit=2',
      { as: root },
    );
    expect(log.items.map(({ action, target, actor }) => ({ action, target, actor }))).toEqual([
      { action: 'setting.reset', target: 'node.outboxStreamsMax', actor: root.pubkey },
      { action: 'setting.change', target: 'node.outboxStreamsMax', actor: root.pubkey },
    ]);
  });

  it('are changed by command, which names the ceiling when it refuses a value', async () => {
    const env = { DATABASE_URL: relay.test.url };
    expect(await runCli(['settings', 'set', 'node.rate.eventsPerSecond', '60'], env)).toMatchObject({
      code: 0,
    });
    await eventually('it holds', () =>
      settingsIn(relay, 'art')['rate.eventsPerSecond'] === 60 ? true : undefined,
    );
    const above = await runCli(['settings', 'set', 'rate.eventsPerSecond', '61'], env);
    expect(above).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('the ceiling of the node is 60 (node.rate.eventsPerSecond)'),
    });
    // Was set to 0 before.
    expect(await runCli(['settings', 'get', 'rate.eventsPerSecond', '-c', 'art'], env)).toMatchObject({
      code: 0,
      stdout: '60\n',
      stderr: 'set to 0; limited by the ceiling of the node (node.rate.eventsPerSecond)\n',
    });
    const list = await runCli(['settings', 'list', '-c', 'art'], env);
    expect(list.stdout).toMatch(
      /^rate\.eventsPerSecond +60 .*\[set to 0; limited by the ceiling of the node/m,
    );
    expect(list.stdout).toMatch(/^node\.rate\.eventsPerSecond +60 /m);
    expect(await runCli(['settings', 'reset', 'node.rate.eventsPerSecond'], env)).toMatchObject({
      code: 0,
      stdout: expect.stringContaining('500'),
    });
    expect(await runCli(['settings', 'get', 'node.rate.eventsPerSecond'], env)).toMatchObject({
      stdout: '500\n',
    });
  });
});

describe('a route about the whole node', () => {
  const consumer = '/v1/admin/consumers/search';
  const ROUTES: [string, string, object?][] = [
    ['GET', NODE],
    ['GET', `${NODE}/node.outboxStreamsMax`],
    ['PUT', `${NODE}/node.outboxStreamsMax`, { value: 1, version: 0 }],
    ['DELETE', `${NODE}/node.outboxStreamsMax?version=0`],
    ['POST', `${consumer}/pause`, {}],
    ['POST', `${consumer}/resume`, {}],
    ['POST', `${consumer}/rebuild`, {}],
    ['POST', `${consumer}/replay`, { from: 1 }],
    ['POST', `${consumer}/dead-letters/retry`, {}],
    ['POST', '/v1/admin/erasures', { community: 'art' }],
  ];

  it.each(ROUTES)(
    '%s %s is only for operators of the node, at the default community',
    async (method, path, body) => {
      const asked = body === undefined ? {} : { body };
      const inArt = await api.refused(403, 'OPERATORS_ONLY', method, `/c/art${path}`, {
        as: artist,
        ...asked,
      });
      expect(inArt.body.details).toEqual({ explanation: expect.stringContaining('MINATO_ADMIN_PUBKEYS') });
      const asHelper = await api.refused(403, 'OPERATORS_ONLY', method, path, { as: helper, ...asked });
      expect(asHelper.body.details).toEqual(inArt.body.details);
      await api.refused(403, 'OPERATORS_ONLY', method, `/c/art${path}`, { as: root, ...asked });
      await api.refused(403, 'OPERATORS_ONLY', method, path, { as: newAuthor(), ...asked });
      await api.refused(401, 'AUTH_REQUIRED', method, path, asked);
    },
  );

  it('hides the errors of consumers: they may quote an event of another community', async () => {
    await relay.database.pool.query(
      `UPDATE consumer_offsets SET error = 'quotes', failing_since = 1 WHERE consumer = 'search'`,
    );
    const errorAs = async (as: Author, prefix = '') => {
      const { body } = await api.ask<{ items: { name: string; error: string | null }[] }>(
        'GET',
        `${prefix}/v1/admin/consumers`,
        { as },
      );
      return body.items.find(({ name }) => name === 'search')!.error;
    };
    expect([await errorAs(helper), await errorAs(artist, '/c/art')]).toEqual([null, null]);
  });
});
