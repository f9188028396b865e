/** Relay management (NIP-86) at the relay's own address, over real HTTP: every method, for operators only. */
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { isDenial } from '../../src/api/rules-errors.js';
import { type AuditEntry, listAudit } from '../../src/audit/audit.sql.js';
import { addCommunity } from '../../src/communities/communities.sql.js';
import { addOperator } from '../../src/members/operators.sql.js';
import { authorization, credential } from '../support/clients/api.js';
import { RawClient } from '../support/clients/client.js';
import { type Author, type Draft, newAuthor, sign } from '../support/events.js';
import { startTestNode, type TestNode } from '../support/node.js';

const TYPE = 'application/nostr+json+rpc';
const METHODS = [
  'banpubkey',
  'unbanpubkey',
  'listbannedpubkeys',
  'changerelayname',
  'changerelaydescription',
  'changerelayicon',
  'blockip',
  'unblockip',
  'listblockedips',
];
const root = newAuthor();
const artist = newAuthor();

let relay: TestNode;
let home: number;
let art: number;
beforeAll(async () => {
  relay = await startTestNode({ env: { MINATO_ADMIN_PUBKEYS: root.pubkey } });
  const { pool } = relay.database;
  home = community().id;
  art = await addCommunity(pool, 'art', undefined, Date.now());
  await addOperator(pool, { community: art, pubkey: artist.pubkey }, { fixed: [] }, Date.now());
  await vi.waitUntil(() => relay.node.communities.get(art)?.operators.has(artist.pubkey), {
    timeout: 100_000,
  });
});
afterAll(() => relay.close());

const community = (slug?: string) => relay.node.communities.find(undefined, slug)!;

interface Answer {
  readonly result?: unknown;
  readonly error?: string;
}
interface Sending {
  readonly as?: Author;
  readonly path?: string;
  readonly body?: unknown;
  readonly url?: string;
  readonly draft?: Draft;
  readonly headers?: Record<string, string>;
}
async function post({ as, path = '', body, url = relay.http + path, draft, headers = {} }: Sending) {
  const text = typeof body === 'string' ? body : JSON.stringify(body);
  const signed = as && authorization(credential(as, { method: 'POST', url, body: text }, draft));
  const response = await fetch(relay.http + path, {
    method: 'POST',
    headers: { 'content-type': TYPE, ...(signed ? { authorization: signed } : {}), ...headers },
    body: text,
  });
  return { status: response.status, headers: response.headers, body: (await response.json()) as Answer };
}

async function call(method: string, params: unknown[] = [], sending: Sending = {}): Promise<Answer> {
  const { status, body } = await post({ as: root, body: { method, params }, ...sending });
  expect(status).toBe(200);
  return body;
}
async function audit(of = home): Promise<AuditEntry> {
  const page = await listAudit(relay.database.pool, of, { limit: 1 });
  if (isDenial(page)) throw new Error(page.denied);
  return page.items[0]!;
}

describe('a body that is nested too deeply', () => {
  it('gets an error that says so', async () => {
    for (const depth of [70, 3_000, 20_000]) {
      const deep = '['.repeat(depth) + ']'.repeat(depth);
      for (const body of [deep, `{"method":"banpubkey","params":${deep}}`]) {
        const answer = await post({ as: root, body });
        expect(answer).toMatchObject({
          status: 200,
          body: { error: 'the body is nested more than 64 levels deep' },
        });
      }
    }
  });
});

