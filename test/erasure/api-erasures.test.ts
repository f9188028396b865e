/**
 * How people reach erasures over HTTP: the member who asks, the operator who erases, holds and looks, and the
 * certificate of each.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { verifyEvent } from 'nostr-tools/pure';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { addCommunity, writeSetting } from '../../src/communities/communities.sql.js';
import { certificateProblems } from '../../src/erasure/certificates/rules.js';
import { refreshErasures } from '../../src/erasure/jobs-gauge.js';
import type { NostrEvent } from '../../src/events/rules/event.js';
import { addOperator } from '../../src/members/operators.sql.js';
import { eventually } from '../support/cli.js';
import { type Api, createApi } from '../support/clients/api.js';
import { RawClient } from '../support/clients/client.js';
import { LineReader } from '../support/clients/stream.js';
import { type Author, newAuthor, sign } from '../support/events.js';
import { startTestNode, type TestNode } from '../support/node.js';

const DELETIONS = '/v1/personal-data-deletion-requests';
const ERASURES = '/v1/admin/erasures';
const CERTIFICATES = '/v1/admin/erasure-certificates';
const UNKNOWN = '00000000-0000-4000-8000-000000000000';
const WAIT = { timeout: 100_000, interval: 20 };

const boss = newAuthor();
const artist = newAuthor();
let folder: string;
let relay: TestNode;
let api: Api;
let art: number;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'minato-erasures-'));
  relay = await startTestNode({ env: { MINATO_ADMIN_PUBKEYS: boss.pubkey, MINATO_DATA_DIR: folder } });
  api = createApi(relay.http);
  const { pool } = relay.database;
  art = await addCommunity(pool, 'art', undefined, Date.now());
  await writeSetting(pool, art, 'erasure.memberGraceDays', 7, Date.now());
  await addOperator(pool, { community: art, pubkey: artist.pubkey }, { fixed: [] }, Date.now());
  await vi.waitUntil(() => relay.node.communities.get(art)?.operators.has(artist.pubkey), WAIT);
});
afterAll(async () => {
  await relay.close();
  await rm(folder, { recursive: true });
});

interface Request {
  request_id: string;
  status: string;
  finished_at: number | null;
  erasure: { stage: string; grace_until: number; rows_counted: number; rows_deleted: number } | null;
}
interface Shown {
  erasure_id: string;
  type: string;
  stage: string;
  pubkey: string | null;
  grace_until: number;
  requested_at: number;
  hold_reason: string | null;
  rows_counted: number;
  rows_deleted: number;
  stores: {
    name: string;
    counted: number | null;
    deleted: number;
    verified: number | null;
    failure: string | null;
  }[];
}

async function ask(as: Author, prefix = ''): Promise<Request> {
  const { status, body } = await api.ask<Request>('POST', prefix + DELETIONS, { as });
  expect(status).toBe(202);
  return body;
}
const read = async (as: Author, { request_id }: Request, prefix = '') =>
  (await api.ask<Request>('GET', `${prefix}${DELETIONS}/${request_id}`, { as })).body;

async function erase(body: object, as = boss, prefix = ''): Promise<Shown> {
  const answer = await api.ask<Shown>('POST', prefix + ERASURES, { as, body });
  expect({ status: answer.status, body: answer.body }).toMatchObject({ status: 202 });
  return answer.body;
}
async function step(name: string, { erasure_id }: Shown, body: object = {}, as = boss, prefix = '') {
  const answer = await api.ask<Shown>('POST', `${prefix}${ERASURES}/${erasure_id}/${name}`, { as, body });
  expect(answer.status).toBe(200);
  return answer.body;
}
const see = async ({ erasure_id }: { erasure_id: string }, as = boss, prefix = '') =>
  (await api.ask<Shown>('GET', `${prefix}${ERASURES}/${erasure_id}`, { as })).body;
const ids = async (query = '', as = boss, prefix = '') =>
  (await api.ask<{ items: Shown[] }>('GET', `${prefix}${ERASURES}?limit=200${query}`, { as })).body.items.map(
    ({ erasure_id }) => erasure_id,
  );
const untilStage = (erasure: { erasure_id: string }, stage: string) =>
  eventually(`the erasure is ${stage}`, async () => {
    const shown = await see(erasure);
    return shown.stage === stage ? shown : undefined;
  });

async function post(author: Author, times: number): Promise<void> {
  const client = await RawClient.connect(relay.url);
  for (let number = 0; number < times; number += 1)
    expect(await client.publish(sign(author, { content: `${number}` }))).toEqual([true, '']);
  await client.close();
}

it('POST and GET give an erasure, and a request, in one shape', async () => {
  const asked = await erase({ pubkey: newAuthor().pubkey, grace_days: 30 });
  expect(await see(asked)).toEqual(asked);
  await step('cancel', asked);
  const member = newAuthor();
  const request = await ask(member, '/c/art');
  expect(await read(member, request, '/c/art')).toEqual(request);
});

describe('a member', () => {
  it('is erased on request, and still gets the outcome and the certificate with the same key', async () => {
    const member = newAuthor();
    await post(member, 3);
    const request = await ask(member);
    expect(request).toMatchObject({ status: 'pending', erasure: { stage: 'requested' } });
    const done = await eventually('it is done', async () => {
      const current = await read(member, request);
      return current.status === 'done' ? current : undefined;
    });
    expect(done).toMatchObject({ finished_at: expect.any(Number), erasure: { stage: 'completed' } });
    expect(done.erasure!.rows_deleted).toBeGreaterThanOrEqual(3);
    const path = `${DELETIONS}/${request.request_id}`;
    const { status, body } = await api.ask<NostrEvent>('GET', `${path}/certificate`, { as: member });
    expect(status).toBe(200);
    expect(verifyEvent({ ...body, tags: body.tags.map((tag) => [...tag]) })).toBe(true);
    expect(certificateProblems(body)).toMatchObject({
      problems: [],
      certificate: { erasure_id: request.request_id, cause: 'member', community: 'default' },
    });
    expect(JSON.stringify(body)).not.toContain(member.pubkey);
    // Nobody else, not in another community, and the request itself is gone with the rest.
    await api.refused(404, 'NOT_FOUND', 'GET', path, { as: newAuthor() });
    await api.refused(404, 'NOT_FOUND', 'GET', `${path}/certificate`, { as: newAuthor() });
    await api.refused(404, 'NOT_FOUND', 'GET', `/c/art${path}`, { as: member });
    await api.refused(404, 'NOT_FOUND', 'POST', `${path}/cancel`, { as: member });
    const { rowCount } = await relay.database.pool.query(
      'SELECT 1 FROM personal_data_requests WHERE request_id = $1',
      [request.request_id],
    );
    expect(rowCount).toBe(0);
  });

  it('can cancel it in the grace period, and only their own request', async () => {
    const member = newAuthor();
    const request = await ask(member, '/c/art');
    expect(request).toMatchObject({ status: 'pending', erasure: { stage: 'grace' } });
    expect((await ask(member, '/c/art')).request_id).toBe(request.request_id);
    const path = `/c/art${DELETIONS}/${request.request_id}`;
    await api.refused(409, 'NOT_READY', 'GET', `${path}/certificate`, { as: member });
    await api.refused(404, 'NOT_FOUND', 'POST', `${path}/cancel`, { as: newAuthor() });
    const back = { status: 'cancelled', finished_at: expect.any(Number), erasure: { stage: 'cancelled' } };
    expect((await api.ask<Request>('POST', `${path}/cancel`, { as: member })).body).toMatchObject(back);
    expect((await api.ask<Request>('POST', `${path}/cancel`, { as: member })).body).toMatchObject(back);
    const { erasure_id } = await erase({ pubkey: member.pubkey }, artist, '/c/art');
    expect(erasure_id).not.toBe(request.request_id);
    expect((await ask(member, '/c/art')).request_id).toBe(erasure_id);
    const refused = await api.refused(
      409,
      'STATUS_CONFLICT',
      'POST',
      `/c/art${DELETIONS}/${erasure_id}/cancel`,
      {
        as: member,
      },
    );
    expect(refused.body.details).toEqual({ stage: 'grace', asked_for_by: 'operator' });
    await step('cancel', { erasure_id } as Shown, {}, artist, '/c/art');
    expect(await read(member, { request_id: erasure_id } as Request, '/c/art')).toMatchObject(back);
  });

  it('sees a hold, and cannot cancel an erasure that is held', async () => {
    const member = newAuthor();
    const request = await ask(member, '/c/art');
    const erasure = { erasure_id: request.request_id } as Shown;
    await step('hold', erasure, { reason: 'court order 7' }, artist, '/c/art');
    const shown = await read(member, request, '/c/art');
    expect(shown).toMatchObject({ status: 'pending', erasure: { stage: 'held' } });
    expect(JSON.stringify(shown)).not.toContain('court order');
    const path = `/c/art${DELETIONS}/${request.request_id}/cancel`;
    const { body } = await api.refused(409, 'STATUS_CONFLICT', 'POST', path, { as: member });
    expect(body.details).toEqual({ stage: 'held' });
    await step('release', erasure, {}, artist, '/c/art');
    expect((await api.ask<Request>('POST', path, { as: member })).body.status).toBe('cancelled');
  });

  it('whose account is refused for everything else still sees how far it has come', async () => {
    const member = newAuthor();
    const request = await ask(member, '/c/art');
    const refuse = `UPDATE members SET status = 'deleted' WHERE community = $1 AND pubkey = $2`;
    await relay.database.pool.query(refuse, [art, Buffer.from(member.pubkey, 'hex')]);
    await api.refused(410, 'ACCOUNT_DELETED', 'GET', '/c/art/v1/topic-subscriptions', { as: member });
    expect(await read(member, request, '/c/art')).toMatchObject({ status: 'pending' });
    const path = `/c/art${DELETIONS}/${request.request_id}/certificate`;
    await api.refused(409, 'NOT_READY', 'GET', path, { as: member });
  });

  it('a key of MINATO_ADMIN_PUBKEYS must be removed there first', async () => {
    const { body } = await api.refused(409, 'FIXED_OPERATOR', 'POST', DELETIONS, { as: boss });
    expect(body.details.explanation).toMatch(/MINATO_ADMIN_PUBKEYS/);
    await api.refused(409, 'FIXED_OPERATOR', 'POST', ERASURES, { as: boss, body: { pubkey: boss.pubkey } });
  });
});

describe('an operator', () => {
  it('erases a member, store by store, and gets the certificate as an event and as a page', async () => {
    const member = newAuthor();
    await post(member, 2);
    const asked = await erase({ pubkey: member.pubkey });
    const stream = await LineReader.open(relay.http, `${ERASURES}/${asked.erasure_id}/progress`, {
      as: boss,
    });
    expect(stream.response.headers.get('content-type')).toBe('text/event-stream; charset=utf-8');
    expect(await stream.end()).toBe('whole');
    expect(stream.text).toMatch(/^event: progress\ndata: \{/);
    expect(stream.lines.at(-1)).toMatchObject({ stage: 'completed', failures: {} });
    const shown = await see(asked);
    expect(shown).toMatchObject({ stage: 'completed', pubkey: null, type: 'member' });
    const events = shown.stores.find(({ name }) => name === 'postgres:events')!;
    expect(events).toMatchObject({ counted: 2, deleted: 2, verified: 0, failure: null });
    expect(shown.stores.every(({ verified }) => verified === 0)).toBe(true);
    const path = `${ERASURES}/${asked.erasure_id}/certificate`;
    const event = (await api.ask<NostrEvent>('GET', path, { as: boss })).body;
    const page = await api.ask<string>('GET', path, { as: boss, headers: { accept: 'text/html' } });
    expect(page.headers.get('content-type')).toBe('text/html; charset=utf-8');
    expect(page.body).toContain(event.id);
    expect(page.body).toContain('消去証明書');
    expect(page.body).not.toMatch(/<script|https?:|src=|href=/);
    expect(page.body).not.toContain(member.pubkey);
    expect(await ids()).toContain(asked.erasure_id);
    expect(await ids('&open=true')).not.toContain(asked.erasure_id);
    await listAndVerify(event, asked.erasure_id);
  });

  /** A viewer lists certificates and checks them; a changed one does not hold. */
  async function listAndVerify(event: NostrEvent, erasureId: string): Promise<void> {
    const viewer = newAuthor();
    await api.ask('PUT', `/v1/admin/operators/${viewer.pubkey}`, { as: boss, body: { role: 'viewer' } });
    const list = await api.ask<{ items: { erasure_id: string }[] }>('GET', CERTIFICATES, { as: viewer });
    expect(list.body.items.find(({ erasure_id }) => erasure_id === erasureId)).toMatchObject({
      certificate_id: event.id,
      type: 'member',
      community: 'default',
      rows_deleted: expect.any(Number),
    });
    const path = `${CERTIFICATES}/${erasureId}/verification`;
    const verification = async () => (await api.ask('GET', path, { as: viewer })).body;
    expect(await verification()).toMatchObject({ holds: true, problems: [], signed_by: event.pubkey });
    const { pool } = relay.database;
    const write = (text: string) =>
      pool.query('UPDATE erasure_certificates SET event = $1 WHERE erasure_id = $2', [text, erasureId]);
    const { rows } = await pool.query<{ event: string }>(
      'SELECT event FROM erasure_certificates WHERE erasure_id = $1',
      [erasureId],
    );
    await write(JSON.stringify({ ...event, created_at: event.created_at + 1 }));
    expect(await verification()).toMatchObject({
      holds: false,
      problems: ['its id or its signature does not hold: it was changed'],
    });
    await write(rows[0]!.event);
    // Another community sees neither the list nor the check of it.
    const others = await api.ask<{ items: object[] }>('GET', `/c/art${CERTIFICATES}`, { as: artist });
    expect(others.body.items).toEqual([]);
    await api.refused(404, 'NOT_FOUND', 'GET', `/c/art${path}`, { as: artist });
    await api.refused(404, 'NOT_FOUND', 'GET', `${CERTIFICATES}/${UNKNOWN}/verification`, { as: boss });
  }

  it('holds one with a reason, releases it, cancels it; each is refused in a wrong stage', async () => {
    const erasure = await erase({ pubkey: newAuthor().pubkey, grace_days: 3 });
    expect(erasure.grace_until - erasure.requested_at).toBe(3 * 86_400_000);
    const path = `${ERASURES}/${erasure.erasure_id}`;
    const conflict = async (name: string, stage: string, body: object = {}) => {
      const refused = await api.refused(409, 'STATUS_CONFLICT', 'POST', `${path}/${name}`, {
        as: boss,
        body,
      });
      expect(refused.body.details).toEqual({ stage });
    };
    await conflict('release', 'grace');
    await conflict('retry', 'grace');
    await api.refused(400, 'INVALID_REQUEST', 'POST', `${path}/hold`, { as: boss, body: {} });
    await api.refused(400, 'INVALID_REQUEST', 'POST', `${path}/hold`, { as: boss, body: { reason: '' } });
    const held = await step('hold', erasure, { reason: 'court order 7' });
    expect(held).toMatchObject({ stage: 'held', hold_reason: 'court order 7' });
    const { metrics } = relay.node;
    await refreshErasures({ pool: relay.database.pool, metrics });
    const gauge = await metrics.registry.getSingleMetricAsString('minato_erasures');
    expect(gauge).toMatch(/^minato_erasures\{stage="held"\} 1$/m);
    expect(gauge).toMatch(/^minato_erasures\{stage="failed"\} 0$/m);
    await conflict('hold', 'held', { reason: 'again' });
    await conflict('cancel', 'held');
    expect(await ids('&open=true')).toContain(erasure.erasure_id);
    expect(await step('release', erasure)).toMatchObject({ stage: 'grace', hold_reason: null });
    expect(await step('cancel', erasure)).toMatchObject({ stage: 'cancelled', pubkey: null });
    await conflict('cancel', 'cancelled');
    await conflict('hold', 'cancelled', { reason: 'late' });
    const { body } = await api.ask<{
      items: { action: string; actor: string; target: string; details: unknown }[];
    }>('GET', '/v1/admin/audit-log?limit=4', { as: boss });
    expect(body.items.map(({ action, actor, target }) => [action, actor, target])).toEqual(
      ['cancel', 'release', 'hold', 'request'].map((name) => [
        `erasure.${name}`,
        boss.pubkey,
        erasure.erasure_id,
      ]),
    );
    expect(body.items[2]!.details).toEqual({ reason: 'court order 7' });
  });

  it('tries a store that failed again; the failure has the name of the store', async () => {
    const { pool } = relay.database;
    const erasure = await erase({ pubkey: newAuthor().pubkey, grace_days: 30 });
    // As the job leaves it when a store does not answer.
    await pool.query(
      `UPDATE erasures SET failed_at = 1, tries = 1, failures = '{"redis:sessions": "it does not answer"}'
       WHERE erasure_id = $1`,
      [erasure.erasure_id],
    );
    const failed = await see(erasure);
    expect(failed.stage).toBe('failed');
    expect(failed.stores).toEqual([
      {
        name: 'redis:sessions',
        counted: null,
        added: 0,
        deleted: 0,
        otherwise: 0,
        verified: null,
        failure: 'it does not answer',
        kept: null,
      },
    ]);
    expect(await step('retry', erasure)).toMatchObject({ stage: 'grace', stores: [] });
  });

  it('sees and changes the erasures of their own community only', async () => {
    const erasure = await erase({ pubkey: newAuthor().pubkey, grace_days: 3 });
    for (const id of [erasure.erasure_id, UNKNOWN]) {
      const path = `/c/art${ERASURES}/${id}`;
      for (const about of ['', '/progress', '/certificate'])
        await api.refused(404, 'NOT_FOUND', 'GET', path + about, { as: artist });
      for (const name of ['cancel', 'release', 'retry'])
        await api.refused(404, 'NOT_FOUND', 'POST', `${path}/${name}`, { as: artist });
      await api.refused(404, 'NOT_FOUND', 'POST', `${path}/hold`, { as: artist, body: { reason: 'x' } });
    }
    expect(await ids('', artist, '/c/art')).not.toContain(erasure.erasure_id);
    await api.refused(409, 'NOT_READY', 'GET', `${ERASURES}/${erasure.erasure_id}/certificate`, { as: boss });
  });

  it('follows a bounded number at once, and hears when they may no longer', async () => {
    const deputy = newAuthor();
    const operator = { community: art, pubkey: deputy.pubkey };
    await addOperator(relay.database.pool, operator, { fixed: [] }, Date.now());
    await vi.waitUntil(() => relay.node.communities.get(art)?.operators.has(deputy.pubkey), WAIT);
    const { erasure_id } = await erase({ pubkey: newAuthor().pubkey }, artist, '/c/art');
    const path = `/c/art${ERASURES}/${erasure_id}/progress`;
    const open = () => LineReader.open(relay.http, path, { as: deputy });
    const streams = await Promise.all([open(), open(), open(), open()]);
    await streams[0]!.waitFor('the present stage', ({ stage }) => stage === 'grace');
    await api.refused(429, 'RATE_LIMITED', 'GET', path, { as: deputy });
    await relay.database.pool.query('DELETE FROM operators WHERE pubkey = $1', [
      Buffer.from(deputy.pubkey, 'hex'),
    ]);
    await relay.database.pool.query('UPDATE config_version SET version = version + 1');
    for (const stream of streams) expect((await stream.all()).at(-1)).toEqual({ code: 'OPERATORS_ONLY' });
  });
});

