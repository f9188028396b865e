/** Signed requests (NIP-98) over real HTTP: only the right one passes, once, at one community. */
import { connect as connectSocket } from 'node:net';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { addCommunity } from '../../src/communities/communities.sql.js';
import { changeMember } from '../../src/members/members.sql.js';
import { addOperator, removeOperator } from '../../src/members/operators.sql.js';
import {
  type Api,
  authorization,
  createApi,
  credential,
  type Refused,
  sha256,
} from '../support/clients/api.js';
import { type Draft, newAuthor, nowSeconds, sign } from '../support/events.js';
import { startTestNode, type TestNode } from '../support/node.js';

const LIST = '/v1/topic-subscriptions';
const ASK = '/v1/topic-subscription-requests';
const MUSIC_HOST = 'music.example';
let relay: TestNode;
let second: TestNode;
let api: Api;
const alice = newAuthor();
const root = newAuthor();

const communityOf = (slug: string) => relay.node.communities.find(undefined, slug)!.id;

beforeAll(async () => {
  relay = await startTestNode({ env: { MINATO_ADMIN_PUBKEYS: root.pubkey } });
  second = await startTestNode({ on: relay.test });
  api = createApi(relay.http);
  await addCommunity(relay.database.pool, 'art', undefined, Date.now());
  await addCommunity(relay.database.pool, 'music', MUSIC_HOST, Date.now());
  for (const { node } of [relay, second])
    await vi.waitUntil(() => node.communities.find(undefined, 'music') !== undefined, { timeout: 100_000 });
});
afterAll(async () => {
  await second.close();
  await relay.close();
});

/** Sends a request with any header. */
const withHeader = (header: string, path = LIST, method = 'GET', body?: unknown) =>
  api.ask<Refused>(method, path, {
    headers: { authorization: header },
    ...(body === undefined ? {} : { body }),
  });

async function expectInvalid(reason: string, header: string, path = LIST, method = 'GET', body?: unknown) {
  const answer = await withHeader(header, path, method, body);
  expect({ status: answer.status, code: answer.body.code, reason: answer.body.details.reason }).toEqual({
    status: 401,
    code: 'INVALID_AUTH',
    reason,
  });
  expect(answer.headers.get('www-authenticate')).toBe('Nostr, Bearer');
}

const signed = (draft: Draft = {}, path = LIST, method = 'GET', body?: unknown) =>
  authorization(credential(alice, { method, url: relay.http + path, body }, draft));

describe('a request without a signature', () => {
  it('is refused with 401 and the accepted schemes', async () => {
    const { headers } = await api.refused(401, 'AUTH_REQUIRED', 'GET', LIST);
    expect(headers.get('www-authenticate')).toBe('Nostr, Bearer');
    expect(headers.get('cache-control')).toBe('no-store');
    await api.refused(401, 'AUTH_REQUIRED', 'POST', ASK, { body: { name: 'x' } });
  });

  it('is refused before its body is looked at', async () => {
    await api.refused(401, 'AUTH_REQUIRED', 'POST', ASK, { body: 'not json' });
    await api.refused(401, 'AUTH_REQUIRED', 'POST', ASK, { body: 'x'.repeat(100_000) });
  });
});