describe('each method', () => {
  it('is listed by supportedmethods', async () => {
    expect(await call('supportedmethods')).toEqual({ result: METHODS });
    const { body } = await post({ as: root, body: { method: 'supportedmethods' } });
    expect(body).toEqual({ result: METHODS });
  });

  it('that bans or unbans a key blocks or unblocks the author', async () => {
    const mallory = newAuthor();
    expect(await call('banpubkey', [mallory.pubkey, 'floods'])).toEqual({ result: true });
    expect(await audit()).toMatchObject({
      actor: root.pubkey,
      action: 'author.block',
      target: mallory.pubkey,
      details: { reason: 'floods' },
    });
    const other = newAuthor().pubkey;
    expect(await call('banpubkey', [other])).toEqual({ result: true });
    const banned = [{ pubkey: mallory.pubkey, reason: 'floods' }, { pubkey: other }];
    const listed = (await call('listbannedpubkeys')).result as { pubkey: string }[];
    expect(listed).toEqual(expect.arrayContaining(banned));
    expect(listed).toHaveLength(2);
    const client = await RawClient.connect(relay.url);
    const answers = () => client.publish(sign(mallory, { content: `${Math.random()}` }));
    await expect.poll(answers, { timeout: 100_000 }).toEqual([false, 'blocked: this author is blocked']);
    expect(await call('unbanpubkey', [mallory.pubkey, 'was a mistake'])).toEqual({ result: true });
    expect(await audit()).toMatchObject({ action: 'author.unblock', target: mallory.pubkey });
    await expect.poll(answers, { timeout: 100_000 }).toEqual([true, '']);
    expect(await call('unbanpubkey', [mallory.pubkey])).toEqual({ result: true });
    expect(await call('listbannedpubkeys')).toEqual({ result: [{ pubkey: other }] });
    expect((await call('banpubkey', [root.pubkey])).error).toMatch(/MINATO_ADMIN_PUBKEYS/);
    await client.close();
  });

  it('that blocks or unblocks an address changes the blocks', async () => {
    expect(await call('blockip', ['203.0.113.9', 'a flood'])).toEqual({ result: true });
    expect(await audit()).toMatchObject({ action: 'address.block', target: '203.0.113.9/32' });
    expect(await call('blockip', ['2001:db8::/32'])).toEqual({ result: true });
    expect(await call('listblockedips')).toEqual({
      result: [{ ip: '2001:db8::/32' }, { ip: '203.0.113.9', reason: 'a flood' }],
    });
    const headers = { 'x-forwarded-for': '203.0.113.9' };
    await expect
      .poll(async () => (await post({ as: root, body: { method: 'supportedmethods' }, headers })).status, {
        timeout: 100_000,
      })
      .toBe(403);
    expect(await call('unblockip', ['203.0.113.9'])).toEqual({ result: true });
    expect(await audit()).toMatchObject({ action: 'address.unblock', target: '203.0.113.9/32' });
    expect(await call('unblockip', ['203.0.113.9'])).toEqual({ result: true });
    expect((await call('blockip', ['127.0.0.1'])).error).toMatch(/this machine itself/);
  });

  it.each([
    ['changerelayname', 'relay.name', 'Our harbour'],
    ['changerelaydescription', 'relay.description', '港のリレー'],
    ['changerelayicon', 'relay.icon', 'https://example.org/icon.png'],
  ] as const)('%s changes what NIP-11 says', async (method, key, value) => {
    expect(await call(method, [value])).toEqual({ result: true });
    expect(await audit()).toMatchObject({ actor: root.pubkey, action: 'setting.change', target: key });
    await expect.poll(() => community().settings[key], { timeout: 100_000 }).toBe(value);
    const response = await fetch(relay.http, { headers: { accept: 'application/nostr+json' } });
    expect(Object.values((await response.json()) as object)).toContain(value);
    expect(await call(method, ['x'.repeat(4_001)])).toEqual({ error: expect.stringContaining(key) });
  });

  it('says what is wrong with a call, and changes nothing', async () => {
    const before = await audit();
    for (const [method, params] of [
      ['banpubkey', []],
      ['banpubkey', ['x']],
      ['banpubkey', [newAuthor().pubkey.toUpperCase()]],
      ['banpubkey', [newAuthor().pubkey, 7]],
      ['banpubkey', [newAuthor().pubkey, 'a\u0000b']],
      ['unbanpubkey', [7]],
      ['blockip', ['example.org']],
      ['blockip', [null]],
      ['unblockip', []],
      ['changerelayname', [7]],
      ['changerelayname', []],
      ['allowpubkey', [newAuthor().pubkey]],
      ['banevent', ['0'.repeat(64)]],
      ['toString', []],
      ['', []],
    ] as [string, unknown[]][])
      expect(await call(method, params), method).toEqual({ error: expect.stringMatching(/\w+/) });
    for (const body of [
      '',
      'x',
      '[]',
      '{}',
      '{"method":1}',
      '{"method":"blockip","params":{}}',
      '{"params":[]}',
    ]) {
      const answer = await post({ as: root, body });
      expect(answer, body).toMatchObject({ status: 200, body: { error: expect.any(String) } });
    }
    expect(await audit()).toEqual(before);
  });
});

