/**
 * Policies and consents over real HTTP: every route, its success and each refusal. Drafts and other people's
 * rows stay hidden.
 */
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { addCommunity, readConfigVersions } from '../../src/communities/communities.sql.js';
import { CONTENT_LENGTH_MAX, LOCALES_MAX } from '../../src/policies/rules.js';
import {
  type Answer,
  type Api,
  type Asking,
  authorization,
  codesOf,
  createApi,
  credential,
  type OpenApi,
  readOpenApi,
  sha256,
} from '../support/clients/api.js';
import { type Author, newAuthor } from '../support/events.js';
import { startTestNode, type TestNode } from '../support/node.js';

const POLICIES = '/v1/policies';
const CONSENTS = '/v1/consents';
const ADMIN = '/v1/admin/policies';
const UNKNOWN = '00000000-0000-4000-8000-000000000000';
const TIME = expect.any(Number);

const root = newAuthor();
let relay: TestNode;
let api: Api;
let document: OpenApi;
/** Every refusal that occurred, to check at the end that none was left out. */
const met = new Set<string>();

function templateOf(path: string): string {
  const asked = path.replace(/^\/c\/[^/]+/, '').replace(/\?.*$/, '');
  const matching = (template: string) =>
    new RegExp(`^${template.replace(/\{[^}]+\}/g, '[^/]+')}$`).test(asked);
  const templates = Object.keys(document.paths);
  return templates.find((template) => template === asked) ?? templates.find(matching) ?? asked;
}

beforeAll(async () => {
  relay = await startTestNode({ env: { MINATO_ADMIN_PUBKEYS: root.pubkey } });
  document = await readOpenApi(relay.http);
  const { ask, refused } = createApi(relay.http);
  api = {
    ask,
    refused: (status, code, method, path, asking) => {
      met.add(`${method} ${templateOf(path)} ${code}`);
      return refused(status, code, method, path, asking);
    },
  };
  for (const slug of ['art', 'quiet']) await addCommunity(relay.database.pool, slug, undefined, Date.now());
  await vi.waitUntil(() => relay.node.communities.find(undefined, 'quiet') !== undefined, {
    timeout: 100_000,
  });
});
afterAll(() => relay.close());

interface Policy {
  type: string;
  version: string;
  status: string;
  texts: { locale: string; content_hash: string }[];
  [field: string]: unknown;
}
interface Shown {
  version: string;
  locale: string;
  locales: string[];
  content: string;
  content_hash: string;
  [field: string]: unknown;
}
interface Consent {
  consent_id: string;
  consented_at: number;
  withdrawn_at: number | null;
  [field: string]: unknown;
}
interface Status {
  required: { type: string; version: string; consented: boolean; [field: string]: unknown }[];
  complete: boolean;
}
interface Page<T> {
  items: T[];
  next_cursor: string | null;
}

let versions = 0;
/** A version that no other test uses. */
function newVersion(): string {
  versions += 1;
  return `2026-${versions}`;
}

async function done<T>(method: string, path: string, asking: Asking = { as: root }): Promise<T> {
  const { status, body }: Answer<T> = await api.ask<T>(method, path, asking);
  expect({ path, status, ...(status >= 400 ? { body } : {}) }).toEqual({
    path,
    status: method === 'POST' && /(policies|consents)$/.test(path) ? 201 : 200,
  });
  return body;
}
const write = (at: string, locale: string, content: string, title = `Terms (${locale})`) =>
  done<{ content_hash: string }>('PUT', `${at}/texts/${locale}`, { as: root, body: { title, content } });

async function draft(texts: Record<string, string> = {}, type = 'terms', prefix = '') {
  const version = newVersion();
  await done('POST', prefix + ADMIN, { as: root, body: { type, version } });
  const at = `${prefix}${ADMIN}/${type}/${version}`;
  for (const [locale, content] of Object.entries(texts)) await write(at, locale, content);
  return { type, version, at, public: `${prefix}${POLICIES}/${type}/${version}` };
}
async function published(texts: Record<string, string> = { en: 'Be kind.' }, type = 'terms', prefix = '') {
  const policy = await draft(texts, type, prefix);
  await done('POST', `${policy.at}/publish`);
  return policy;
}
async function current(texts: Record<string, string> = { en: 'Be kind.' }, type = 'terms', prefix = '') {
  const policy = await published(texts, type, prefix);
  await done('POST', `${policy.at}/make-current`);
  return policy;
}
const agree = (as: Author, { type, version }: { type: string; version: string }, locale = 'en') =>
  done<Consent>('POST', CONSENTS, { as, body: { type, version, locale } });
