/** Blocks by operators, over real HTTP and real sockets, on two instances. */

import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import WebSocket from 'ws';
import { addCommunity, writeSetting } from '../../src/communities/communities.sql.js';
import { runCli } from '../support/cli.js';
import {
  type Api,
  type Asking,
  authorization,
  codesOf,
  createApi,
  credential,
  readOpenApi,
} from '../support/clients/api.js';
import { RawClient } from '../support/clients/client.js';
import { type Author, newAuthor, sign } from '../support/events.js';
import { startTestNode, type TestNode } from '../support/node.js';

const AUTHORS = '/v1/admin/blocks/authors';
const WORDS = '/v1/admin/blocks/words';
const ADDRESSES = '/v1/admin/blocks/addresses';
const root = newAuthor();
const artist = newAuthor();

let first: TestNode;
let second: TestNode;
let api: Api;
const clients: RawClient[] = [];
beforeAll(async () => {
  const env = { MINATO_ADMIN_PUBKEYS: root.pubkey };
  first = await startTestNode({ env });
  second = await startTestNode({ env, on: first.test });
  api = createApi(first.http);
  const { pool } = first.database;
  const art = await addCommunity(pool, 'art', undefined, Date.now());
  await writeSetting(pool, art, 'topic.mode', 'open', Date.now());
  await vi.waitUntil(
    () => both().every((node) => community('art', node)?.settings['topic.mode'] === 'open'),
    {
      timeout: 100_000,
    },
  );
  expect((await api.ask('PUT', `/c/art/v1/admin/operators/${artist.pubkey}`, { as: root })).status).toBe(200);
  await vi.waitUntil(() => community('art').operators.has(artist.pubkey), { timeout: 100_000 });
});
afterEach(async () => {
  await Promise.all(clients.splice(0).map((client) => (client.closed ? undefined : client.close())));
});
afterAll(async () => {
  await second.close();
  await first.close();
});

const both = () => [first, second];
const community = (slug?: string, node = first) => node.node.communities.find(undefined, slug)!;

type Row = Record<string, unknown>;
interface Listed {
  readonly items: Row[];
  readonly next_cursor: string | null;
}
async function done<T = Row>(method: string, path: string, body?: unknown, as: Author = root): Promise<T> {
  const answer = await api.ask<T>(method, path, { as, ...(body === undefined ? {} : { body }) });
  expect({ status: answer.status, body: answer.body }).toEqual({
    status: method === 'POST' ? 201 : 200,
    body: expect.anything(),
  });
  return answer.body;
}
const lastAudit = async (prefix = '') =>
  (await done<Listed>('GET', `${prefix}/v1/admin/audit-log?limit=1`)).items[0]!;

async function connect(node: TestNode, address?: string, path = ''): Promise<RawClient> {
  const headers: Record<string, string> = address === undefined ? {} : { 'x-forwarded-for': address };
  const client = await RawClient.connect(node.url + path, headers);
  clients.push(client);
  return client;
}
/** The HTTP status of an upgrade. */
function upgrade(node: TestNode, address: string, path = ''): Promise<number> {
  return new Promise((resolve, reject) => {
    const ws = new WebSocket(node.url + path, { headers: { 'x-forwarded-for': address } });
    ws.once('unexpected-response', (_request, response) => resolve(response.statusCode ?? 0));
    ws.once('open', () => {
      ws.close();
      resolve(101);
    });
    ws.on('error', reject);
  });
}
/** Waits until an event of this kind gets that answer on both instances; publishes a new event each time. */
async function everywhere(answer: [boolean, string], event: () => { id: string }, path = ''): Promise<void> {
  for (const node of both()) {
    const client = await connect(node, undefined, path);
    await expect.poll(() => client.publish(event()), { timeout: 100_000 }).toEqual(answer);
  }
}

const AUTHOR_BLOCKED: [boolean, string] = [false, 'blocked: this author is blocked'];
const WORD_BLOCKED: [boolean, string] = [false, 'blocked: the content has a word that is blocked here'];
const TAKEN: [boolean, string] = [true, ''];
let posts = 0;
const post =
  (author: Author, content = 'hello') =>
  () =>
    sign(author, { content: `${content} ${++posts}` });

