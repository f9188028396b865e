/** Reports over real HTTP, socket and import: one list for operators; each member sees their own. */
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { addCommunity } from '../../src/communities/communities.sql.js';
import { REPORT_REASONS } from '../../src/reports/rules.js';
import { runCli } from '../support/cli.js';
import { type Api, type Asking, authorization, createApi, credential } from '../support/clients/api.js';
import { RawClient } from '../support/clients/client.js';
import { type Author, newAuthor, sign } from '../support/events.js';
import { startTestNode, type TestNode } from '../support/node.js';

const REPORTS = '/v1/reports';
const ADMIN = '/v1/admin/reports';
const UNKNOWN = '00000000-0000-4000-8000-000000000000';
const root = newAuthor();
const hex = (digit: string) => digit.repeat(64);
const NOTE = hex('1');

interface Report {
  readonly report_id: string;
  readonly reporter_pubkey: string;
  readonly target_event: string | null;
  readonly target_pubkey: string | null;
  readonly reason: string;
  readonly comment: string;
  readonly source: string;
  readonly report_event: string | null;
  readonly created_at: number;
}
interface Listed {
  readonly items: Report[];
  readonly next_cursor: string | null;
}

let relay: TestNode;
let api: Api;
let client: RawClient;
beforeAll(async () => {
  // As a node starts by default: topics are required, but a report needs none.
  relay = await startTestNode({ env: { MINATO_ADMIN_PUBKEYS: root.pubkey, MINATO_TOPIC_MODE: 'required' } });
  api = createApi(relay.http);
  await addCommunity(relay.database.pool, 'art', undefined, Date.now());
  await vi.waitUntil(() => relay.node.communities.find(undefined, 'art') !== undefined, { timeout: 100_000 });
  client = await RawClient.connect(relay.url);
});
afterAll(async () => {
  await client.close();
  await relay.close();
});

async function report(as: Author, body: object, prefix = ''): Promise<Report> {
  const answer = await api.ask<Report>('POST', prefix + REPORTS, { as, body: { reason: 'spam', ...body } });
  expect({ status: answer.status, body: answer.body }).toEqual({ status: 201, body: expect.anything() });
  return answer.body;
}
async function list(path: string, as: Author): Promise<Report[]> {
  const answer = await api.ask<Listed>('GET', path, { as });
  expect(answer.status).toBe(200);
  return answer.body.items;
}
const own = (as: Author, prefix = '') => list(prefix + REPORTS, as);
const all = (query = '', prefix = '') => list(`${prefix}${ADMIN}?limit=200${query}`, root);
const ids = (reports: readonly Report[]) => reports.map(({ report_id }) => report_id);

describe('a report', () => {
  it('over HTTP has target, reason and comment, and is listed for reporter and operator', async () => {
    const member = newAuthor();
    const person = newAuthor().pubkey;
    const made = await report(member, { event_id: NOTE, pubkey: person, comment: 'again and again' });
    expect(made).toEqual({
      report_id: expect.any(String),
      reporter_pubkey: member.pubkey,
      target_event: NOTE,
      target_pubkey: person,
      reason: 'spam',
      comment: 'again and again',
      source: 'http',
      report_event: null,
      created_at: expect.any(Number),
    });
    expect(await own(member)).toEqual([made]);
    expect(await all(`&target_pubkey=${person}`)).toEqual([made]);
  });

  it('may name only an event or only a person, without a comment, for each reason', async () => {
    const member = newAuthor();
    for (const reason of REPORT_REASONS) {
      expect(await report(member, { event_id: NOTE, reason })).toMatchObject({ reason, comment: '' });
      expect(await report(member, { pubkey: root.pubkey, reason })).toMatchObject({ target_event: null });
    }
    expect(await own(member)).toHaveLength(2 * REPORT_REASONS.length);
  });

  it('that is sent again is the same report; with another comment it is a new one', async () => {
    const member = newAuthor();
    const first = await report(member, { event_id: NOTE });
    const again = await Promise.all([1, 2, 3].map(() => report(member, { event_id: NOTE })));
    for (const one of again) expect(one).toEqual(first);
    const others = [
      await report(member, { event_id: NOTE, comment: 'x' }),
      await report(member, { event_id: NOTE, reason: 'illegal' }),
      await report(newAuthor(), { event_id: NOTE }),
      await report(member, { event_id: NOTE }, '/c/art'),
    ];
    expect(new Set(ids([first, ...others])).size).toBe(5);
    expect(await own(member)).toHaveLength(3);
  });

  it.each([
    ['no target', { reason: 'spam' }],
    ['no reason', { event_id: NOTE }],
    ['an unknown reason', { event_id: NOTE, reason: 'rude' }],
    ['an invalid id', { event_id: 'x', reason: 'spam' }],
    ['an id in capitals', { event_id: hex('A'), reason: 'spam' }],
    ['an invalid key', { pubkey: 'npub1x', reason: 'spam' }],
    ['a comment that is too long', { event_id: NOTE, reason: 'spam', comment: 'x'.repeat(2_001) }],
    ['a comment with NUL', { event_id: NOTE, reason: 'spam', comment: 'a\u0000b' }],
    ['an unknown field', { event_id: NOTE, reason: 'spam', severity: 9 }],
  ])('with %s is refused', async (_, body) => {
    await api.refused(400, 'INVALID_REQUEST', 'POST', REPORTS, { as: newAuthor(), body });
  });

  it('needs a signature that is used once, and an account that is not disabled', async () => {
    const member = newAuthor();
    const body = { event_id: NOTE, reason: 'spam' };
    const samples: [string, string, Asking][] = [
      ['POST', REPORTS, { body }],
      ['GET', REPORTS, {}],
      ['DELETE', `${REPORTS}/${UNKNOWN}`, {}],
    ];
    for (const [method, path, asking] of samples) {
      await api.refused(401, 'AUTH_REQUIRED', method, path, asking);
      const signed = credential(member, { method, url: relay.http + path, ...asking });
      const once = { ...asking, headers: { authorization: authorization(signed) } };
      expect((await api.ask(method, path, once)).status).not.toBe(401);
      await api.refused(401, 'REPLAYED_AUTH', method, path, once);
      await api.refused(401, 'INVALID_AUTH', method, `/c/art${path}`, {
        ...asking,
        headers: {
          authorization: authorization(credential(member, { method, url: relay.http + path, ...asking })),
        },
      });
    }
    await api.ask('PATCH', `/v1/admin/members/${member.pubkey}`, { as: root, body: { status: 'disabled' } });
    for (const [method, path, asking] of samples)
      await api.refused(403, 'ACCOUNT_DISABLED', method, path, { as: member, ...asking });
    await api.ask('PATCH', `/v1/admin/members/${member.pubkey}`, { as: root, body: { status: 'deleted' } });
    await api.refused(410, 'ACCOUNT_DELETED', 'POST', REPORTS, { as: member, body });
  });
});