const statusOf = (as: Author, prefix = '') => done<Status>('GET', `${prefix}${CONSENTS}/status`, { as });
async function audited(count: number) {
  const { items } = await done<Page<{ action: string; target: string; actor: string }>>(
    'GET',
    `/v1/admin/audit-log?limit=${count}`,
  );
  return items.map(({ action, target, actor }) => {
    expect(actor).toBe(root.pubkey);
    return `${action} ${target}`;
  });
}
/** How much some work raises the two polled versions. */
async function raised(work: () => Promise<unknown>) {
  const before = await readConfigVersions(relay.database.pool);
  await work();
  const after = await readConfigVersions(relay.database.pool);
  return [after.version - before.version, after.rightsVersion - before.rightsVersion];
}

describe('a draft', () => {
  it('starts without texts, gets and loses them; each step is in the audit log', async () => {
    const version = newVersion();
    const made = await done<Policy>('POST', ADMIN, { as: root, body: { type: 'privacy', version } });
    expect(made).toEqual({
      type: 'privacy',
      version,
      status: 'draft',
      created_at: TIME,
      published_at: null,
      current_at: null,
      texts: [],
    });
    const at = `${ADMIN}/privacy/${version}`;
    const body = { title: 'Privacy', content: 'We keep little.' };
    expect(await done('PUT', `${at}/texts/en`, { as: root, body })).toEqual({
      locale: 'en',
      ...body,
      content_hash: sha256(body.content),
      updated_at: TIME,
    });
    await write(at, 'en', 'We keep nothing.');
    expect(await done('GET', `${at}/texts/en`)).toMatchObject({ content: 'We keep nothing.' });
    expect((await done<Policy>('GET', at)).texts).toEqual([
      {
        locale: 'en',
        title: 'Terms (en)',
        content_hash: sha256('We keep nothing.'),
        updated_at: TIME,
      },
    ]);
    expect(await done('DELETE', `${at}/texts/en`)).toMatchObject({ locale: 'en' });
    expect((await done<Policy>('GET', at)).texts).toEqual([]);
    await write(at, 'ja', 'ほとんど何も。');
    expect(await done<Policy>('DELETE', at)).toMatchObject({ version, status: 'draft' });
    await api.refused(404, 'NOT_FOUND', 'GET', at, { as: root });
    expect(await audited(6)).toEqual([
      `policy.delete privacy/${version}`,
      `policy-text.write privacy/${version}/ja`,
      `policy-text.delete privacy/${version}/en`,
      `policy-text.write privacy/${version}/en`,
      `policy-text.write privacy/${version}/en`,
      `policy.create privacy/${version}`,
    ]);
  });

  it('is seen by operators only', async () => {
    const { version, public: path } = await draft({ en: 'secret' });
    await api.refused(404, 'NOT_FOUND', 'GET', path);
    const { items } = await done<Page<Policy>>('GET', ADMIN);
    expect(items[0]).toMatchObject({ version, status: 'draft' });
    const as = newAuthor();
    await api.refused(404, 'NOT_FOUND', 'POST', CONSENTS, {
      as,
      body: { type: 'terms', version, locale: 'en' },
    });
  });

  it('cannot be created twice, nor with an invalid type or version', async () => {
    const { type, version } = await draft();
    await api.refused(409, 'POLICY_EXISTS', 'POST', ADMIN, { as: root, body: { type, version } });
    for (const body of [
      {},
      { type: 'cookies', version: '1' },
      { type: 'terms', version: '../1' },
      { type: 'terms', version: '1', status: 'current' },
    ])
      await api.refused(400, 'INVALID_REQUEST', 'POST', ADMIN, { as: root, body });
  });

  it('accepts texts in valid languages, under one spelling, and within the limits', async () => {
    const { at } = await draft();
    await write(at, 'PT-br', 'um');
    await write(at, 'pt-BR', 'dois');
    expect((await done<Policy>('GET', at)).texts).toEqual([expect.objectContaining({ locale: 'pt-BR' })]);
    const body = { title: 'x', content: 'x' };
    for (const locale of ['en_US', 'e', 'x'.repeat(40)])
      await api.refused(400, 'INVALID_REQUEST', 'PUT', `${at}/texts/${locale}`, { as: root, body });
    for (const wrong of [
      { title: '', content: 'x' },
      { title: 'x', content: '' },
      { title: 'x' },
      { title: 'x', content: 'a\u0000b' },
      { title: 'x', content: 'x'.repeat(CONTENT_LENGTH_MAX + 1) },
    ])
      await api.refused(400, 'INVALID_REQUEST', 'PUT', `${at}/texts/en`, { as: root, body: wrong });
    const long = '規'.repeat(CONTENT_LENGTH_MAX);
    expect(await write(at, 'ja', long)).toMatchObject({ content_hash: sha256(long) });
    const huge = { title: 'x', content: 'x'.repeat(1_100_000) };
    await api.refused(413, 'PAYLOAD_TOO_LARGE', 'PUT', `${at}/texts/en`, { as: root, body: huge });
  });

  it(`has at most ${LOCALES_MAX} languages`, async () => {
    const { at } = await draft();
    const letters = 'abcdefghijklmnopqrstuvwxyz';
    for (let n = 0; n < LOCALES_MAX; n += 1)
      await write(at, `q${letters[Math.floor(n / 26)]}${letters[n % 26]}`, 'x');
    await api.refused(409, 'STATUS_CONFLICT', 'PUT', `${at}/texts/en`, {
      as: root,
      body: { title: 'x', content: 'x' },
    });
  });

  it('is published only with a text, and cannot become current before', async () => {
    const { at } = await draft();
    await api.refused(409, 'STATUS_CONFLICT', 'POST', `${at}/publish`, { as: root });
    await write(at, 'en', 'x');
    const { body } = await api.refused(409, 'STATUS_CONFLICT', 'POST', `${at}/make-current`, { as: root });
    expect(body.details).toEqual({ status: 'draft' });
  });

  it('that does not exist is not found by any route', async () => {
    const nowhere = `${ADMIN}/terms/none`;
    const { at } = await draft();
    for (const [method, path] of [
      ['GET', nowhere],
      ['DELETE', nowhere],
      ['POST', `${nowhere}/publish`],
      ['POST', `${nowhere}/make-current`],
      ['GET', `${nowhere}/texts/en`],
      ['DELETE', `${nowhere}/texts/en`],
      ['GET', `${at}/texts/en`],
      ['DELETE', `${at}/texts/en`],
      ['GET', `${at.replace('/v1', '/c/art/v1')}`],
    ] as const)
      await api.refused(404, 'NOT_FOUND', method, path, { as: root });
    await api.refused(404, 'NOT_FOUND', 'PUT', `${nowhere}/texts/en`, {
      as: root,
      body: { title: 'x', content: 'x' },
    });
  });
});