describe('a whole community', () => {
  it('is erased by those who run the node, at the default community, and never that one', async () => {
    const refused = { as: artist, body: { community: 'art' } };
    await api.refused(403, 'OPERATORS_ONLY', 'POST', `/c/art${ERASURES}`, refused);
    await api.refused(403, 'OPERATORS_ONLY', 'POST', `/c/art${ERASURES}`, { ...refused, as: boss });
    const { body } = await api.refused(409, 'STATUS_CONFLICT', 'POST', ERASURES, {
      as: boss,
      body: { community: 'default' },
    });
    expect(body.details.explanation).toMatch(/^The default community is the node itself/);
    await api.refused(404, 'COMMUNITY_NOT_FOUND', 'POST', ERASURES, {
      as: boss,
      body: { community: 'none' },
    });
    for (const wrong of [
      {},
      { pubkey: 'x' },
      { pubkey: boss.pubkey, community: 'art' },
      { community: 'art', grace_days: 366 },
    ])
      await api.refused(400, 'INVALID_REQUEST', 'POST', ERASURES, { as: boss, body: wrong });
  });

  it('waits for its grace period; its operators only see it; then it is deleted', async () => {
    const erasure = await erase({ community: 'art' });
    expect(erasure).toMatchObject({ type: 'community', stage: 'grace', pubkey: null });
    expect(erasure.grace_until - erasure.requested_at).toBe(30 * 86_400_000);
    expect(await see(erasure, artist, '/c/art')).toMatchObject({ stage: 'grace' });
    expect(await ids('', artist, '/c/art')).toContain(erasure.erasure_id);
    expect(await ids()).toContain(erasure.erasure_id);
    await api.refused(403, 'OPERATORS_ONLY', 'POST', `/c/art${ERASURES}/${erasure.erasure_id}/cancel`, {
      as: artist,
    });
    await step('cancel', erasure);
    const { erasure_id } = await erase({ community: 'art', grace_days: 0 });
    expect(await untilStage({ erasure_id }, 'completed')).toMatchObject({ type: 'community' });
    const { body } = await api.ask<NostrEvent>('GET', `${ERASURES}/${erasure_id}/certificate`, { as: boss });
    expect(certificateProblems(body)).toMatchObject({
      problems: [],
      certificate: { community: 'art', subject: { type: 'community' } },
    });
    await vi.waitUntil(() => relay.node.communities.get(art) === undefined, WAIT);
    await api.refused(404, 'COMMUNITY_NOT_FOUND', 'GET', `/c/art${ERASURES}`, { as: boss });
  });
});
