/**
 * Requests of members about their own data, over HTTP: the file has everything about the member, nothing
 * about anybody else, and expires.
 */
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { addCommunity, writeSetting } from '../../src/communities/communities.sql.js';
import { BOUNDS } from '../../src/jobs/job.js';
import { runJob } from '../../src/jobs/run.js';
import { changeMember } from '../../src/members/members.sql.js';
import { exportPersonalData } from '../../src/personal-data/jobs.js';
import { findPerson, inSnapshot } from '../../src/personal-data/personal-data.sql.js';
import { PERSONAL_STORES } from '../../src/personal-data/registry.js';
import { eventually } from '../support/cli.js';
import { type Api, authorization, createApi, credential } from '../support/clients/api.js';
import { RawClient } from '../support/clients/client.js';
import { readZip, rowsOf } from '../support/clients/zip.js';
import { fillEveryStore } from '../support/domains/person.js';
import { type Author, newAuthor, sign } from '../support/events.js';
import { startTestNode, type TestNode } from '../support/node.js';

const EXPORTS = '/v1/personal-data-export-requests';
const DELETIONS = '/v1/personal-data-deletion-requests';
const ADMIN = '/v1/admin/personal-data-requests';
const WAIT = { timeout: 40_000, interval: 50 };

let relay: TestNode;
let other: TestNode;
let api: Api;
const boss = newAuthor();
/** The clock of both instances. */
let aheadMs = 0;
const now = () => Date.now() + aheadMs;

beforeAll(async () => {
  const env = { MINATO_ADMIN_PUBKEYS: boss.pubkey };
  relay = await startTestNode({ env, now, jobs: [exportPersonalData] });
  other = await startTestNode({ env, now, jobs: [exportPersonalData], on: relay.test });
  api = createApi(relay.http);
  const art = await addCommunity(relay.database.pool, 'art', undefined, Date.now());
  // Deletions stay pending here: test/erasure/api-erasures.test.ts carries them out.
  await writeSetting(relay.database.pool, 1, 'erasure.memberGraceDays', 30, Date.now());
  await writeSetting(relay.database.pool, art, 'topic.mode', 'open', Date.now());
  for (const { node } of [relay, other])
    await vi.waitUntil(
      () => node.communities.find(undefined, 'art')?.settings['topic.mode'] === 'open',
      WAIT,
    );
});
afterAll(async () => {
  await other.close();
  await relay.close();
});

interface Request {
  request_id: string;
  status: string;
  error: string | null;
  bytes: number | null;
  expires_at: number | null;
  download_url: string | null;
  [field: string]: unknown;
}

const communityOf = (slug: string) => relay.node.communities.find(undefined, slug)!.id;

async function ask(as: Author, prefix = '', url = EXPORTS): Promise<Request> {
  const { status, body } = await api.ask<Request>('POST', prefix + url, { as });
  expect(status).toBe(202);
  return body;
}

async function read(as: Author, { request_id }: Request, prefix = '', through = api): Promise<Request> {
  return (await through.ask<Request>('GET', `${prefix}${EXPORTS}/${request_id}`, { as })).body;
}

async function untilStatus(as: Author, request: Request, status: string, prefix = ''): Promise<Request> {
  return eventually(`the request is ${status}`, async () => {
    const current = await read(as, request, prefix);
    return current.status === status ? current : undefined;
  });
}

async function exported(as: Author, prefix = ''): Promise<Request> {
  return untilStatus(as, await ask(as, prefix), 'ready', prefix);
}

async function download(url: string): Promise<Buffer> {
  const response = await fetch(url);
  expect(response.status).toBe(200);
  return Buffer.from(await response.arrayBuffer());
}

async function runExports(): Promise<void> {
  const { store, communities, erasing } = relay.node;
  const { signal } = new AbortController();
  const context = { database: relay.database, store, communities, erasing, now, signal, bounds: BOUNDS };
  await expect.poll(() => runJob(exportPersonalData, context), WAIT).not.toBe('busy');
}