describe('a blocked author', () => {
  it('is refused on both instances, until unblocked; others and other communities are not', async () => {
    const mallory = newAuthor();
    const path = `${AUTHORS}/${mallory.pubkey}`;
    await everywhere(TAKEN, post(mallory));
    const blocked = await done('PUT', path, { reason: 'floods' });
    expect(blocked).toEqual({ pubkey: mallory.pubkey, reason: 'floods', created_at: expect.any(Number) });
    expect(await lastAudit()).toMatchObject({
      actor: root.pubkey,
      action: 'author.block',
      target: mallory.pubkey,
      details: { reason: 'floods' },
    });
    await everywhere(AUTHOR_BLOCKED, post(mallory));
    const client = await connect(second);
    expect(await client.publish(post(newAuthor())())).toEqual(TAKEN);
    expect(await (await connect(second, undefined, '/c/art')).publish(post(mallory)())).toEqual(TAKEN);
    const tags = [['relay', second.url]];
    expect(await client.publish(sign(mallory, { kind: 62, tags, created_at: 1 }))).toEqual(TAKEN);
    const { items } = await done<Listed>('GET', AUTHORS);
    expect(items).toEqual([blocked]);
    expect(await done('DELETE', path)).toEqual(blocked);
    expect(await lastAudit()).toMatchObject({ action: 'author.unblock', target: mallory.pubkey });
    await everywhere(TAKEN, post(mallory));
    await api.refused(404, 'NOT_FOUND', 'DELETE', path, { as: root });
  });

  it('keeps its reason or gets another; blocking it twice changes nothing', async () => {
    const path = `${AUTHORS}/${newAuthor().pubkey}`;
    const blocked = await done('PUT', path, { reason: 'a' });
    const before = await lastAudit();
    expect(await done('PUT', path, {})).toEqual(blocked);
    expect(await done('PUT', path, { reason: 'a' })).toEqual(blocked);
    expect(await lastAudit()).toEqual(before);
    expect(await done('PUT', path, { reason: 'b' })).toEqual({ ...blocked, reason: 'b' });
    await done('DELETE', path);
  });

  it('cannot be an operator of the node, nor an invalid key', async () => {
    await api.refused(409, 'FIXED_OPERATOR', 'PUT', `${AUTHORS}/${root.pubkey}`, { as: root, body: {} });
    await api.refused(400, 'INVALID_REQUEST', 'PUT', `${AUTHORS}/x`, { as: root, body: {} });
    await api.refused(400, 'INVALID_REQUEST', 'PUT', `${AUTHORS}/${newAuthor().pubkey}`, {
      as: root,
      body: { reason: 'a\u0000b' },
    });
  });
});

