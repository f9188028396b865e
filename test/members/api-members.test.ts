/**
 * Operators search members, look at one, review many requests at once, count what an erasure would delete,
 * and request a member's file: over real HTTP.
 */
import { randomUUID } from 'node:crypto';
import { npubEncode } from 'nostr-tools/nip19';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { addCommunity } from '../../src/communities/communities.sql.js';
import { type Api, createApi } from '../support/clients/api.js';
import { RawClient } from '../support/clients/client.js';
import { readZip } from '../support/clients/zip.js';
import { type Author, newAuthor, nowSeconds, sign } from '../support/events.js';
import { startTestNode, type TestNode } from '../support/node.js';

const MEMBERS = '/v1/admin/members';
const REQUESTS = '/v1/admin/topic-subscription-requests';
const FAR = { timeout: 60_000, interval: 50 };

interface Member {
  pubkey: string;
  status: string;
  note: string | null;
  name: string | null;
  plan_id: string;
  active_subscriptions: number;
  profile: { name: string | null; display_name: string | null; nip05: string | null } | null;
}
interface Page<T> {
  items: T[];
  next_cursor: string | null;
}
interface Request {
  request_id: string;
  requester_pubkey: string;
  status: string;
  review_note: string | null;
}

const root = newAuthor();
const viewer = newAuthor();
const alice = newAuthor();
const umi = newAuthor();
const bert = newAuthor();

let relay: TestNode;
let api: Api;
let client: RawClient;

beforeAll(async () => {
  relay = await startTestNode({ env: { MINATO_ADMIN_PUBKEYS: root.pubkey } });
  api = createApi(relay.http);
  client = await RawClient.connect(relay.url);
  await api.ask('PUT', `/v1/admin/operators/${viewer.pubkey}`, { as: root, body: { role: 'viewer' } });
  await profile(alice, { name: 'alice', display_name: 'Alice Ångström', nip05: 'alice@example.com' });
  await profile(umi, { name: 'umi', display_name: '海野みなと' });
  await client.publish(sign(bert, { kind: 0, content: 'no JSON at all' }));
  await change(alice, { note: 'Wrote to us about the harbour festival' });
  await change(umi, { name: 'umineko' });
  await change(bert, { status: 'disabled' });
});
afterAll(async () => {
  client.close();
  await relay.close();
});

async function profile(author: Author, fields: object, createdAt = nowSeconds()): Promise<void> {
  const event = sign(author, { kind: 0, content: JSON.stringify(fields), created_at: createdAt });
  expect((await client.publish(event))[0]).toBe(true);
}

async function change({ pubkey }: Author, body: object): Promise<void> {
  const changed = await api.ask('PATCH', `${MEMBERS}/${pubkey}`, { as: root, body });
  expect(changed.status).toBe(200);
}

async function find(q: string, as = root, rest = ''): Promise<string[]> {
  const { status, body } = await api.ask<Page<Member>>(
    'GET',
    `${MEMBERS}?q=${encodeURIComponent(q)}${rest}`,
    {
      as,
    },
  );
  expect(status).toBe(200);
  return body.items.map(({ pubkey }) => pubkey);
}