const portionsOf = async ({ request_id }: Request) =>
  (
    await relay.database.pool.query('SELECT position FROM personal_data_files WHERE request_id = $1', [
      request_id,
    ])
  ).rowCount;

/** A request in the state that the worker would leave, without the worker. */
async function insertRequest(as: Author, status: string, kind: 'export' | 'deletion', megabytes = 0) {
  const { pool } = relay.database;
  const id = randomUUID();
  const key = Buffer.from(as.pubkey, 'hex');
  await pool.query(
    `INSERT INTO members (community, pubkey, created_at, updated_at) VALUES (1, $1, 1, 1)
     ON CONFLICT DO NOTHING`,
    [key],
  );
  await pool.query(
    `INSERT INTO personal_data_requests
       (request_id, community, pubkey, kind, status, bytes, created_at, expires_at)
     VALUES ($1, 1, $2, $3, $4, $5, $6, $7)`,
    [id, key, kind, status, megabytes * 1_048_576, now(), status === 'ready' ? now() + 3_600_000 : null],
  );
  await pool.query(
    `INSERT INTO personal_data_files
     SELECT $1, p, convert_to(repeat('x', 1048576), 'UTF8') FROM generate_series(0, $2 - 1) p`,
    [id, megabytes],
  );
  return id;
}