describe('a blocked word', () => {
  it.each([
    ['spam', 'Buy S\u200bPAM now'],
    ['迷惑', 'これは迷惑です'],
    ['💩', 'a💩b'],
  ])('%s is refused in contents on both instances, until unblocked', async (word, content) => {
    const author = newAuthor();
    const blocked = await done('POST', WORDS, { word: ` ${word.toUpperCase()} `, reason: 'rude' });
    expect(blocked).toEqual({ word, reason: 'rude', created_at: expect.any(Number) });
    expect(await lastAudit()).toMatchObject({ action: 'word.block', target: word });
    await everywhere(WORD_BLOCKED, post(author, content));
    const client = await connect(first);
    expect(await client.publish(post(author, 'all is well')())).toEqual(TAKEN);
    expect(await client.publish(sign(author, { kind: 4, content }))).toEqual(TAKEN);
    expect(await client.publish(sign(author, { tags: [['subject', content]] }))).toEqual(WORD_BLOCKED);
    expect(await client.publish(sign(author, { tags: [['r', content]] }))).toEqual(TAKEN);
    expect(await (await connect(second, undefined, '/c/art')).publish(post(author, content)())).toEqual(
      TAKEN,
    );
    expect(await done<Listed>('GET', WORDS)).toEqual({ items: [blocked], next_cursor: null });
    expect(await done('DELETE', `${WORDS}?word=${encodeURIComponent(word)}`)).toEqual(blocked);
    expect(await lastAudit()).toMatchObject({ action: 'word.unblock', target: word });
    await everywhere(TAKEN, post(author, content));
  });

  it('is checked after the signature: unsigned content is never searched', async () => {
    await done('POST', WORDS, { word: 'unsigned' });
    await everywhere(WORD_BLOCKED, post(newAuthor(), 'unsigned'));
    const client = await connect(first);
    const event = sign(newAuthor(), { content: 'unsigned' });
    const forged = { ...event, sig: sign(newAuthor(), { content: 'another' }).sig };
    expect(await client.publish(forged)).toEqual([false, 'invalid: signature verification failed']);
    expect(await client.publish({ ...event, id: 'a'.repeat(64) })).toEqual([
      false,
      'invalid: id is not the hash of the event',
    ]);
    expect(await client.publish(event)).toEqual(WORD_BLOCKED);
    await done('DELETE', `${WORDS}?word=unsigned`);
  });

  it('must have a visible character', async () => {
    for (const word of ['', ' ', '\u200b', 'x'.repeat(101), 'a\u0000b'])
      await api.refused(400, 'INVALID_REQUEST', 'POST', WORDS, { as: root, body: { word } });
    await api.refused(400, 'INVALID_REQUEST', 'POST', WORDS, { as: root, body: {} });
    await api.refused(400, 'INVALID_REQUEST', 'DELETE', WORDS, { as: root });
    await api.refused(404, 'NOT_FOUND', 'DELETE', `${WORDS}?word=unknown`, { as: root });
  });

  it('is one of at most 1,000, all of which are effective', async () => {
    const { pool } = first.database;
    const { id } = community('art');
    await pool.query(
      `INSERT INTO blocked_words (community, word, created_at)
       SELECT $1, 'word' || n, 0 FROM generate_series(1, 999) n`,
      [id],
    );
    const path = `/c/art${WORDS}`;
    await done('POST', path, { word: 'last' });
    const { body } = await api.refused(409, 'BLOCK_LIMIT_REACHED', 'POST', path, {
      as: root,
      body: { word: 'more' },
    });
    expect(body.details).toEqual({ limit: 1_000 });
    expect(await done('POST', path, { word: 'last', reason: 'known already' })).toMatchObject({
      word: 'last',
    });
    for (const word of ['word1', 'word999', 'last'])
      await everywhere(WORD_BLOCKED, post(newAuthor(), `so ${word}!`), '/c/art');
    const seen: unknown[] = [];
    for (let cursor = ''; ; ) {
      const page = await done<Listed>('GET', `${path}?limit=200${cursor}`);
      seen.push(...page.items.map(({ word }) => word));
      if (page.next_cursor === null) break;
      cursor = `&cursor=${encodeURIComponent(page.next_cursor)}`;
    }
    expect(new Set(seen).size).toBe(1_000);
    expect(seen).toHaveLength(1_000);
    await pool.query('DELETE FROM blocked_words');
    await done('POST', path, { word: 'fresh' });
    await everywhere(TAKEN, post(newAuthor(), 'so word1!'), '/c/art');
  });
});