describe('a caller', () => {
  const body = { method: 'changerelayname', params: ['Taken over'] };

  it.each([
    ['without a signature', () => post({ body })],
    ['with an invalid header', () => post({ body, headers: { authorization: 'Nostr x' } })],
    ['with a token', () => post({ body, headers: { authorization: 'Bearer x' } })],
    [
      'who signed for another body',
      async () => post({ body, headers: await signedFor({ body: { method: 'x' } }) }),
    ],
    [
      'who signed without the payload',
      async () => post({ body, headers: await signedFor({ body: undefined }) }),
    ],
    [
      'who signed for another method',
      async () => post({ body, headers: await signedFor({ method: 'GET' }) }),
    ],
    ['who signed long ago', () => post({ as: root, body, draft: { created_at: 1_000 } })],
    ['who signed for another community', () => post({ as: root, body, url: `${relay.http}/c/art` })],
    ['who signed for the API', () => post({ as: root, body, url: `${relay.http}/v1/admin/settings` })],
  ])('%s gets 401', async (_, send) => {
    const answer = await send();
    expect(answer).toMatchObject({ status: 401, body: { error: expect.any(String) } });
    expect(answer.headers.get('www-authenticate')).toBe('Nostr');
  });
  async function signedFor(change: { method?: string; body?: unknown }): Promise<Record<string, string>> {
    const event = credential(root, { method: 'POST', url: relay.http, body, ...change });
    return { authorization: authorization(event) };
  }

  it('one signature is good for one call', async () => {
    const listing = { method: 'listblockedips', params: [] };
    const text = JSON.stringify(listing);
    const event = credential(root, { method: 'POST', url: `${relay.http}/`, body: text });
    const headers = { authorization: authorization(event) };
    expect(await post({ body: listing, headers })).toMatchObject({ status: 200 });
    expect(await post({ body: listing, headers })).toMatchObject({
      status: 401,
      body: { error: expect.stringMatching(/used before/) },
    });
  });

  it('a stranger, or an operator of another community, gets 403', async () => {
    for (const as of [newAuthor(), artist])
      expect(await post({ as, body })).toMatchObject({ status: 403, body: { error: expect.any(String) } });
  });

  it('an operator of one community manages that community', async () => {
    const sending = { as: artist, path: '/c/art' };
    expect(await call('changerelayname', ['Art'], sending)).toEqual({ result: true });
    expect(await audit(art)).toMatchObject({ actor: artist.pubkey, target: 'relay.name' });
    await expect.poll(() => community('art').settings['relay.name'], { timeout: 100_000 }).toBe('Art');
    expect(community().settings['relay.name']).not.toBe('Art');
    const key = newAuthor().pubkey;
    expect(await call('banpubkey', [key], sending)).toEqual({ result: true });
    expect((await call('listbannedpubkeys', [], { path: '/c/art' })).result).toEqual([{ pubkey: key }]);
    expect(JSON.stringify(await call('listbannedpubkeys'))).not.toContain(key);
    expect(await post({ as: root, path: '/c/none', body })).toMatchObject({ status: 404 });
  });

  it('may sign for the address of the websocket', async () => {
    expect(await call('listblockedips', [], { url: `${relay.url}/` })).toMatchObject({
      result: expect.any(Array),
    });
  });

  it('sends the content type of NIP-86, and not too much', async () => {
    const headers = { 'content-type': 'application/json' };
    expect(await post({ as: root, body, headers })).toMatchObject({ status: 415 });
    expect(await post({ as: root, body: 'x'.repeat(70_000) })).toMatchObject({ status: 413 });
  });

  it('may be a web page', async () => {
    const preflight = await fetch(relay.http, {
      method: 'OPTIONS',
      headers: { origin: 'https://tool.example', 'access-control-request-method': 'POST' },
    });
    expect(preflight.headers.get('access-control-allow-methods')).toContain('POST');
    expect(preflight.headers.get('access-control-allow-headers')).toContain('authorization');
    const { headers } = await post({ as: root, body: { method: 'supportedmethods' } });
    expect(headers.get('access-control-allow-origin')).toBe('*');
  });
});