describe('the three ways to send a report', () => {
  it('lead to one list', async () => {
    const member = newAuthor();
    const person = newAuthor().pubkey;
    const before = Math.floor(Date.now() / 1_000) - 100;
    const tags = [['p', person, 'spam']];
    const imported = sign(member, { kind: 1_984, tags, content: 'by import', created_at: before });
    const env = { DATABASE_URL: relay.test.url };
    const { code } = await runCli(['import'], env, `${JSON.stringify(imported)}\n`);
    expect(code).toBe(0);
    const sent = sign(member, { kind: 1_984, tags, content: 'by socket', created_at: before + 1 });
    expect(await client.publish(sent)).toEqual([true, '']);
    await report(member, { pubkey: person, comment: 'by HTTP' });
    const said = ({ comment, source, report_event }: Report) => [comment, source, report_event];
    const expected = [
      ['by HTTP', 'http', null],
      ['by socket', 'event', sent.id],
      ['by import', 'event', imported.id],
    ];
    expect((await own(member)).map(said)).toEqual(expected);
    expect((await all(`&target_pubkey=${person}`)).map(said)).toEqual(expected);
    expect(await client.publish(sent)).toEqual([true, expect.stringMatching(/^duplicate: /)]);
    expect((await runCli(['import'], env, `${JSON.stringify(imported)}\n`)).code).toBe(0);
    expect(await own(member)).toHaveLength(3);
  });
});

describe('withdrawing', () => {
  it('withdraws a report over HTTP, once', async () => {
    const member = newAuthor();
    const made = await report(member, { event_id: NOTE });
    const answer = await api.ask('DELETE', `${REPORTS}/${made.report_id}`, { as: member });
    expect({ status: answer.status, body: answer.body }).toEqual({ status: 200, body: made });
    expect(await own(member)).toEqual([]);
    await api.refused(404, 'NOT_FOUND', 'DELETE', `${REPORTS}/${made.report_id}`, { as: member });
    expect((await report(member, { event_id: NOTE })).report_id).toBe(made.report_id);
  });

  it('of a report by an event means deleting the event', async () => {
    const member = newAuthor();
    const sent = sign(member, { kind: 1_984, tags: [['p', root.pubkey, 'spam']] });
    expect(await client.publish(sent)).toEqual([true, '']);
    const [found] = await own(member);
    const path = `${REPORTS}/${found!.report_id}`;
    const { body } = await api.refused(409, 'STATUS_CONFLICT', 'DELETE', path, { as: member });
    expect(body.details).toEqual({ report_event: sent.id });
    expect(await client.publish(sign(member, { kind: 5, tags: [['e', sent.id]] }))).toEqual([true, '']);
    expect(await own(member)).toEqual([]);
    expect(await all(`&pubkey=${member.pubkey}`)).toEqual([]);
  });

  it('is for the reporter only; any other or unknown report is not found', async () => {
    const [member, stranger] = [newAuthor(), newAuthor()];
    const { report_id: id } = await report(member, { event_id: NOTE });
    await api.refused(404, 'NOT_FOUND', 'DELETE', `${REPORTS}/${id}`, { as: stranger });
    await api.refused(404, 'NOT_FOUND', 'DELETE', `${REPORTS}/${id}`, { as: root });
    await api.refused(404, 'NOT_FOUND', 'DELETE', `/c/art${REPORTS}/${id}`, { as: member });
    await api.refused(404, 'NOT_FOUND', 'DELETE', `${REPORTS}/${UNKNOWN}`, { as: member });
    await api.refused(400, 'INVALID_REQUEST', 'DELETE', `${REPORTS}/x`, { as: member });
    expect(ids(await own(member))).toEqual([id]);
  });
});