describe('a blocked address', () => {
  it('is never the address of the operator who blocks it', async () => {
    const headers = { 'x-forwarded-for': '198.51.100.20' };
    const ask = (network: string) =>
      api.refused(409, 'OWN_ADDRESS', 'POST', ADDRESSES, { as: root, body: { network }, headers });
    for (const network of ['198.51.100.20', '198.51.100.0/24']) await ask(network);
    expect(await done<Listed>('GET', ADDRESSES)).toEqual({ items: [], next_cursor: null });
  });

  const blockedFor = async (node: TestNode, address: string) => (await upgrade(node, address)) === 403;

  it.each([
    ['203.0.113.7', '203.0.113.7/32', ['203.0.113.7', '::ffff:203.0.113.7'], ['203.0.113.8']],
    ['198.51.100.77/24', '198.51.100.0/24', ['198.51.100.0', '198.51.100.255'], ['198.51.101.0']],
    [
      '2001:DB8:5::/48',
      '2001:db8:5::/48',
      ['2001:db8:5::1', '2001:db8:5:ffff::'],
      ['2001:db8:6::1', '203.0.113.9'],
    ],
  ])('%s is refused on both instances, and others are not', async (given, network, inside, outside) => {
    const open = await Promise.all(both().map((node) => connect(node, inside[0])));
    const stays = await connect(first, outside[0]);
    const blocked = await done('POST', ADDRESSES, { network: given, reason: 'a flood' });
    expect(blocked).toEqual({ network, reason: 'a flood', created_at: expect.any(Number) });
    expect(await lastAudit()).toMatchObject({ action: 'address.block', target: network });
    for (const client of open) {
      await client.until(() => client.closed !== undefined);
      expect(client.closed).toEqual({ code: 1_008, reason: expect.stringMatching(/^blocked: /) });
    }
    for (const node of both()) {
      for (const address of inside) await expect.poll(() => blockedFor(node, address)).toBe(true);
      for (const address of outside) expect(await upgrade(node, address)).toBe(101);
      expect(await upgrade(node, inside[0]!, '/c/art')).toBe(101);
    }
    expect(stays.closed).toBeUndefined();
    expect(await done<Listed>('GET', ADDRESSES)).toEqual({ items: [blocked], next_cursor: null });
    expect(await done('DELETE', `${ADDRESSES}?network=${encodeURIComponent(given)}`)).toEqual(blocked);
    expect(await lastAudit()).toMatchObject({ action: 'address.unblock', target: network });
    for (const node of both())
      await expect.poll(() => upgrade(node, inside[0]!), { timeout: 100_000 }).toBe(101);
  });

  it('gets 403 from every route before its signature is checked; this machine never does', async () => {
    const address = '203.0.113.50';
    const headers = { 'x-forwarded-for': address };
    await done('POST', ADDRESSES, { network: address });
    await expect.poll(() => blockedFor(first, address), { timeout: 100_000 }).toBe(true);
    const asking: Asking = { headers };
    for (const [method, path] of [
      ['GET', '/v1/topics'],
      ['GET', '/v1/reports'],
      ['POST', '/v1/reports'],
      ['GET', AUTHORS],
    ] as const) {
      await api.refused(403, 'ADDRESS_BLOCKED', method, path, asking);
      expect((await api.ask(method, path)).status).not.toBe(403);
    }
    await api.refused(403, 'ADDRESS_BLOCKED', 'GET', ADDRESSES, { as: root, headers });
    for (const path of ['/', '/stats', '/v1/nowhere'])
      expect((await fetch(first.http + path, { headers })).status, path).toBe(403);
    for (const path of ['/c/art', '/c/art/stats'])
      expect((await fetch(first.http + path, { headers })).status, path).toBe(200);
    expect((await fetch(`${first.http}/`)).status).toBe(200);
    await done('DELETE', `${ADDRESSES}?network=${address}`);
  });

  it('is never this machine', async () => {
    for (const network of ['127.0.0.1', '127.0.0.0/8', '::1', '0.0.0.0/0', '::/0', '::ffff:127.0.0.1']) {
      const { body } = await api.refused(400, 'INVALID_REQUEST', 'POST', ADDRESSES, {
        as: root,
        body: { network },
      });
      expect(body.details).toEqual({
        problems: [{ path: 'body/network', message: expect.stringMatching(/this machine itself/) }],
      });
    }
    for (const network of ['', 'example.org', '10.0.0.0/33', '1.2.3'])
      await api.refused(400, 'INVALID_REQUEST', 'POST', ADDRESSES, { as: root, body: { network } });
    await api.refused(400, 'INVALID_REQUEST', 'DELETE', `${ADDRESSES}?network=x`, { as: root });
    await api.refused(404, 'NOT_FOUND', 'DELETE', `${ADDRESSES}?network=192.0.2.1`, { as: root });
  });
});

