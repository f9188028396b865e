/**
 * Names of members (NIP-05), and membership by events (NIP-43): join with an invite, invite, leave, and the
 * list of members.
 */
import { verifyEvent } from 'nostr-tools/pure';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { addCommunity, writeSetting } from '../../src/communities/communities.sql.js';
import type { SettingKey } from '../../src/communities/rules-settings.js';
import { type Api, createApi } from '../support/clients/api.js';
import { authenticate } from '../support/clients/auth.js';
import { RawClient } from '../support/clients/client.js';
import { type Author, newAuthor, nowSeconds, sign } from '../support/events.js';
import { startTestNode, type TestNode } from '../support/node.js';

const operator = newAuthor();
const [alice, bob, carol] = [newAuthor(), newAuthor(), newAuthor()];
const WAIT = { timeout: 100_000 };
let relay: TestNode;
let api: Api;
const clients: RawClient[] = [];

beforeAll(async () => {
  relay = await startTestNode({
    env: { MINATO_TOPIC_MODE: 'required', MINATO_ADMIN_PUBKEYS: operator.pubkey },
  });
  await addCommunity(relay.database.pool, 'art', 'art.example', Date.now());
  api = createApi(relay.http);
  await vi.waitUntil(() => community().self !== undefined, WAIT);
  await vi.waitUntil(() => relay.node.communities.find(undefined, 'art') !== undefined, WAIT);
});
afterAll(async () => {
  await Promise.all(clients.map((client) => client.close()));
  await relay.close();
});

const community = () => relay.node.communities.find(undefined, 'default')!;

async function connect(as?: Author): Promise<RawClient> {
  const client = await RawClient.connect(relay.url);
  clients.push(client);
  if (as !== undefined) expect(await authenticate(client, as, relay.url)).toEqual([true, '']);
  return client;
}

async function set(key: SettingKey, value: unknown): Promise<void> {
  await writeSetting(relay.database.pool, community().id, key, value, Date.now());
  await expect.poll(() => community().settings[key], WAIT).toEqual(value);
}

describe('a name', () => {
  interface Names {
    names: Record<string, string>;
    relays: Record<string, string[]>;
  }
  const lookUp = async (name: string, host?: string): Promise<Names> => {
    const headers = host === undefined ? {} : { host };
    const {
      status,
      body,
      headers: got,
    } = await api.ask<Names>('GET', `/.well-known/nostr.json?name=${encodeURIComponent(name)}`, { headers });
    expect(status).toBe(200);
    expect(got.get('access-control-allow-origin')).toBe('*');
    return body;
  };
  const change = (who: Author, body: object) =>
    api.ask('PATCH', `/v1/admin/members/${who.pubkey}`, { as: operator, body });

  it('given by the operator is found, with the address of the relay, until it is removed', async () => {
    expect(await change(alice, { name: 'alice' })).toMatchObject({ status: 200, body: { name: 'alice' } });
    await expect.poll(async () => (await lookUp('alice')).names, WAIT).toEqual({ alice: alice.pubkey });
    expect((await lookUp('alice')).relays).toEqual({ [alice.pubkey]: [relay.url] });
    for (const other of ['', 'bob', 'ALICE', '__proto__', 'constructor'])
      expect(await lookUp(other)).toEqual({ names: {}, relays: {} });
    const { body } = await api.ask<Names>('GET', '/.well-known/nostr.json');
    expect(body.names).toEqual({});
    await change(alice, { name: null });
    await expect.poll(async () => (await lookUp('alice')).names, WAIT).toEqual({});
  });

  it('belongs to one member of a community, and must be well formed', async () => {
    await change(alice, { name: 'harbour' });
    const { pubkey } = bob;
    const asking = (name: string) => ({ as: operator, body: { name } });
    await api.refused(409, 'NAME_TAKEN', 'PATCH', `/v1/admin/members/${pubkey}`, asking('harbour'));
    for (const bad of ['Harbour', 'a b', '', 'x'.repeat(65), 'ü'])
      await api.refused(400, 'INVALID_REQUEST', 'PATCH', `/v1/admin/members/${pubkey}`, asking(bad));
    const there = await api.ask('PATCH', `/c/art/v1/admin/members/${pubkey}`, asking('harbour'));
    expect(there.status).toBe(200);
    await expect.poll(async () => (await lookUp('harbour')).names, WAIT).toEqual({ harbour: alice.pubkey });
  });

  it('of a disabled member is not shown', async () => {
    await change(carol, { name: 'carol' });
    await expect.poll(async () => (await lookUp('carol')).names, WAIT).toEqual({ carol: carol.pubkey });
    await change(carol, { status: 'disabled' });
    await expect.poll(async () => (await lookUp('carol')).names, WAIT).toEqual({});
    await change(carol, { status: 'active' });
    await expect.poll(async () => (await lookUp('carol')).names, WAIT).toEqual({ carol: carol.pubkey });
  });
});