describe('a published version', () => {
  it('does not change any more, and publishing it twice changes nothing', async () => {
    const { at, version, public: path } = await published({ en: 'one' });
    const before = await done<Policy>('GET', at);
    expect(before).toMatchObject({ status: 'published', published_at: TIME, current_at: null });
    expect(await done('POST', `${at}/publish`)).toEqual(before);
    const body = { title: 'Terms (en)', content: 'two' };
    await api.refused(409, 'POLICY_PUBLISHED', 'PUT', `${at}/texts/en`, { as: root, body });
    await api.refused(409, 'POLICY_PUBLISHED', 'PUT', `${at}/texts/EN`, { as: root, body });
    await api.refused(409, 'POLICY_PUBLISHED', 'DELETE', `${at}/texts/en`, { as: root });
    await api.refused(409, 'POLICY_PUBLISHED', 'DELETE', at, { as: root });
    await write(at, 'en', 'one');
    expect(await done('GET', at)).toEqual(before);
    expect((await done<Shown>('GET', path, {})).content).toBe('one');
    expect(await audited(1)).toEqual([`policy.publish terms/${version}`]);
  });

  it('accepts a translation that it does not have yet', async () => {
    const { at, public: path } = await published({ ja: '仲良く' });
    await write(at, 'en', 'Be kind');
    expect(await done<Shown>('GET', `${path}?locale=en`, {})).toMatchObject({
      locale: 'en',
      locales: ['ja', 'en'],
    });
    expect((await done<Shown>('GET', path, {})).locale).toBe('ja');
    await api.refused(409, 'POLICY_PUBLISHED', 'DELETE', `${at}/texts/en`, { as: root });
  });

  it('is shown to everyone in the requested language, a similar one, or the first', async () => {
    const { public: path, version } = await published({ ja: '仲良く', 'en-GB': 'Be kind' });
    expect(await done('GET', `${path}?locale=EN-gb`, {})).toEqual({
      type: 'terms',
      version,
      status: 'published',
      locale: 'en-GB',
      locales: ['ja', 'en-GB'],
      title: 'Terms (en-GB)',
      content: 'Be kind',
      content_hash: sha256('Be kind'),
      published_at: TIME,
      current_at: null,
    });
    for (const [query, locale] of [
      ['?locale=en-US', 'en-GB'],
      ['?locale=fr', 'ja'],
      ['', 'ja'],
    ])
      expect((await done<Shown>('GET', path + query, {})).locale).toBe(locale);
    await api.refused(400, 'INVALID_REQUEST', 'GET', `${path}?locale=en_US`);
    await api.refused(400, 'INVALID_REQUEST', 'GET', `${POLICIES}/cookies/${version}`);
    await api.refused(404, 'NOT_FOUND', 'GET', `${POLICIES}/privacy/${version}`);
    await api.refused(404, 'NOT_FOUND', 'GET', `/c/art${path}`);
  });

  it('has the hash of exactly the shown bytes', async () => {
    const content = ' \ufeffLine\r\nline\u2028 "é" e\u0301 \\u0041 \ud83d\ude00\t\n';
    const { public: path } = await published({ en: content });
    const shown = await done<Shown>('GET', path, {});
    expect(shown.content).toBe(content);
    expect(shown.content_hash).toBe(sha256(shown.content));
  });
});