describe('a signed request', () => {
  it('passes when everything is right, and its answer is not kept by caches', async () => {
    const answer = await api.ask('GET', LIST, { as: alice });
    expect(answer).toMatchObject({ status: 200, body: { items: [], next_cursor: null } });
    expect(answer.headers.get('cache-control')).toBe('no-store');
  });

  it.each(['localhost', '127.0.0.1', '[::1]'])('passes when it names this node %s', async (host) => {
    const url = `http://${host}:${relay.node.port}${LIST}`;
    const header = authorization(credential(alice, { method: 'GET', url }));
    expect((await withHeader(header)).status).toBe(200);
  });

  it('passes with unpadded and URL-safe base64, and the scheme in any case', async () => {
    const event = () => JSON.stringify(credential(alice, { method: 'GET', url: relay.http + LIST }));
    const text = () => Buffer.from(event()).toString('base64url');
    expect((await withHeader(`nostr ${text()}`)).status).toBe(200);
    expect((await withHeader(`NOSTR  ${text()}`)).status).toBe(200);
  });

  it('must be for this method', async () => {
    await expectInvalid('method', signed({}, LIST, 'POST'));
    await expectInvalid('method', signed({}, LIST, 'HEAD'));
    const head = await fetch(relay.http + LIST, { method: 'HEAD', headers: { authorization: signed() } });
    expect(head.status).toBe(401);
    const right = signed({}, LIST, 'HEAD');
    const answer = await fetch(relay.http + LIST, { method: 'HEAD', headers: { authorization: right } });
    expect(answer.status).toBe(200);
    expect(await answer.text()).toBe('');
  });

  it('must be for this path, query, scheme, port and host', async () => {
    await expectInvalid('url', signed({}, ASK));
    await expectInvalid('url', signed({}, `${LIST}?status=active`));
    await expectInvalid('url', signed(), `${LIST}?status=active`);
    await expectInvalid('url', signed({}, `${LIST}?limit=1`), `${LIST}?limit=2`);
    const elsewhere = [
      `https://127.0.0.1:${relay.node.port}`,
      `http://127.0.0.1:${relay.node.port + 1}`,
      'http://127.0.0.1',
      'http://evil.example',
    ];
    for (const base of elsewhere) {
      const header = authorization(credential(alice, { method: 'GET', url: base + LIST }));
      await expectInvalid('url', header);
    }
  });

  it('is never compared with the Host header', async () => {
    const header = authorization(credential(alice, { method: 'GET', url: `http://evil.example${LIST}` }));
    const raw = await rawRequest([
      `GET ${LIST} HTTP/1.1`,
      'Host: evil.example',
      `Authorization: ${header}`,
      'Connection: close',
    ]);
    expect(raw).toMatch(/^HTTP\/1\.1 401 /);
    expect(raw).toContain('"reason":"url"');
  });

  it('must be for this body, byte for byte', async () => {
    const body = '{"name":"gardens"}';
    await expectInvalid('payload', signed({}, ASK, 'POST', '{"name":"Gardens"}'), ASK, 'POST', body);
    await expectInvalid('payload', signed({}, ASK, 'POST', '{"name": "gardens"}'), ASK, 'POST', body);
    await expectInvalid('payload', signed({}, ASK, 'POST'), ASK, 'POST', body);
    const wrong = [
      ['u', relay.http + LIST],
      ['method', 'GET'],
      ['payload', sha256('x')],
    ];
    await expectInvalid('payload', signed({ tags: wrong }));
  });

  it('must be current: neither stale nor from the future', async () => {
    await expectInvalid('created_at', signed({ created_at: nowSeconds() - 600 }));
    await expectInvalid('created_at', signed({ created_at: nowSeconds() + 600 }));
    for (const off of [-30, 30])
      expect((await withHeader(signed({ created_at: nowSeconds() + off }))).status).toBe(200);
  });

  it('must have the kind of HTTP requests', async () => {
    await expectInvalid('kind', signed({ kind: 22_242 }));
    await expectInvalid('kind', signed({ kind: 1 }));
  });

  it('must have its own id and a valid signature', async () => {
    const event = credential(alice, { method: 'GET', url: relay.http + LIST });
    const other = sign(newAuthor(), { kind: event.kind, tags: event.tags });
    await expectInvalid('signature', authorization({ ...event, sig: other.sig }));
    await expectInvalid('id', authorization({ ...event, id: other.id }));
    await expectInvalid('id', authorization({ ...event, pubkey: other.pubkey }));
    await expectInvalid('id', authorization({ ...event, content: 'x' }));
  });

  it('must be an event', async () => {
    for (const event of [{}, [], null, 'x', 1, { denied: 'INTERNAL' }, { refused: 'x' }])
      await expectInvalid('event', authorization(event));
    const uppercase = credential(alice, { method: 'GET', url: relay.http + LIST });
    await expectInvalid('event', authorization({ ...uppercase, id: uppercase.id.toUpperCase() }));
  });

  it('must be readable: scheme, base64, JSON, UTF-8', async () => {
    const good = signed();
    const bad = [
      'Nostr',
      'Nostr ',
      'Nostr !!!!',
      'Nostr e30= e30=',
      good.replace('Nostr ', 'Basic '),
      'Bearer',
      `Nostr ${Buffer.from('{').toString('base64')}`,
      `Nostr ${Buffer.from([0x22, 0xff, 0xfe, 0x22]).toString('base64')}`,
      good.slice(0, -40),
    ];
    for (const header of bad) await expectInvalid('header', header);
  });

  it('must not be huge', async () => {
    const long = signed({ content: 'x'.repeat(9_000) });
    await expectInvalid('header', long);
    const raw = await rawRequest([
      `GET ${LIST} HTTP/1.1`,
      'Host: x',
      `Authorization: Nostr ${'A'.repeat(100_000)}`,
      'Connection: close',
    ]);
    expect(raw).toMatch(/^HTTP\/1\.1 431 /);
  });
});