describe('every route of blocks', () => {
  const key = newAuthor().pubkey;
  const routes: [string, string, Asking][] = [
    ['GET', AUTHORS, {}],
    ['PUT', `${AUTHORS}/${key}`, { body: {} }],
    ['DELETE', `${AUTHORS}/${key}`, {}],
    ['GET', WORDS, {}],
    ['POST', WORDS, { body: { word: 'x' } }],
    ['DELETE', `${WORDS}?word=x`, {}],
    ['GET', ADDRESSES, {}],
    ['POST', ADDRESSES, { body: { network: '192.0.2.9' } }],
    ['DELETE', `${ADDRESSES}?network=192.0.2.9`, {}],
  ];

  it('is only for operators of this community, with a signature for it that is used once', async () => {
    for (const [method, path, asking] of routes) {
      await api.refused(401, 'AUTH_REQUIRED', method, path, asking);
      for (const as of [newAuthor(), artist])
        await api.refused(403, 'OPERATORS_ONLY', method, path, { as, ...asking });
      const url = first.http + path;
      const header = () => ({ authorization: authorization(credential(root, { method, url, ...asking })) });
      await api.refused(401, 'INVALID_AUTH', method, `/c/art${path}`, { ...asking, headers: header() });
      const once = { ...asking, headers: header() };
      expect((await api.ask(method, path, once)).status).toBeLessThan(300);
      await api.refused(401, 'REPLAYED_AUTH', method, path, once);
    }
    const path = `${AUTHORS}/${key}`;
    await done('PUT', `/c/art${path}`, {}, artist);
    await api.refused(404, 'NOT_FOUND', 'DELETE', path, { as: root });
    expect(await lastAudit('/c/art')).toMatchObject({ actor: artist.pubkey, action: 'author.block' });
  });

  it('that is a list refuses an invalid limit or cursor', async () => {
    for (const path of [AUTHORS, WORDS, ADDRESSES])
      for (const query of ['limit=0', 'cursor=x', 'order=up'])
        await api.refused(400, 'INVALID_REQUEST', 'GET', `${path}?${query}`, { as: root });
  });

  it('and every other route documents ADDRESS_BLOCKED', async () => {
    const { paths } = await readOpenApi(first.http);
    for (const methods of Object.values(paths))
      for (const operation of Object.values(methods))
        expect(codesOf(operation, 403)).toContain('ADDRESS_BLOCKED');
  });
});

describe('minato blocks', () => {
  const minato = (...args: string[]) =>
    runCli(['blocks', ...args], { DATABASE_URL: first.test.url, MINATO_ADMIN_PUBKEYS: root.pubkey });

  it('adds, lists and removes each kind, with audit rows and effect', async () => {
    const mallory = newAuthor();
    const values = [
      ['author', mallory.pubkey, mallory.pubkey],
      ['word', 'Free  Money', 'free money'],
      ['address', '192.0.2.5/24', '192.0.2.0/24'],
    ] as const;
    for (const [kind, given, kept] of values) {
      const added = await minato('add', kind, given, '--reason', 'as agreed');
      expect(added).toMatchObject({ code: 0, stderr: '' });
      expect(added.stdout).toMatch(new RegExp(`^${kind} +${kept}  since \\S+Z  "as agreed"\n$`));
      expect(await lastAudit()).toMatchObject({ actor: null, action: `${kind}.block`, target: kept });
    }
    await everywhere(AUTHOR_BLOCKED, post(mallory));
    await everywhere(WORD_BLOCKED, post(newAuthor(), 'free money'));
    const { stdout } = await minato();
    for (const [kind, , kept] of values) expect(stdout).toContain(`${kind.padEnd(7)}  ${kept}  since`);
    for (const [kind, given, kept] of values) {
      expect(await minato('remove', kind, given)).toEqual({
        code: 0,
        stdout: `${kind} ${kept} is no longer blocked\n`,
        stderr: '',
      });
      expect(await minato('remove', kind, given)).toMatchObject({
        code: 1,
        stderr: expect.stringMatching(/^minato: /),
      });
    }
    expect((await minato('list')).stdout).toBe(
      'no author is blocked\nno word is blocked\nno address is blocked\n',
    );
  });

  it('refuses an invalid value with a sentence', async () => {
    const refused = [
      ['author', 'x'],
      ['author', root.pubkey],
      ['word', ' '],
      ['address', '127.0.0.1'],
      ['address', 'x'],
      ['topic', 'x'],
    ];
    for (const { code, stderr } of await Promise.all(refused.map((args) => minato('add', ...args)))) {
      expect(code).toBe(1);
      expect(stderr).toMatch(/^(minato|error): .*\n/);
      expect(stderr).not.toMatch(/\n\s+at /);
    }
  });

  it('does not block an import by the operator', async () => {
    const mallory = newAuthor();
    await minato('add', 'author', mallory.pubkey);
    await minato('add', 'word', 'rum');
    const event = sign(mallory, { content: 'rum' });
    const env = { DATABASE_URL: first.test.url };
    expect((await runCli(['import'], env, `${JSON.stringify(event)}\n`)).code).toBe(0);
    const client = await connect(first);
    expect((await client.query({ ids: [event.id] })).events).toEqual([event]);
  });
});