describe('the current version', () => {
  it('is one per type; the previous one becomes published and can become current again', async () => {
    const [first, second] = [await published({ en: 'one' }), await published({ en: 'two' })];
    const privacy = await current({ en: 'mine' }, 'privacy');
    const versionsNow = async () =>
      (await done<{ items: Shown[] }>('GET', `${POLICIES}/current`, {})).items.map(
        ({ type, version, status, current_at, locale }) => ({ type, version, status, current_at, locale }),
      );
    const shown = ({ type, version }: { type: string; version: string }) => ({
      type,
      version,
      status: 'current',
      current_at: TIME,
      locale: 'en',
    });
    for (const policy of [first, second, first]) {
      expect(await done('POST', `${policy.at}/make-current`)).toMatchObject({ status: 'current' });
      expect(await versionsNow()).toEqual([shown(privacy), shown(policy)]);
    }
    expect(await done('GET', second.at)).toMatchObject({ status: 'published' });
    const before = await done('GET', first.at);
    expect(await raised(() => done('POST', `${first.at}/make-current`))).toEqual([0, 0]);
    expect(await done('GET', first.at)).toEqual(before);
    expect(await audited(1)).toEqual([`policy.make-current terms/${first.version}`]);
    await api.refused(409, 'POLICY_PUBLISHED', 'DELETE', first.at, { as: root });
  });

  it('is known to every instance; drafts and published versions notify nobody', async () => {
    const policy = await draft();
    const publishing = async () => {
      await write(policy.at, 'en', 'x');
      await done('POST', `${policy.at}/publish`);
    };
    expect(await raised(publishing)).toEqual([0, 0]);
    expect(await raised(() => done('POST', `${policy.at}/make-current`))).toEqual([1, 1]);
    expect(await raised(() => write(policy.at, 'de', 'y'))).toEqual([0, 0]);
    await expect
      .poll(() => relay.node.communities.find(undefined, undefined)!.policies, { timeout: 100_000 })
      .toContainEqual({ type: 'terms', version: policy.version });
  });

  it('belongs to its own community', async () => {
    await current();
    expect(await done('GET', `/c/quiet${POLICIES}/current`, {})).toEqual({ items: [] });
    expect(await statusOf(newAuthor(), '/c/quiet')).toEqual({ required: [], complete: true });
  });

  it('is shown in the best language of each type', async () => {
    await current({ ja: 'い', en: 'a' }, 'terms', '/c/art');
    await current({ de: 'ä', ja: 'ろ' }, 'privacy', '/c/art');
    const locales = async (query: string) =>
      (await done<{ items: Shown[] }>('GET', `/c/art${POLICIES}/current${query}`, {})).items.map(
        ({ type, locale }) => [type, locale],
      );
    expect(await locales('?locale=en')).toEqual([
      ['privacy', 'de'],
      ['terms', 'en'],
    ]);
    expect(await locales('?locale=ja-JP')).toEqual([
      ['privacy', 'ja'],
      ['terms', 'ja'],
    ]);
    await api.refused(400, 'INVALID_REQUEST', 'GET', `${POLICIES}/current?locale=-`);
  });
});