describe('lists', () => {
  it('of a member have only their own reports in this community', async () => {
    const [member, other] = [newAuthor(), newAuthor()];
    const here = await report(member, { event_id: NOTE });
    const there = await report(member, { event_id: NOTE }, '/c/art');
    await report(other, { event_id: NOTE });
    expect(await own(member)).toEqual([here]);
    expect(await own(member, '/c/art')).toEqual([there]);
    expect(ids(await all())).not.toContain(there.report_id);
    expect(ids(await all('', '/c/art'))).toContain(there.report_id);
  });

  it('come in pages, newest first', async () => {
    const member = newAuthor();
    const made: Report[] = [];
    for (const comment of ['1', '2', '3', '4', '5'])
      made.push(await report(member, { event_id: NOTE, comment }));
    for (const [path, as] of [
      [`${REPORTS}?limit=2`, member],
      [`${ADMIN}?limit=2&pubkey=${member.pubkey}`, root],
    ] as const) {
      const seen: Report[] = [];
      for (let cursor = ''; ; ) {
        const { body } = await api.ask<Listed>('GET', path + cursor, { as });
        seen.push(...body.items);
        if (body.next_cursor === null) break;
        cursor = `&cursor=${encodeURIComponent(body.next_cursor)}`;
      }
      expect(seen).toEqual(
        made.sort((one, two) => two.created_at - one.created_at || (one.report_id < two.report_id ? 1 : -1)),
      );
    }
    for (const query of ['limit=0', 'cursor=x', 'pubkey=x'])
      await api.refused(400, 'INVALID_REQUEST', 'GET', `${REPORTS}?${query}`, { as: member });
  });

  it('of the operator are filtered by target, reporter and reason', async () => {
    const [one, two] = [newAuthor(), newAuthor()];
    const [event, person] = [newAuthor().pubkey, newAuthor().pubkey];
    const a = await report(one, { event_id: event });
    const b = await report(one, { event_id: event, pubkey: person, reason: 'illegal' });
    const c = await report(two, { pubkey: person });
    expect(new Set(ids(await all(`&target_event=${event}`)))).toEqual(new Set(ids([a, b])));
    expect(new Set(ids(await all(`&target_pubkey=${person}`)))).toEqual(new Set(ids([b, c])));
    expect(new Set(ids(await all(`&pubkey=${one.pubkey}`)))).toEqual(new Set(ids([a, b])));
    expect(ids(await all(`&target_event=${event}&reason=illegal&pubkey=${one.pubkey}`))).toEqual(ids([b]));
    for (const query of [
      'reason=rude',
      'target_event=x',
      'target_pubkey=x',
      'pubkey=x',
      'limit=0',
      'cursor=x',
    ])
      await api.refused(400, 'INVALID_REQUEST', 'GET', `${ADMIN}?${query}`, { as: root });
    await api.refused(403, 'OPERATORS_ONLY', 'GET', ADMIN, { as: one });
    await api.refused(401, 'AUTH_REQUIRED', 'GET', ADMIN);
  });
});

it('a report on the socket counts as a use of the plan, once, and not when it has no effect', async () => {
  const erin = newAuthor();
  const { pool } = relay.database;
  const limits = JSON.stringify({ reportsPerDay: 3 });
  const community = relay.node.communities.find(undefined, 'default')!.id;
  await pool.query(
    `INSERT INTO plans (community, plan_id, name, limits, created_at, updated_at)
     VALUES ($1, 'free', 'Free', $2, 1, 1)`,
    [community, limits],
  );
  const event = (content: string) => sign(erin, { kind: 1_984, content, tags: [['p', root.pubkey, 'spam']] });
  const [first, second, third] = [event('1'), event('2'), event('3')];
  expect(await client.publish(first)).toEqual([true, '']);
  expect((await client.publish(first))[0]).toBe(true);
  const forged: { id: string } = Object.assign({}, second, { sig: first.sig });
  expect((await client.publish(forged))[0]).toBe(false);
  expect(await client.publish(second)).toEqual([true, '']);
  await report(erin, { pubkey: root.pubkey });
  expect(await client.publish(third)).toEqual([false, expect.stringMatching(/^rate-limited: .*plan/)]);
  await api.refused(402, 'QUOTA_EXCEEDED', 'POST', REPORTS, {
    as: erin,
    body: { reason: 'spam', pubkey: erin.pubkey },
  });
  await pool.query('DELETE FROM plans WHERE community = $1', [community]);
});