describe('a signature that was used', () => {
  it('is refused the second time, here and on another instance', async () => {
    const header = signed();
    expect((await withHeader(header)).status).toBe(200);
    const again = await withHeader(header);
    expect(again).toMatchObject({ status: 401, body: { code: 'REPLAYED_AUTH' } });
    expect(again.headers.get('www-authenticate')).toBe('Nostr, Bearer');
    // The second instance has the address of the first among its own.
    const other = await startTestNode({ on: relay.test, env: { MINATO_PUBLIC_URL: relay.url } });
    try {
      const there = (authorization: string) =>
        fetch(other.http + LIST, { headers: { authorization } }).then((response) => response.json());
      expect(await there(header)).toMatchObject({ code: 'REPLAYED_AUTH' });
      const fresh = signed();
      expect(await there(fresh)).toMatchObject({ items: [] });
      expect((await withHeader(fresh)).body.code).toBe('REPLAYED_AUTH');
    } finally {
      await other.close();
    }
  });

  it('is accepted for one of many concurrent requests', async () => {
    const header = signed();
    const answers = await Promise.all(Array.from({ length: 12 }, () => withHeader(header)));
    const statuses = answers.map(({ status }) => status).sort();
    expect(statuses).toEqual([200, ...Array(11).fill(401)]);
  });

  it('is not spent by a request that it is not valid for', async () => {
    const header = signed();
    await expectInvalid('url', header, `${LIST}?limit=5`);
    await expectInvalid('method', header, ASK, 'POST', { name: 'x' });
    expect((await withHeader(header)).status).toBe(200);
  });

  it('is of its own instance: each has its address', async () => {
    const header = authorization(credential(alice, { method: 'GET', url: second.http + LIST }));
    await expectInvalid('url', header);
    expect((await fetch(second.http + LIST, { headers: { authorization: header } })).status).toBe(200);
  });
});

describe('a signature for one community', () => {
  const at = (path: string) => authorization(credential(alice, { method: 'GET', url: relay.http + path }));

  it('is not valid for another', async () => {
    const [art, plain] = [`/c/art${LIST}`, LIST];
    await expectInvalid('url', at(art), plain);
    await expectInvalid('url', at(plain), art);
    await expectInvalid('url', at(art), `/c/music${LIST}`);
    expect((await withHeader(at(art), art)).status).toBe(200);
    expect((await withHeader(at(`/c/default${LIST}`), `/c/default${LIST}`)).status).toBe(200);
  });

  it('is not valid for another that the host name selects', async () => {
    const ask = (host: string, header: string) =>
      rawRequest([`GET ${LIST} HTTP/1.1`, `Host: ${host}`, `Authorization: ${header}`, 'Connection: close']);
    const atMusic = () =>
      authorization(
        credential(alice, { method: 'GET', url: `http://${MUSIC_HOST}:${relay.node.port}${LIST}` }),
      );
    expect(await ask(MUSIC_HOST, atMusic())).toMatch(/^HTTP\/1\.1 200 /);
    expect(await ask(MUSIC_HOST, at(LIST))).toMatch(/^HTTP\/1\.1 401 /);
    expect(await ask('127.0.0.1', atMusic())).toMatch(/^HTTP\/1\.1 401 /);
  });
});