describe('a consent', () => {
  it('stores what was agreed to, completes the status, and is given once', async () => {
    const [terms, privacy] = [
      await current({ en: 'Be kind', ja: '仲良く' }),
      await current({ en: 'x' }, 'privacy'),
    ];
    const as = newAuthor();
    const asked = (one: { version: string }, type: string, locales: string[]) => ({
      type,
      version: one.version,
      locales,
      consented: false,
    });
    expect(await statusOf(as)).toEqual({
      required: [asked(privacy, 'privacy', ['en']), asked(terms, 'terms', ['en', 'ja'])],
      complete: false,
    });
    const given = await done<Consent>('POST', CONSENTS, {
      as,
      body: { type: 'terms', version: terms.version, locale: 'JA', content_hash: sha256('仲良く') },
    });
    expect(given).toEqual({
      consent_id: expect.stringMatching(/^[0-9a-f-]{36}$/),
      type: 'terms',
      version: terms.version,
      locale: 'ja',
      content_hash: sha256('仲良く'),
      consented_at: TIME,
      withdrawn_at: null,
    });
    expect(await raised(() => agree(as, terms, 'en'))).toEqual([0, 0]);
    expect(await agree(as, terms, 'en')).toEqual(given);
    expect(await raised(() => agree(as, privacy))).toEqual([0, 1]);
    const { required, complete } = await statusOf(as);
    expect(complete).toBe(true);
    expect(required[1]).toEqual({
      ...asked(terms, 'terms', ['en', 'ja']),
      consented: true,
      consent_id: given.consent_id,
      consented_at: given.consented_at,
    });
  });

  it('is one row under concurrency', async () => {
    const policy = await current({ en: 'x', ja: 'い' });
    const as = newAuthor();
    const all = await Promise.all(
      Array.from({ length: 8 }, (_, n) => agree(as, policy, n % 2 ? 'en' : 'ja')),
    );
    expect(new Set(all.map(({ consent_id }) => consent_id)).size).toBe(1);
    expect((await done<Page<Consent>>('GET', CONSENTS, { as })).items).toHaveLength(1);
  });

  it('covers later translations, but no later version', async () => {
    const first = await current({ ja: '仲良く' });
    const privacy = await current({ en: 'x' }, 'privacy');
    const as = newAuthor();
    await agree(as, first, 'ja');
    await agree(as, privacy);
    await write(first.at, 'en', 'Be kind');
    expect((await statusOf(as)).complete).toBe(true);
    const second = await published({ ja: 'もっと仲良く' });
    expect((await statusOf(as)).complete).toBe(true);
    await done('POST', `${second.at}/make-current`);
    expect(await statusOf(as)).toMatchObject({
      complete: false,
      required: [
        { type: 'privacy', consented: true },
        { type: 'terms', version: second.version, consented: false },
      ],
    });
    await done('POST', `${first.at}/make-current`);
    expect((await statusOf(as)).complete).toBe(true);
  });

  it('is only for the current version, in an existing language, with its exact hash', async () => {
    const old = await current();
    const policy = await current({ en: 'new' });
    const as = newAuthor();
    const refused = (status: number, code: string, body: object) =>
      api.refused(status, code, 'POST', CONSENTS, { as, body });
    const { version } = policy;
    await refused(409, 'POLICY_NOT_CURRENT', { type: 'terms', version: old.version, locale: 'en' });
    await refused(404, 'NOT_FOUND', { type: 'terms', version, locale: 'fr' });
    await refused(404, 'NOT_FOUND', { type: 'terms', version: 'none', locale: 'en' });
    await refused(404, 'NOT_FOUND', { type: 'privacy', version, locale: 'en' });
    const { body } = await refused(409, 'VERSION_MISMATCH', {
      type: 'terms',
      version,
      locale: 'en',
      content_hash: sha256('old'),
    });
    expect(body.details).toEqual({ content_hash: sha256('new') });
    for (const wrong of [
      {},
      { type: 'terms', version, locale: 'en_US' },
      { type: 'terms', version, locale: 'en', content_hash: 'abc' },
      { type: 'terms', version, locale: 'en', pubkey: newAuthor().pubkey },
    ])
      await refused(400, 'INVALID_REQUEST', wrong);
    expect((await done<Page<Consent>>('GET', CONSENTS, { as })).items).toEqual([]);
    const path = `/c/art${CONSENTS}`;
    await api.refused(404, 'NOT_FOUND', 'POST', path, { as, body: { type: 'terms', version, locale: 'en' } });
  });

  it('can be withdrawn by its member and given again; the history has both', async () => {
    const policy = await current();
    const as = newAuthor();
    const first = await agree(as, policy);
    const path = `${CONSENTS}/${first.consent_id}/withdraw`;
    await api.refused(404, 'NOT_FOUND', 'POST', path, { as: newAuthor() });
    await api.refused(404, 'NOT_FOUND', 'POST', `/c/art${path}`, { as });
    await api.refused(404, 'NOT_FOUND', 'POST', `${CONSENTS}/${UNKNOWN}/withdraw`, { as });
    await api.refused(400, 'INVALID_REQUEST', 'POST', `${CONSENTS}/x/withdraw`, { as });
    let withdrawn: Consent | undefined;
    const withdraw = async () => {
      withdrawn = await done<Consent>('POST', path, { as });
    };
    expect(await raised(withdraw)).toEqual([0, 1]);
    expect(withdrawn).toEqual({ ...first, withdrawn_at: TIME });
    expect(await raised(() => done('POST', path, { as }))).toEqual([0, 0]);
    expect(await done('POST', path, { as })).toEqual(withdrawn);
    expect((await statusOf(as)).required).toContainEqual(
      expect.objectContaining({ version: policy.version, consented: false }),
    );
    const again = await agree(as, policy);
    expect(again.consent_id).not.toBe(first.consent_id);
    const one = await done<Page<Consent>>('GET', `${CONSENTS}?limit=1`, { as });
    const two = await done<Page<Consent>>('GET', `${CONSENTS}?limit=1&cursor=${one.next_cursor}`, { as });
    expect([...one.items, ...two.items].sort((a, b) => a.consented_at - b.consented_at)).toEqual(
      expect.arrayContaining([withdrawn, again]),
    );
    expect(two.next_cursor).toBeNull();
    expect((await done<Page<Consent>>('GET', CONSENTS, { as: newAuthor() })).items).toEqual([]);
    expect((await done<Page<Consent>>('GET', `/c/art${CONSENTS}`, { as })).items).toEqual([]);
  });

  it('is listed for operators, by type and version, including withdrawn ones', async () => {
    const [policy, privacy] = [await current(), await current({ en: 'x' }, 'privacy')];
    const [alice, bob] = [newAuthor(), newAuthor()];
    const given = await agree(alice, policy);
    const withdrawn = await agree(bob, policy);
    await agree(bob, privacy);
    await done('POST', `${CONSENTS}/${withdrawn.consent_id}/withdraw`, { as: bob });
    const list = async (query: string) =>
      (await done<Page<Consent & { pubkey: string }>>('GET', `/v1/admin/consents${query}`)).items;
    const found = await list(`?type=terms&version=${policy.version}`);
    expect(found).toHaveLength(2);
    expect(found).toContainEqual({ ...given, pubkey: alice.pubkey });
    expect(found).toContainEqual({ ...withdrawn, withdrawn_at: TIME, pubkey: bob.pubkey });
    expect((await list('?type=privacy')).every(({ type }) => type === 'privacy')).toBe(true);
    expect((await list('?limit=3')).length).toBe(3);
    expect(await list('?version=none')).toEqual([]);
    const elsewhere = await done<Page<Consent>>('GET', '/c/quiet/v1/admin/consents');
    expect(elsewhere.items).toEqual([]);
    await api.refused(400, 'INVALID_REQUEST', 'GET', '/v1/admin/consents?type=cookies', { as: root });
  });
});