describe('the file of an export', () => {
  const [alice, bob] = [newAuthor(), newAuthor()];
  let files: Map<string, string>;
  let request: Request;

  beforeAll(async () => {
    const { pool } = relay.database;
    const place = { pool, community: 1, url: relay.url };
    const elsewhere = { pool, community: communityOf('art'), url: `${relay.url}/c/art` };
    await fillEveryStore(place, alice, boss, 'alice-here');
    await fillEveryStore(place, bob, boss, 'bob-here');
    await fillEveryStore(elsewhere, alice, boss, 'alice-in-art');
    // What consumers derive from the events (search documents, trust) is in the file, or comes after it.
    await relay.node.consumers!.drained();
    request = await exported(alice);
    files = await readZip(await download(request.download_url!));
  });

  it('has one file for each store of the registry, a manifest and a README', () => {
    const names = PERSONAL_STORES.map(({ name }) => `${name}.jsonl`);
    expect([...files.keys()].sort()).toEqual([...names, 'README.txt', 'manifest.json'].sort());
    for (const { name, about } of PERSONAL_STORES) {
      expect(files.get('README.txt')).toContain(`${name}.jsonl\n    ${about}`);
    }
  });

  it.each(PERSONAL_STORES.map((store) => [store.name, store] as const))(
    'has all rows of %s, as many as the registry counts and the manifest says',
    async (name, store) => {
      const client = await relay.database.connect();
      const person = await findPerson(client, 1, alice.pubkey);
      const held = await inSnapshot(client, () => store.count(client, person));
      await client.end();
      expect(held).toBeGreaterThan(0);
      expect(rowsOf(files, name)).toHaveLength(held);
      const manifest = JSON.parse(files.get('manifest.json')!) as { files: unknown[] };
      expect(manifest.files).toContainEqual({ file: `${name}.jsonl`, about: store.about, rows: held });
    },
  );

  it('has a manifest with format, version, time, community and key', () => {
    expect(JSON.parse(files.get('manifest.json')!)).toMatchObject({
      format: 'minato-personal-data',
      version: 1,
      made_at: expect.any(Number),
      community: 'default',
      community_name: 'Minato',
      pubkey: alice.pubkey,
    });
  });

  it('has the served events unchanged, and the hidden ones with the reason', () => {
    const events = rowsOf(files, 'events');
    expect(events.map(({ content }) => content).sort()).toEqual([
      'alice-here',
      'alice-here said',
      '{"about":"alice-here new"}',
    ]);
    expect(Object.keys(events[0]!)).toEqual(['id', 'pubkey', 'created_at', 'kind', 'tags', 'content', 'sig']);
    const hidden = rowsOf(files, 'hidden-events') as unknown as {
      hidden: string;
      event: { content: string };
    }[];
    expect(hidden.map((row) => [row.hidden, row.event.content]).sort()).toEqual([
      ['deleted', 'alice-here regretted'],
      ['superseded', '{"about":"alice-here old"}'],
    ]);
    const wraps = rowsOf(files, 'gift-wraps') as unknown as typeof hidden;
    expect(wraps.map((row) => [row.hidden, row.event.content]).sort()).toEqual([
      [null, 'alice-here sealed 1'],
      ['deleted', 'alice-here sealed 2'],
    ]);
  });

  it('has nothing of another member, another community, or the operators who decided', () => {
    const all = [...files.values()].join('\n');
    for (const foreign of ['bob-here', bob.pubkey, 'alice-in-art', boss.pubkey, 'whispered'])
      expect(all, foreign).not.toContain(foreign);
  });

  it('is separate for each community', async () => {
    const inArt = await exported(alice, '/c/art');
    expect(inArt.download_url).toContain('/c/art/v1/personal-data-exports/');
    const theirs = await readZip(await download(inArt.download_url!));
    const all = [...theirs.values()].join('\n');
    expect(all).toContain('alice-in-art said');
    expect(all).not.toContain('alice-here');
    // The file of one community is not found in the other.
    const { pathname, search } = new URL(inArt.download_url!);
    await api.refused(404, 'NOT_FOUND', 'GET', pathname.replace('/c/art', '') + search);
    await api.refused(404, 'NOT_FOUND', 'GET', `${EXPORTS}/${inArt.request_id}`, { as: alice });
  });

  it('comes with its length, its name, and a ban on caching', async () => {
    const response = await fetch(request.download_url!);
    const bytes = Buffer.from(await response.arrayBuffer());
    expect(Object.fromEntries(response.headers)).toMatchObject({
      'content-type': 'application/zip',
      'content-length': String(request.bytes),
      'content-disposition': `attachment; filename="minato-default-${alice.pubkey.slice(0, 16)}.zip"`,
      'cache-control': 'no-store',
    });
    expect(bytes).toHaveLength(request.bytes!);
  });

  it('is served by every instance, whichever made it', async () => {
    const there = await read(alice, request, '', createApi(other.http));
    expect(there.download_url).toContain(`:${other.node.port}/v1/`);
    expect((await download(there.download_url!)).equals(await download(request.download_url!))).toBe(true);
  });

  it('is not found without its token, with that of another file, or by HEAD', async () => {
    const theirs = await exported(newAuthor());
    const { pathname } = new URL(request.download_url!);
    const foreign = new URL(theirs.download_url!).search;
    for (const search of ['?token=x', foreign, `?token=${'A'.repeat(43)}`])
      await api.refused(404, 'NOT_FOUND', 'GET', pathname + search);
    await api.refused(400, 'INVALID_REQUEST', 'GET', pathname);
    await api.refused(404, 'NOT_FOUND', 'GET', pathname.replace(request.request_id, randomUUID()) + foreign);
    expect((await fetch(request.download_url!, { method: 'HEAD' })).status).toBe(404);
  });

  it('is sent to at most four clients at a time; a client that disconnects frees its place', async () => {
    // Larger than all socket buffers: a client that does not read keeps its place.
    const owner = newAuthor();
    const request_id = await insertRequest(owner, 'ready', 'export', 40);
    const { body } = await api.ask<Request>('GET', `${EXPORTS}/${request_id}`, { as: owner });
    const url = body.download_url!;
    const leaving = new AbortController();
    const readers = await Promise.all([1, 2, 3, 4].map(() => fetch(url, { signal: leaving.signal })));
    expect(readers.map(({ status }) => status)).toEqual([200, 200, 200, 200]);
    const { pathname, search } = new URL(url);
    const { headers } = await api.refused(429, 'RATE_LIMITED', 'GET', pathname + search);
    expect(headers.get('retry-after')).toBe('10');
    leaving.abort();
    await expect.poll(async () => (await fetch(url)).status, WAIT).toBe(200);
    expect(await download(url)).toHaveLength(40 * 1_048_576);
  });
});

