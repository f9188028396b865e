/** The communities of a node over real HTTP, for its operators only. */
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { type Api, createApi } from '../support/clients/api.js';
import { newAuthor } from '../support/events.js';
import { startTestNode, type TestNode } from '../support/node.js';

const COMMUNITIES = '/v1/admin/communities';
const boss = newAuthor();
const keeper = newAuthor();
let relay: TestNode;
let api: Api;

beforeAll(async () => {
  relay = await startTestNode({ env: { MINATO_ADMIN_PUBKEYS: boss.pubkey } });
  api = createApi(relay.http);
});
afterAll(() => relay.close());

interface Listed {
  slug: string;
  name: string | null;
  host: string | null;
  members: { count: number; more: boolean };
  topics: { count: number; more: boolean };
}

describe('communities', () => {
  it('are listed with their sizes, and one can be added', async () => {
    const body = { slug: 'art', host: 'Art.Example.ORG' };
    const made = await api.ask<Listed>('POST', COMMUNITIES, { as: boss, body });
    expect(made).toMatchObject({
      status: 201,
      body: { slug: 'art', host: 'art.example.org', path: '/c/art', topics: { count: 1, more: false } },
    });
    await vi.waitUntil(() => relay.node.communities.find(undefined, 'art') !== undefined, {
      timeout: 60_000,
    });
    await api.ask('PUT', '/c/art/v1/admin/settings/relay.name', {
      as: boss,
      body: { value: 'The art club', version: 0 },
    });
    await api.ask('PATCH', `/c/art/v1/admin/members/${newAuthor().pubkey}`, {
      as: boss,
      body: { note: 'first' },
    });
    const { body: page } = await api.ask<{ items: Listed[] }>('GET', COMMUNITIES, { as: boss });
    expect(page.items.map(({ slug }) => slug)).toEqual(['art', 'default']);
    expect(page.items[0]).toMatchObject({ name: 'The art club', members: { count: 1, more: false } });
    const log = await api.ask<{ items: object[] }>('GET', '/v1/admin/audit-log?action=community.create', {
      as: boss,
    });
    expect(log.body.items).toMatchObject([
      { actor: boss.pubkey, target: 'art', details: { host: 'art.example.org' } },
    ]);
  });

  it('keep their names: a second one with the same name or host is refused', async () => {
    for (const body of [{ slug: 'art' }, { slug: 'sea', host: 'art.example.org' }])
      await api.refused(409, 'COMMUNITY_EXISTS', 'POST', COMMUNITIES, { as: boss, body });
    for (const body of [{ slug: 'Not a name' }, { slug: 'sea', host: 'no host!' }])
      await api.refused(400, 'INVALID_REQUEST', 'POST', COMMUNITIES, { as: boss, body });
    const { body } = await api.ask<{ items: Listed[] }>('GET', COMMUNITIES, { as: boss });
    expect(body.items).toHaveLength(2);
  });

  it('are for operators of the node, at the default community', async () => {
    await api.ask('PUT', `/v1/admin/operators/${keeper.pubkey}`, { as: boss, body: { role: 'operator' } });
    await api.refused(403, 'OPERATORS_ONLY', 'GET', COMMUNITIES, { as: keeper });
    const body = { slug: 'mine' };
    await api.refused(403, 'OPERATORS_ONLY', 'POST', COMMUNITIES, { as: keeper, body });
    await api.refused(403, 'OPERATORS_ONLY', 'GET', `/c/art${COMMUNITIES}`, { as: boss });
  });
});