describe('a search of members', () => {
  it('finds a part of a name in the profile, in any case and width', async () => {
    for (const q of ['alice', 'LIC', 'ångs', 'ÅNGSTRÖM', ' alice ', 'ａｌｉｃｅ', 'alice@example', 'a'])
      expect(await find(q), q).toContain(alice.pubkey);
    expect(await find('alice ångström')).toEqual([alice.pubkey]);
    expect(await find('海')).toEqual([umi.pubkey]);
    expect(await find('野みな')).toEqual([umi.pubkey]);
    expect(await find('みなとx')).toEqual([]);
    // All its pieces are there, but not in this order.
    expect(await find('icealic')).toEqual([]);
  });

  it('finds a whole npub, a hex key and the beginning of one', async () => {
    expect(await find(npubEncode(bert.pubkey))).toEqual([bert.pubkey]);
    expect(await find(`nostr:${npubEncode(bert.pubkey)}`)).toEqual([bert.pubkey]);
    expect(await find(bert.pubkey)).toEqual([bert.pubkey]);
    expect(await find(bert.pubkey.slice(0, 8).toUpperCase())).toEqual([bert.pubkey]);
    expect(await find(newAuthor().pubkey)).toEqual([]);
  });

  it('finds the name that this community gives, also with a host', async () => {
    expect(await find('umineko')).toEqual([umi.pubkey]);
    expect(await find('mine')).toEqual([umi.pubkey]);
    expect(await find('umineko@example.com')).toEqual([umi.pubkey]);
  });

  it('searches notes for those only who may read them', async () => {
    expect(await find('harbour FESTIVAL')).toEqual([alice.pubkey]);
    expect(await find('harbour festival', viewer)).toEqual([]);
    expect(await find('alice', viewer)).toEqual([alice.pubkey]);
  });

  it('keeps to the status', async () => {
    expect(await find(bert.pubkey, root, '&status=disabled')).toEqual([bert.pubkey]);
    expect(await find(bert.pubkey, root, '&status=active')).toEqual([]);
  });

  it('follows the current profile, and forgets a deleted one', async () => {
    const person = newAuthor();
    await change(person, { note: null, status: 'active' });
    await profile(person, { name: 'firstname' }, nowSeconds() - 100);
    expect(await find('firstname')).toEqual([person.pubkey]);
    await profile(person, { name: 'secondname' }, nowSeconds() - 50);
    expect(await find('firstname')).toEqual([]);
    expect(await find('secondname')).toEqual([person.pubkey]);
    const address = `0:${person.pubkey}:`;
    expect((await client.publish(sign(person, { kind: 5, tags: [['a', address]], content: '' })))[0]).toBe(
      true,
    );
    expect(await find('secondname')).toEqual([]);
    const { body } = await api.ask<Member>('GET', `${MEMBERS}/${person.pubkey}`, { as: root });
    expect(body.profile).toBeNull();
  });

  it('takes profiles that nobody can read, and lists their members without a name', async () => {
    for (const content of [
      '',
      'null',
      '[]',
      '"text"',
      '{"name": 7}',
      '{"name":{"a":"deep"}}',
      '{"name":"x\\u0000y"}',
    ]) {
      const person = newAuthor();
      await change(person, { status: 'active' });
      expect(await client.publish(sign(person, { kind: 0, content })), content).toEqual([true, '']);
      expect(await find(person.pubkey), content).toEqual([person.pubkey]);
    }
  });

  it('shows nobody of another community', async () => {
    await addCommunity(relay.database.pool, 'art', undefined, Date.now());
    await vi.waitUntil(() => relay.node.communities.find(undefined, 'art') !== undefined, FAR);
    const { body } = await api.ask<Page<Member>>('GET', `/c/art${MEMBERS}?q=alice`, { as: root });
    expect(body.items).toEqual([]);
  });

  it('refuses a text that is too long, and a cursor of the other order', async () => {
    await api.refused(400, 'INVALID_REQUEST', 'GET', `${MEMBERS}?q=${'x'.repeat(201)}`, { as: root });
    const { body } = await api.ask<Page<Member>>('GET', `${MEMBERS}?limit=1`, { as: root });
    const other = `${MEMBERS}?order=newest&cursor=${body.next_cursor}`;
    await api.refused(400, 'INVALID_REQUEST', 'GET', other, { as: root });
  });
});