describe('requesting an export', () => {
  it('gives a pending request, and the same one again while it is open', async () => {
    const member = newAuthor();
    const open = await insertRequest(member, 'failed', 'export');
    const first = await ask(member);
    expect(first).toEqual({
      request_id: expect.stringMatching(/^[0-9a-f-]{36}$/),
      status: 'pending',
      error: null,
      bytes: null,
      created_at: expect.any(Number),
      started_at: null,
      finished_at: null,
      expires_at: null,
      download_url: null,
    });
    expect(first.request_id).not.toBe(open);
    const ready = await untilStatus(member, first, 'ready');
    expect(ready.expires_at! - (ready.finished_at as number)).toBeCloseTo(24 * 3_600_000, -5);
    // After it has ended, a new request is made.
    expect((await ask(member)).request_id).not.toBe(first.request_id);
  });

  it('in concurrent calls makes one request', async () => {
    const member = newAuthor();
    const requested = await Promise.all([1, 2, 3, 4, 5].map(() => ask(member)));
    const { body } = await api.ask<{ items: Request[] }>('GET', EXPORTS, { as: member });
    // The worker may have finished in between, which allows another request.
    expect(body.items.map(({ request_id }) => request_id)).toEqual(
      expect.arrayContaining(requested.map(({ request_id }) => request_id)),
    );
    const open = body.items.filter(({ status }) => status === 'pending' || status === 'running');
    expect(open.length).toBeLessThanOrEqual(1);
  });

  it('lists only one’s own requests, newest first, in pages', async () => {
    const member = newAuthor();
    const ids = [];
    for (const status of ['failed', 'expired', 'cancelled'])
      ids.unshift(await insertRequest(member, status, 'export'));
    await insertRequest(member, 'cancelled', 'deletion');
    await insertRequest(newAuthor(), 'cancelled', 'export');
    interface List {
      items: Request[];
      next_cursor: string | null;
    }
    const page = (query: string) => api.ask<List>('GET', `${EXPORTS}${query}`, { as: member });
    const first = (await page('?limit=2')).body;
    const second = (await page(`?limit=2&cursor=${first.next_cursor}`)).body;
    expect([...first.items, ...second.items].map(({ request_id }) => request_id).sort()).toEqual(ids.sort());
    expect(second.next_cursor).toBeNull();
  });

  it('shows a request only to its owner, who alone can cancel it', async () => {
    const request = await insertRequest(newAuthor(), 'pending', 'deletion');
    const theirs = await insertRequest(newAuthor(), 'failed', 'export');
    const as = newAuthor();
    for (const path of [`${EXPORTS}/${theirs}`, `${EXPORTS}/${request}`, `${DELETIONS}/${request}`]) {
      await api.refused(404, 'NOT_FOUND', 'GET', path, { as });
      await api.refused(404, 'NOT_FOUND', 'POST', `${path}/cancel`, { as });
    }
    await api.refused(400, 'INVALID_REQUEST', 'GET', `${EXPORTS}/x`, { as });
  });

  it('needs a fresh signature, and refuses unknown fields', async () => {
    const as = newAuthor();
    await api.refused(401, 'AUTH_REQUIRED', 'POST', EXPORTS);
    await api.refused(401, 'AUTH_REQUIRED', 'GET', DELETIONS);
    const proof = authorization(credential(as, { method: 'GET', url: relay.http + EXPORTS }));
    const again = { headers: { authorization: proof } };
    expect((await api.ask('GET', EXPORTS, again)).status).toBe(200);
    await api.refused(401, 'REPLAYED_AUTH', 'GET', EXPORTS, again);
    await api.refused(400, 'INVALID_REQUEST', 'POST', EXPORTS, { as, body: { note: 'please' } });
    await api.refused(400, 'INVALID_REQUEST', 'POST', DELETIONS, { as, body: { note: 'a\u0000b' } });
  });
});