describe('access', () => {
  it('routes of members need a fresh signature and an account that is not refused', async () => {
    const policy = await current();
    for (const [method, path] of [
      ['GET', `${CONSENTS}/status`],
      ['GET', CONSENTS],
      ['POST', CONSENTS],
      ['POST', `${CONSENTS}/${UNKNOWN}/withdraw`],
    ] as const)
      await api.refused(401, 'AUTH_REQUIRED', method, path);
    const as = newAuthor();
    const body = { type: 'terms', version: policy.version, locale: 'en' };
    const url = relay.http + CONSENTS;
    const headers = { authorization: authorization(credential(as, { method: 'POST', url, body })) };
    expect((await api.ask('POST', CONSENTS, { body, headers })).status).toBe(201);
    await api.refused(401, 'REPLAYED_AUTH', 'POST', CONSENTS, { body, headers });
    await done('PATCH', `/v1/admin/members/${as.pubkey}`, { as: root, body: { status: 'disabled' } });
    await api.refused(403, 'ACCOUNT_DISABLED', 'POST', CONSENTS, { as, body });
  });

  it('routes of operators are refused to everybody else', async () => {
    const { at } = await draft({ en: 'x' });
    const as = newAuthor();
    for (const [method, path] of [
      ['GET', ADMIN],
      ['POST', ADMIN],
      ['GET', at],
      ['DELETE', at],
      ['POST', `${at}/publish`],
      ['POST', `${at}/make-current`],
      ['GET', `${at}/texts/en`],
      ['PUT', `${at}/texts/en`],
      ['DELETE', `${at}/texts/en`],
      ['GET', '/v1/admin/consents'],
    ] as const) {
      await api.refused(401, 'AUTH_REQUIRED', method, path);
      await api.refused(403, 'OPERATORS_ONLY', method, path, { as });
    }
  });
});