describe('the list of members', () => {
  it('shows profile, plan and numbers, and pages newest first without a gap', async () => {
    const { body } = await api.ask<Member>('GET', `${MEMBERS}/${alice.pubkey}`, { as: root });
    expect(body).toMatchObject({
      profile: { name: 'alice', display_name: 'Alice Ångström', nip05: 'alice@example.com' },
      plan_id: 'free',
      note: 'Wrote to us about the harbour festival',
      active_subscriptions: 0,
    });
    const all: (Member & { created_at: number })[] = [];
    for (let cursor: string | null = ''; cursor !== null; ) {
      const path: string = `${MEMBERS}?order=newest&limit=3${cursor === '' ? '' : `&cursor=${cursor}`}`;
      const answer = await api.ask<Page<Member & { created_at: number }>>('GET', path, { as: viewer });
      all.push(...answer.body.items);
      cursor = answer.body.next_cursor;
    }
    const byKey = await api.ask<Page<Member>>('GET', `${MEMBERS}?limit=200`, { as: viewer });
    expect(new Set(all.map(({ pubkey }) => pubkey)).size).toBe(all.length);
    expect(all.length).toBe(byKey.body.items.length);
    const times = all.map(({ created_at }) => created_at);
    expect(times).toEqual([...times].sort((one, other) => other - one));
  });

  it('gives the profile of a key that is not a member', async () => {
    const stranger = newAuthor();
    await profile(stranger, { name: 'passer-by' });
    const keys = [stranger.pubkey, alice.pubkey, newAuthor().pubkey];
    const path = `/v1/admin/profiles?pubkeys=${keys.join(',')}`;
    const { body } = await api.ask<Page<Member>>('GET', path, { as: viewer });
    const names = new Map(body.items.map(({ pubkey, profile: found }) => [pubkey, found?.name]));
    expect(keys.map((key) => names.get(key))).toEqual(['passer-by', 'alice', undefined]);
    await api.refused(400, 'INVALID_REQUEST', 'GET', '/v1/admin/profiles?pubkeys=x', { as: viewer });
    const many = Array.from({ length: 51 }, () => alice.pubkey).join(',');
    await api.refused(400, 'INVALID_REQUEST', 'GET', `/v1/admin/profiles?pubkeys=${many}`, { as: viewer });
    await api.refused(404, 'NOT_FOUND', 'GET', `${MEMBERS}/${stranger.pubkey}`, { as: viewer });
  });
});

const newTopic = () => `kukuri:${randomUUID().replaceAll('-', '').repeat(2)}`;

async function request(as: Author, topic = newTopic()): Promise<string> {
  const body = { topic_id: topic };
  const asked = await api.ask<{ request: Request }>('POST', '/v1/topic-subscription-requests', { as, body });
  expect(asked.status).toBe(201);
  return asked.body.request.request_id;
}

interface Reviewed {
  items: { request_id: string; request: Request | null; refused: string | null }[];
}

describe('many requests at once', () => {
  it('are approved with one note, each with its own outcome', async () => {
    const [one, two] = [newAuthor(), newAuthor()];
    const ids = [await request(one), await request(two), randomUUID()];
    const rejected = await request(two);
    await api.ask('POST', `${REQUESTS}/${rejected}/reject`, { as: root, body: {} });
    const body = { decision: 'approve', request_ids: [...ids, ids[0], rejected], note: 'Welcome' };
    const answer = await api.ask<Reviewed>('POST', `${REQUESTS}/reviews`, { as: root, body });
    expect(answer.body.items).toMatchObject([
      { request_id: ids[0], request: { status: 'active', review_note: 'Welcome' }, refused: null },
      { request_id: ids[1], request: { status: 'active', review_note: 'Welcome' }, refused: null },
      { request_id: ids[2], request: null, refused: 'NOT_FOUND' },
      { request_id: rejected, request: null, refused: 'STATUS_CONFLICT' },
    ]);
    const path = `${MEMBERS}/${one.pubkey}/topic-subscriptions`;
    const { body: held } = await api.ask<Page<{ status: string }>>('GET', path, { as: viewer });
    expect(held.items).toMatchObject([{ status: 'active', request_id: ids[0] }]);
  });

  it('are rejected together', async () => {
    const person = newAuthor();
    const ids = [await request(person), await request(person)];
    const body = { decision: 'reject', request_ids: ids, note: 'Not here' };
    const answer = await api.ask<Reviewed>('POST', `${REQUESTS}/reviews`, { as: root, body });
    expect(answer.body.items.map((item) => item.request?.status)).toEqual(['rejected', 'rejected']);
    const own = await api.ask<Page<Request>>('GET', `${REQUESTS}?pubkey=${person.pubkey}`, { as: viewer });
    expect(own.body.items.map(({ review_note }) => review_note)).toEqual(['Not here', 'Not here']);
    const open = `${REQUESTS}?pubkey=${person.pubkey}&status=pending`;
    expect((await api.ask<Page<Request>>('GET', open, { as: viewer })).body.items).toEqual([]);
  });

  it('are at least one and at most a hundred', async () => {
    const reviews = `${REQUESTS}/reviews`;
    for (const count of [0, 101]) {
      const request_ids = Array.from({ length: count }, () => randomUUID());
      const body = { decision: 'reject', request_ids };
      await api.refused(400, 'INVALID_REQUEST', 'POST', reviews, { as: root, body });
    }
    const body = { decision: 'reject', request_ids: [randomUUID()] };
    await api.refused(403, 'OPERATORS_ONLY', 'POST', reviews, { as: viewer, body });
  });
});