describe('an account', () => {
  const change = (author: Author, status: 'disabled' | 'deleted') =>
    changeMember(
      relay.database.pool,
      { community: 1, pubkey: author.pubkey, status },
      { fixed: [] },
      Date.now(),
    );

  it('that is disabled still gets its data, and may request its deletion', async () => {
    const member = newAuthor();
    await change(member, 'disabled');
    await api.refused(403, 'ACCOUNT_DISABLED', 'GET', '/v1/topic-subscriptions', { as: member });
    const { download_url } = await exported(member);
    const files = await readZip(await download(download_url!));
    expect(rowsOf(files, 'member')).toMatchObject([{ status: 'disabled' }]);
    expect((await ask(member, '', DELETIONS)).status).toBe('pending');
  });

  it('that is deleted still gets its data while there is any, and may have it erased', async () => {
    const member = newAuthor();
    const client = await RawClient.connect(relay.url);
    const event = sign(member, { content: 'still served' });
    expect(await client.publish(event)).toEqual([true, '']);
    await change(member, 'deleted');
    await api.refused(410, 'ACCOUNT_DELETED', 'GET', '/v1/topic-subscriptions', { as: member });
    expect((await client.query({ ids: [event.id] })).events).toHaveLength(1);
    const { download_url } = await exported(member);
    const files = await readZip(await download(download_url!));
    expect(rowsOf(files, 'member')).toMatchObject([{ status: 'deleted' }]);
    expect(rowsOf(files, 'events')).toMatchObject([{ id: event.id }]);
    expect((await ask(member, '', DELETIONS)).status).toBe('pending');
    await client.close();
  });
});

describe('an expired file', () => {
  it('cannot be downloaded, its portions are deleted, and its request says so', async () => {
    const member = newAuthor();
    await writeSetting(relay.database.pool, 1, 'privacy.exportHours', 48, Date.now());
    await vi.waitUntil(() => {
      const both = [relay, other].map(({ node }) => node.communities.get(1)!.settings['privacy.exportHours']);
      return both.every((hours) => hours === 48);
    }, WAIT);
    const request = await exported(member);
    const { pathname, search } = new URL(request.download_url!);
    aheadMs = 48 * 3_600_000 - 600_000;
    try {
      expect((await download(request.download_url!)).length).toBe(request.bytes);
      aheadMs = 48 * 3_600_000 + 1_000;
      await api.refused(410, 'EXPIRED', 'GET', pathname + search);
      await api.refused(404, 'NOT_FOUND', 'GET', `${pathname}?token=x`);
      await runExports();
      expect(await portionsOf(request)).toBe(0);
      await api.refused(410, 'EXPIRED', 'GET', pathname + search);
    } finally {
      aheadMs = 0;
    }
    expect(await read(member, request)).toMatchObject({ status: 'expired', download_url: null, bytes: null });
    await api.refused(409, 'STATUS_CONFLICT', 'POST', `${EXPORTS}/${request.request_id}/cancel`, {
      as: member,
    });
  });
});

describe('cancelling', () => {
  it('deletes a ready file; the link no longer works, and cancelling twice changes nothing', async () => {
    const member = newAuthor();
    const request = await exported(member);
    const path = `${EXPORTS}/${request.request_id}/cancel`;
    const first = await api.ask<Request>('POST', path, { as: member });
    expect(first.body).toMatchObject({ status: 'cancelled', download_url: null });
    expect((await api.ask<Request>('POST', path, { as: member })).body).toEqual(first.body);
    const { pathname, search } = new URL(request.download_url!);
    await api.refused(404, 'NOT_FOUND', 'GET', pathname + search);
    await runExports();
    expect(await portionsOf(request)).toBe(0);
  });

  it('is not possible for a failed request', async () => {
    const member = newAuthor();
    const failed = await insertRequest(member, 'failed', 'export');
    const { body } = await api.refused(409, 'STATUS_CONFLICT', 'POST', `${EXPORTS}/${failed}/cancel`, {
      as: member,
    });
    expect(body.details).toEqual({ status: 'failed' });
  });
});