it('lists of versions come in pages without gaps, and a foreign cursor is refused', async () => {
  const made = [await draft({}, 'terms', '/c/quiet'), await draft({}, 'privacy', '/c/quiet')];
  made.push(await draft({}, 'terms', '/c/quiet'));
  const seen: string[] = [];
  for (let cursor = ''; ; ) {
    const page = await done<Page<Policy>>('GET', `/c/quiet${ADMIN}?limit=1${cursor}`);
    seen.push(...page.items.map(({ version }) => version));
    if (page.next_cursor === null) break;
    cursor = `&cursor=${page.next_cursor}`;
  }
  expect(seen).toHaveLength(made.length);
  expect(new Set(seen)).toEqual(new Set(made.map(({ version }) => version)));
  const bad = Buffer.from(JSON.stringify([1, '\u0000', ''])).toString('base64url');
  await api.refused(400, 'INVALID_REQUEST', 'GET', `${ADMIN}?cursor=${bad}`, { as: root });
});

it('while authentication is not required, nobody needs a consent', async () => {
  await current();
  const as = newAuthor();
  expect((await statusOf(as)).complete).toBe(false);
  const body = { topic_id: `kukuri:${'e'.repeat(64)}` };
  expect((await api.ask('POST', '/v1/topic-subscription-requests', { as, body })).status).toBe(201);
});

it('every documented refusal of a policy or consent route was tested above', () => {
  // Refusals that every route has: of the body, the signature, the address, the rate, and failures.
  const common = new RegExp(
    '^(INVALID_(REQUEST|AUTH|TOKEN|SESSION)|CSRF_|PAYLOAD_|UNSUPPORTED_|AUTH_|REPLAYED_|' +
      'ACCOUNT_|ADDRESS_|RATE_|BEING_|UNAVAILABLE|INTERNAL)',
  );
  const named = Object.entries(document.paths)
    .filter(([template]) => /policies|consents/.test(template))
    .flatMap(([template, methods]) =>
      Object.entries(methods).flatMap(([method, operation]) =>
        Object.keys(operation.responses)
          .flatMap((status) => (Number(status) < 400 ? [] : codesOf(operation, Number(status))))
          .filter((code) => !common.test(code))
          .map((code) => `${method.toUpperCase()} ${template} ${code}`),
      ),
    );
  expect(named.length).toBeGreaterThan(20);
  expect(named.filter((one) => !met.has(one))).toEqual([]);
});