describe('an invite', () => {
  const join = (who: Author, claim: string, draft = {}) =>
    sign(who, { kind: 28_934, tags: [['-'], ['claim', claim]], ...draft });
  const ask = async (client: RawClient): Promise<ReturnType<typeof sign> | undefined> => {
    const { events, closed } = await client.query({ kinds: [28_935] });
    expect(closed).toBeUndefined();
    return events[0] as ReturnType<typeof sign> | undefined;
  };
  const claimOf = async (client: RawClient) => {
    const invite = (await ask(client))!;
    return invite.tags.find(([name]) => name === 'claim')![1]!;
  };

  it('is made by the relay on request of an operator, signed by the key in NIP-11', async () => {
    const client = await connect(operator);
    const invite = (await ask(client))!;
    expect(verifyEvent(invite)).toBe(true);
    const headers = { accept: 'application/nostr+json' };
    const { self } = (await (await fetch(relay.http, { headers })).json()) as { self: string };
    expect(invite).toMatchObject({ kind: 28_935, pubkey: self });
    expect(await claimOf(client)).not.toBe(invite.tags.find(([name]) => name === 'claim')![1]);
    expect((await client.query({ kinds: [28_935], authors: [alice.pubkey] })).events).toEqual([]);
  });

  it('is not made for others, unless members may invite', async () => {
    const stranger = await connect();
    expect((await stranger.query({ kinds: [28_935] })).closed).toMatch(/^auth-required: /);
    expect(stranger.challenge).toBeDefined();
    const client = await connect(bob);
    expect(await ask(client)).toBeUndefined();
    await set('membership.invitesBy', 'members');
    expect(await ask(client), 'no member').toBeUndefined();
    expect((await client.publish(join(bob, await claimOf(await connect(operator)))))[1]).toBe(
      'info: welcome',
    );
    expect(await ask(client), 'a member').toBeDefined();
    await set('membership.invitesBy', 'operators');
    const helper = newAuthor();
    const path = `/v1/admin/operators/${helper.pubkey}`;
    await api.ask('PUT', path, { as: operator, body: { role: 'moderator' } });
    await vi.waitUntil(() => community().operators.has(helper.pubkey), WAIT);
    expect(await ask(await connect(helper)), 'a moderator').toBeUndefined();
  });

  it('lets one key join, once, without topic or authentication; the request is never served', async () => {
    const claim = await claimOf(await connect(operator));
    const [reader, client] = [await connect(), await connect()];
    reader.send(['REQ', 'live', { kinds: [28_934, 28_936] }]);
    await reader.waitFor(([verb]) => verb === 'EOSE');
    expect(await client.publish(join(alice, claim))).toEqual([true, 'info: welcome']);
    expect(await client.publish(join(alice, claim, { content: 'again' }))).toEqual([
      true,
      'duplicate: you are a member already',
    ]);
    expect(await client.publish(join(carol, claim))).toEqual([
      false,
      'restricted: This invite is unknown, used, revoked or expired',
    ]);
    const member = await api.ask('GET', `/v1/admin/members/${alice.pubkey}`, { as: operator });
    expect(member.body).toMatchObject({ status: 'active', active_subscriptions: 1 });
    expect((await client.query({ kinds: [28_934] })).events).toEqual([]);
    const mark = sign(alice, { kind: 0 });
    await client.publish(mark);
    await expect.poll(async () => (await reader.query({ kinds: [0] })).events, WAIT).toEqual([mark]);
    expect(reader.frames.filter(([verb, id]) => verb === 'EVENT' && id === 'live')).toEqual([]);
  });

  it('that would be one pending request too many is an error, and stays unused', async () => {
    const invite = async (digit: string): Promise<string> => {
      const body = { topic_id: `kukuri:${digit.repeat(64)}`, expires_at: Date.now() + 3_600_000 };
      return (await api.ask<{ code: string }>('POST', '/v1/admin/invites', { as: operator, body })).body.code;
    };
    const [first, second] = [await invite('a'), await invite('b')];
    const dave = newAuthor();
    const client = await connect(dave);
    await set('topic.enabledMax', 1);
    await set('subscription.pendingMax', 1);
    expect(await client.publish(join(dave, first))).toEqual([true, 'info: the request waits for review']);
    expect(await client.publish(join(dave, second))).toEqual([
      false,
      'error: Too many of your requests are pending; wait, or cancel one',
    ]);
    await set('topic.enabledMax', 1_000);
    expect(await client.publish(join(dave, second))).toEqual([true, 'info: welcome']);
    await client.publish(sign(dave, { kind: 28_936, tags: [['-']] }));
  });

  it('is refused with a reason when it is unknown, missing or old', async () => {
    const client = await connect();
    expect((await client.publish(join(carol, 'made up')))[1]).toMatch(/^restricted: This invite is unknown/);
    expect((await client.publish(sign(carol, { kind: 28_934 })))[1]).toMatch(/^invalid: .*claim/);
    const old = { created_at: nowSeconds() - 700 };
    expect((await client.publish(join(carol, 'x', old)))[1]).toMatch(/^invalid: created_at/);
    expect((await client.publish(sign(carol, { kind: 28_935 })))[1]).toMatch(/^invalid: .*made by the relay/);
  });

  it('ends when the member, and only the member, leaves; a new invite admits them again', async () => {
    const leave = (content: string) => sign(alice, { kind: 28_936, tags: [['-']], content });
    expect((await (await connect()).publish(leave('1')))[1]).toMatch(/^auth-required: /);
    expect((await (await connect(bob)).publish(leave('2')))[1]).toMatch(/^auth-required: /);
    const client = await connect(alice);
    expect(await client.publish(leave('3'))).toEqual([true, 'info: you have left']);
    expect(await client.publish(leave('4'))).toEqual([true, 'duplicate: you are not a member']);
    const shown = () => api.ask('GET', `/v1/admin/members/${alice.pubkey}`, { as: operator });
    expect((await shown()).body).toMatchObject({
      active_subscriptions: 0,
      name: null,
      left_at: expect.any(Number),
    });
    const claim = await claimOf(await connect(operator));
    expect((await client.publish(join(alice, claim)))[1]).toBe('info: welcome');
    expect((await shown()).body).toMatchObject({ active_subscriptions: 1, left_at: null });
  });
});

describe('the list of members', () => {
  const run = () => relay.node.schedule!.trigger('membership-list');
  const published = async () => {
    const client = clients[0]!;
    const { events } = await client.query({ kinds: [13_534], authors: [community().self!] });
    return events as ReturnType<typeof sign>[];
  };

  it('is published only if turned on, follows the members, and is deleted when turned off', async () => {
    expect(await published()).toEqual([]);
    await set('membership.list', true);
    await run();
    const members = [alice.pubkey, bob.pubkey].sort().map((pubkey) => ['member', pubkey]);
    await expect.poll(async () => (await published())[0]?.tags, WAIT).toEqual([['-'], ...members]);
    expect(verifyEvent((await published())[0]!)).toBe(true);
    const client = await connect(bob);
    await client.publish(sign(bob, { kind: 28_936, tags: [['-']] }));
    await run();
    await expect
      .poll(async () => (await published())[0]?.tags, WAIT)
      .toEqual([['-'], ['member', alice.pubkey]]);
    await set('membership.list', false);
    await run();
    await expect.poll(published, WAIT).toEqual([]);
  });
});