describe('a request for deletion', () => {
  it('is stored with its note as pending; a second one returns it while it is open', async () => {
    const member = newAuthor();
    const asking = { as: member, body: { note: 'I leave the harbour' } };
    const { status, body } = await api.ask<Request>('POST', DELETIONS, asking);
    expect(status).toBe(202);
    expect(body).toEqual({
      request_id: expect.any(String),
      status: 'pending',
      note: 'I leave the harbour',
      error: null,
      created_at: expect.any(Number),
      started_at: null,
      finished_at: null,
      erasure: { stage: 'grace', grace_until: expect.any(Number), rows_counted: 0, rows_deleted: 0 },
    });
    expect((await ask(member, '', DELETIONS)).request_id).toBe(body.request_id);
    const { request_id } = body;
    const one = await api.ask('GET', `${DELETIONS}/${request_id}`, { as: member });
    expect(one.body).toEqual(body);
    const list = await api.ask('GET', DELETIONS, { as: member });
    expect(list.body).toEqual({ items: [body], next_cursor: null });
    await api.refused(404, 'NOT_FOUND', 'GET', `${EXPORTS}/${request_id}`, { as: member });
    await api.refused(404, 'NOT_FOUND', 'GET', `/c/art${DELETIONS}/${request_id}`, { as: member });
  });

  it('can be cancelled until it has begun', async () => {
    const member = newAuthor();
    const { request_id } = await ask(member, '', DELETIONS);
    const path = `${DELETIONS}/${request_id}/cancel`;
    const { body } = await api.ask<Request>('POST', path, { as: member });
    expect(body).toMatchObject({ status: 'cancelled', finished_at: expect.any(Number) });
    const begun = await insertRequest(member, 'running', 'deletion');
    await api.refused(409, 'STATUS_CONFLICT', 'POST', `${DELETIONS}/${begun}/cancel`, { as: member });
  });
});

describe('operators', () => {
  it('see the requests of members by kind and status, without links', async () => {
    const member = newAuthor();
    const pending = await insertRequest(member, 'pending', 'deletion');
    const ready = await insertRequest(member, 'ready', 'export');
    const list = async (query: string) =>
      (await api.ask<{ items: Request[] }>('GET', `${ADMIN}${query}`, { as: boss })).body.items;
    const ids = async (query: string) => (await list(query)).map(({ request_id }) => request_id);
    expect(await ids('?kind=deletion&status=pending&limit=200')).toContain(pending);
    expect(await ids('?kind=deletion&limit=200')).not.toContain(ready);
    const [shown] = (await list('?kind=export&status=ready&limit=200')).filter(
      ({ request_id }) => request_id === ready,
    );
    expect(shown).toMatchObject({ requester_pubkey: member.pubkey, kind: 'export', status: 'ready' });
    expect(shown).not.toHaveProperty('download_url');
    const inArt = await api.ask<{ items: Request[] }>('GET', `/c/art${ADMIN}?limit=200`, { as: boss });
    expect(inArt.body.items.map(({ request_id }) => request_id)).not.toContain(ready);
  });

  it('are the only ones who see them', async () => {
    await api.refused(403, 'OPERATORS_ONLY', 'GET', ADMIN, { as: newAuthor() });
    await api.refused(401, 'AUTH_REQUIRED', 'GET', ADMIN);
    await api.refused(400, 'INVALID_REQUEST', 'GET', `${ADMIN}?kind=all`, { as: boss });
  });
});