describe('accounts', () => {
  const fixed = { fixed: [] };

  it('that are disabled or deleted are refused at the next request, only in their community', async () => {
    const community = communityOf('art');
    const { pubkey } = alice;
    const asArt = `/c/art${LIST}`;
    await changeMember(relay.database.pool, { community, pubkey, status: 'disabled' }, fixed, Date.now());
    await api.refused(403, 'ACCOUNT_DISABLED', 'GET', asArt, { as: alice });
    expect((await api.ask('GET', LIST, { as: alice })).status).toBe(200);
    await changeMember(relay.database.pool, { community, pubkey, status: 'active' }, fixed, Date.now());
    expect((await api.ask('GET', asArt, { as: alice })).status).toBe(200);
    await changeMember(relay.database.pool, { community, pubkey, status: 'deleted' }, fixed, Date.now());
    await api.refused(410, 'ACCOUNT_DELETED', 'GET', asArt, { as: alice });
    await api.refused(410, 'ACCOUNT_DELETED', 'POST', `/c/art${ASK}`, { as: alice, body: { name: 'x' } });
  });
});

describe('operators', () => {
  const LOG = '/v1/admin/audit-log';

  it('of the node may act in every community, and operators of a community cannot change that', async () => {
    await api.refused(401, 'AUTH_REQUIRED', 'GET', LOG);
    await api.refused(403, 'OPERATORS_ONLY', 'GET', LOG, { as: newAuthor() });
    for (const path of [LOG, `/c/art${LOG}`])
      expect((await api.ask('GET', path, { as: root })).status).toBe(200);
    await relay.database.pool.query(
      `INSERT INTO members (community, pubkey, status, created_at, updated_at)
       VALUES ($1, $2, 'disabled', 0, 0)`,
      [communityOf('art'), Buffer.from(root.pubkey, 'hex')],
    );
    expect((await api.ask('GET', `/c/art${LOG}`, { as: root })).status).toBe(200);
    await api.refused(403, 'ACCOUNT_DISABLED', 'GET', `/c/art${LIST}`, { as: root });
  });

  it('of a community act there and nowhere else, and only while their account is active', async () => {
    const bob = newAuthor();
    const { pool } = relay.database;
    const ref = { community: communityOf('art'), pubkey: bob.pubkey };
    await addOperator(pool, ref, { fixed: [root.pubkey] }, Date.now());
    await expect
      .poll(async () => (await api.ask('GET', `/c/art${LOG}`, { as: bob })).status, { timeout: 100_000 })
      .toBe(200);
    await api.refused(403, 'OPERATORS_ONLY', 'GET', LOG, { as: bob });
    await api.refused(403, 'OPERATORS_ONLY', 'GET', `/c/music${LOG}`, { as: bob });
    await changeMember(pool, { ...ref, status: 'disabled' }, { fixed: [] }, Date.now());
    await api.refused(403, 'ACCOUNT_DISABLED', 'GET', `/c/art${LOG}`, { as: bob });
    await changeMember(pool, { ...ref, status: 'active' }, { fixed: [] }, Date.now());
    await removeOperator(pool, ref, { fixed: [] }, Date.now());
    await expect
      .poll(async () => (await api.ask('GET', `/c/art${LOG}`, { as: bob })).status, { timeout: 100_000 })
      .toBe(403);
  });
});

/** A raw request that fetch would not send. */
function rawRequest(lines: string[]): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = connectSocket(relay.node.port, '127.0.0.1', () =>
      socket.write(`${lines.join('\r\n')}\r\n\r\n`),
    );
    let text = '';
    socket.on('data', (data) => {
      text += data;
    });
    socket.setTimeout(5_000, () => socket.destroy());
    socket.on('error', reject);
    socket.on('close', () => resolve(text));
  });
}