describe('one member', () => {
  it('has what an erasure would delete in numbers, and nothing is deleted by looking', async () => {
    const person = newAuthor();
    await request(person);
    await profile(person, { name: 'counted' });
    await client.publish(sign(person, { content: 'one post' }));
    const path = `${MEMBERS}/${person.pubkey}/erasure-preview`;
    const ask = () =>
      api.ask<{ rows: number; stores: { name: string; rows: number | null }[]; pending_requests: number }>(
        'GET',
        path,
        { as: root },
      );
    const { status, body } = await ask();
    expect(status).toBe(200);
    const rowsOf = (name: string) => body.stores.find((store) => store.name === name)?.rows;
    expect(rowsOf('postgres:events')).toBe(2);
    expect(rowsOf('postgres:members')).toBe(1);
    expect(body.stores.every(({ rows }) => rows !== null)).toBe(true);
    expect(body.rows).toBe(body.stores.reduce((sum, { rows }) => sum + (rows ?? 0), 0));
    expect(body.pending_requests).toBe(1);
    expect((await ask()).body.stores.find(({ name }) => name === 'postgres:events')?.rows).toBe(2);
  });

  it('has consents, erasures and requests about personal data of their own', async () => {
    for (const path of ['/v1/admin/consents', '/v1/admin/erasures', '/v1/admin/personal-data-requests']) {
      const { status, body } = await api.ask<Page<object>>('GET', `${path}?pubkey=${alice.pubkey}`, {
        as: root,
      });
      expect([status, body.items], path).toEqual([200, []]);
    }
    const gone = newAuthor();
    await change(gone, { status: 'active' });
    const body = { pubkey: gone.pubkey, grace_days: 3 };
    expect((await api.ask('POST', '/v1/admin/erasures', { as: root, body })).status).toBe(202);
    const path = `/v1/admin/erasures?pubkey=${gone.pubkey}`;
    const { body: found } = await api.ask<Page<object>>('GET', path, { as: root });
    expect(found.items).toMatchObject([{ pubkey: gone.pubkey, stage: 'grace' }]);
  });

  it('gets a file by an operator, which the audit log says', async () => {
    const person = newAuthor();
    await profile(person, { name: 'by letter' });
    const url = `${MEMBERS}/${person.pubkey}/personal-data-exports`;
    const asked = await api.ask<Request>('POST', url, { as: root, body: {} });
    expect(asked).toMatchObject({ status: 202, body: { requester_pubkey: person.pubkey } });
    const list = `/v1/admin/personal-data-requests?pubkey=${person.pubkey}&kind=export`;
    await vi.waitUntil(async () => {
      const { body } = await api.ask<Page<Request>>('GET', list, { as: root });
      return body.items[0]?.status === 'ready';
    }, FAR);
    const link = `${url}/${asked.body.request_id}/link`;
    const { body } = await api.ask<{ download_url: string }>('POST', link, { as: root });
    const file = await fetch(body.download_url);
    expect(file.status).toBe(200);
    const files = await readZip(Buffer.from(await file.arrayBuffer()));
    expect(files.get('events.jsonl')).toContain('by letter');
    const other = `${MEMBERS}/${alice.pubkey}/personal-data-exports/${asked.body.request_id}/link`;
    await api.refused(404, 'NOT_FOUND', 'POST', other, { as: root });
    const { body: log } = await api.ask<Page<{ action: string; target: string }>>(
      'GET',
      '/v1/admin/audit-log',
      {
        as: root,
      },
    );
    const actions = log.items.filter(({ target }) => target === person.pubkey).map(({ action }) => action);
    expect(actions).toEqual(['personal-data.link', 'personal-data.export']);
  });
});
