/**
 * Stored events over real HTTP, for operators: every way to find them, page by page, in every state; what is
 * concealed; and who is served an event, compared with what the relay really serves.
 */
import { naddrEncode, neventEncode, noteEncode, npubEncode } from 'nostr-tools/nip19';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { addCommunity, writeSetting } from '../../src/communities/communities.sql.js';
import type { SettingKey } from '../../src/communities/rules-settings.js';
import type { NostrEvent } from '../../src/events/rules/event.js';
import { eventually } from '../support/cli.js';
import { type Api, authorization, createApi, credential } from '../support/clients/api.js';
import { RawClient } from '../support/clients/client.js';
import { writeTopic } from '../support/domains/topics.js';
import { type Author, type Draft, newAuthor, nowSeconds, sign } from '../support/events.js';
import { startTestNode, type TestNode } from '../support/node.js';

const EVENTS = '/v1/admin/events';
const root = newAuthor();
let aheadMs = 0;
let relay: TestNode;
let api: Api;
let client: RawClient;
let home: number;

beforeAll(async () => {
  const now = () => Date.now() + aheadMs;
  relay = await startTestNode({ env: { MINATO_ADMIN_PUBKEYS: root.pubkey }, now, jobs: [] });
  api = createApi(relay.http);
  client = await RawClient.connect(relay.url);
  await addCommunity(relay.database.pool, 'art', undefined, Date.now());
  await relay.node.communities.refresh();
  home = relay.node.communities.find(undefined, undefined)!.id;
});
afterAll(async () => {
  await client.close();
  await relay.close();
});

interface Found {
  readonly event_id: string;
  readonly author: string;
  readonly kind: number;
  readonly state: string;
  readonly hidden_at: number | null;
  readonly topics: string[];
  readonly concealed: string | null;
  readonly event: NostrEvent | null;
}
interface Page {
  readonly items: Found[];
  readonly next_cursor: string | null;
}

async function get<T>(path: string): Promise<T> {
  const signed = { created_at: nowSeconds() + Math.floor(aheadMs / 1_000) };
  const authorized = authorization(credential(root, { method: 'GET', url: relay.http + path }, signed));
  const { status, body } = await api.ask<T>('GET', path, { headers: { authorization: authorized } });
  expect({ status, body }).toMatchObject({ status: 200 });
  return body;
}
const find = (query: Record<string, string | number>) => {
  const texts = Object.fromEntries(Object.entries(query).map(([key, value]) => [key, String(value)]));
  return get<Page>(`${EVENTS}?${new URLSearchParams(texts)}`);
};
const idsOf = ({ items }: Page) => items.map(({ event_id }) => event_id);

/** Every page of a list, with this many items at most. */
async function findAll(query: Record<string, string | number>, limit: number): Promise<string[]> {
  const ids: string[] = [];
  let cursor: string | null = null;
  do {
    const page: Page = await find({ ...query, limit, ...(cursor === null ? {} : { cursor }) });
    expect(page.items.length).toBeLessThanOrEqual(limit);
    ids.push(...idsOf(page));
    cursor = page.next_cursor;
  } while (cursor !== null);
  return ids;
}

async function publish(author: Author, draft: Draft = {}): Promise<NostrEvent> {
  const event = sign(author, { content: `harbour ${Math.random()}`, ...draft });
  expect(await client.publish(event)).toEqual([true, '']);
  return event;
}
const deletion = (author: Author, tags: string[][]) => publish(author, { kind: 5, tags, content: '' });

async function set(key: SettingKey, value: unknown): Promise<void> {
  await writeSetting(relay.database.pool, home, key, value, Date.now());
  await relay.node.communities.refresh();
}

describe('found', () => {
  it('by its id in any spelling, with the seven fields', async () => {
    const event = await publish(newAuthor(), { tags: [['t', 'boats']] });
    for (const id of [
      event.id,
      noteEncode(event.id),
      neventEncode({ id: event.id }),
      `nostr:${noteEncode(event.id)}`,
    ])
      expect(await find({ id })).toMatchObject({
        items: [
          { event_id: event.id, author: event.pubkey, state: 'served', topics: ['boats'], concealed: null },
        ],
        next_cursor: null,
      });
    expect((await find({ id: event.id })).items[0]?.event).toEqual({ ...event });
    expect(idsOf(await find({ id: 'f'.repeat(64) }))).toEqual([]);
    await api.refused(400, 'INVALID_REQUEST', 'GET', `${EVENTS}?id=harbour`, { as: root });
  });

  it('by an address, with its hidden versions by their state', async () => {
    const author = newAuthor();
    const [early, late] = [nowSeconds() - 20, nowSeconds() - 10];
    const old = await publish(author, { kind: 30_023, tags: [['d', 'a']], created_at: early });
    const current = await publish(author, { kind: 30_023, tags: [['d', 'a']], created_at: late });
    await publish(author, { kind: 30_023, tags: [['d', 'b']], created_at: late });
    const id = naddrEncode({ kind: 30_023, pubkey: author.pubkey, identifier: 'a' });
    expect(idsOf(await find({ id }))).toEqual([current.id]);
    const { items } = await find({ id, state: 'hidden' });
    expect(items).toMatchObject([{ event_id: old.id, state: 'superseded', event: { id: old.id } }]);
  });

  it('by author, kind, topic and time together', async () => {
    const author = newAuthor();
    const at = nowSeconds() - 1_000;
    const events = [];
    for (let n = 0; n < 4; n += 1)
      events.push(
        await publish(author, {
          kind: n % 2 === 0 ? 1 : 7,
          tags: [['t', n < 2 ? 'x' : 'y']],
          created_at: at + n,
        }),
      );
    const [first, second, third, fourth] = events.map(({ id }) => id);
    const { pubkey } = author;
    expect(idsOf(await find({ author: pubkey }))).toEqual([fourth, third, second, first]);
    expect(idsOf(await find({ author: npubEncode(pubkey), kind: 7 }))).toEqual([fourth, second]);
    expect(idsOf(await find({ author: pubkey, kind: '1,7', topic: 'y' }))).toEqual([fourth, third]);
    expect(idsOf(await find({ author: pubkey, since: at + 1, until: at + 2 }))).toEqual([third, second]);
    for (const wrong of ['author=harbour', 'kind=70000', 'kind=x', 'state=gone', 'cursor=x', 'until=-1'])
      await api.refused(400, 'INVALID_REQUEST', 'GET', `${EVENTS}?${wrong}`, { as: root });
  });

  it('page by page without a gap or a repeat, also among events of one second', async () => {
    const author = newAuthor();
    const events: NostrEvent[] = [];
    for (let n = 0; n < 13; n += 1)
      events.push(
        await publish(author, { tags: [['t', 'pages']], content: `lantern ${n}`, created_at: 1_700_000_000 }),
      );
    const expected = events.map(({ id }) => id).sort();
    for (const query of [{ author: author.pubkey }, { topic: 'pages' }, { topic: 'pages', kind: 1 }])
      expect(await findAll(query, 5)).toEqual(expected);
    await eventually('it is indexed', async () =>
      (await findAll({ text: 'lantern' }, 5)).length === 13 ? true : undefined,
    );
    expect(await findAll({ text: 'lantern' }, 5)).toEqual(expected);
    expect(await findAll({ text: 'lantern', author: author.pubkey }, 5)).toEqual(expected);
    await deletion(
      author,
      expected.map((id) => ['e', id]),
    );
    expect(await findAll({ author: author.pubkey, state: 'hidden' }, 5)).toEqual(expected);
    expect(await findAll({ author: author.pubkey, state: 'hidden', topic: 'pages' }, 5)).toEqual(expected);
    const deleted = await findAll({ state: 'deleted' }, 5);
    expect(deleted.filter((id) => expected.includes(id))).toEqual(expected);
    expect(new Set(deleted).size).toBe(deleted.length);
  });

  it('with its state, and nothing of what its author took back or wrote to somebody only', async () => {
    const [author, other] = [newAuthor(), newAuthor()];
    const served = await publish(author);
    const deleted = await publish(author);
    await deletion(author, [['e', deleted.id]]);
    const removed = await publish(author);
    const both = await publish(author);
    for (const { id } of [removed, both]) await remove(id);
    await client.publish(sign(author, { kind: 5, tags: [['e', both.id]], content: '' }));
    const secret = await publish(author, { kind: 4, tags: [['p', other.pubkey]], content: 'for your eyes' });
    const shown = async ({ id }: NostrEvent) => {
      const [item] = (await find({ id })).items;
      expect(item?.event === null).toBe(item?.concealed !== null);
      return [item?.state, item?.concealed];
    };
    expect(await shown(served)).toEqual(['served', null]);
    expect(await shown(deleted)).toEqual(['deleted', 'deleted']);
    expect(await shown(removed)).toEqual(['removed', null]);
    expect(await shown(both)).toEqual(['removed', 'deleted']);
    expect(await shown(secret)).toEqual(['served', 'private']);
    const hidden = await find({ author: author.pubkey, state: 'hidden' });
    expect(idsOf(hidden).sort()).toEqual([deleted.id, removed.id, both.id].sort());
    expect(idsOf(await find({ state: 'removed' })).sort()).toEqual([removed.id, both.id].sort());
    const everything = JSON.stringify([await find({ author: author.pubkey }), hidden]);
    for (const { content } of [deleted, both, secret]) expect(everything).not.toContain(content);
    await api.refused(400, 'INVALID_REQUEST', 'GET', `${EVENTS}?state=hidden`, { as: root });
    await api.refused(400, 'INVALID_REQUEST', 'GET', `${EVENTS}?state=removed&text=x`, { as: root });
  });

  it('as expired, past its retention or vanished from that moment on', async () => {
    const author = newAuthor();
    const expiring = await publish(author, { tags: [['expiration', String(nowSeconds() + 3_000)]] });
    const aging = await publish(author);
    aheadMs = 3_001_000;
    expect((await find({ id: expiring.id })).items).toMatchObject([
      { state: 'expired', concealed: 'expired' },
    ]);
    aheadMs = 31 * 86_400_000;
    expect((await find({ id: aging.id })).items).toMatchObject([{ state: 'retention', concealed: null }]);
    expect((await find({ author: author.pubkey })).items).toMatchObject([{ event_id: aging.id }]);
    aheadMs = 0;
    await publish(author, { kind: 62, tags: [['relay', 'ALL_RELAYS']], content: '' });
    expect((await find({ id: aging.id })).items).toMatchObject([{ state: 'vanished', event: null }]);
  });

  it('in its own community only', async () => {
    const event = await publish(newAuthor());
    const inArt = await get<Page>(`/c/art${EVENTS}?id=${event.id}`);
    expect(inArt.items).toEqual([]);
    expect((await get<Page>(`/c/art${EVENTS}`)).items).toEqual([]);
    await api.refused(404, 'NOT_FOUND', 'GET', `/c/art${EVENTS}/${event.id}/readers`, { as: root });
  });
});

async function remove(id: string): Promise<void> {
  const cases = '/v1/admin/moderation/cases';
  const opened = await api.ask<{ case_id: string }>('POST', cases, { as: root, body: { event_id: id } });
  const path = `${cases}/${opened.body.case_id}/actions`;
  expect((await api.ask('POST', path, { as: root, body: { action: 'remove' } })).status).toBe(201);
}

interface Readers {
  readonly state: string;
  readonly readers: { readonly reader: string; readonly served: boolean; readonly why: string | null }[];
}
async function readersOf({ id }: NostrEvent, reader?: string): Promise<Record<string, string | null>> {
  const query = reader === undefined ? '' : `?reader=${reader}`;
  const { readers } = await get<Readers>(`${EVENTS}/${id}/readers${query}`);
  for (const { served, why } of readers) expect(served).toBe(why === null);
  return Object.fromEntries(readers.map(({ reader: name, why }) => [name, why]));
}

describe('the readers', () => {
  it('of a served event are everybody; of a hidden one nobody, for that reason', async () => {
    const author = newAuthor();
    const event = await publish(author);
    expect(await readersOf(event)).toEqual({ anonymous: null, member: null, subscriber: null, author: null });
    await deletion(author, [['e', event.id]]);
    const why = 'deleted';
    expect(await readersOf(event)).toEqual({ anonymous: why, member: why, subscriber: why, author: why });
    await api.refused(404, 'NOT_FOUND', 'GET', `${EVENTS}/${'f'.repeat(64)}/readers`, { as: root });
  });

  it('of a private event are its parties, as the relay serves it', async () => {
    const [author, other] = [newAuthor(), newAuthor()];
    const event = await publish(author, { kind: 4, tags: [['p', other.pubkey]], content: 'x' });
    const why = 'private';
    expect(await readersOf(event, npubEncode(other.pubkey))).toEqual({
      anonymous: why,
      member: why,
      subscriber: why,
      author: null,
      asked: null,
    });
    expect(await readersOf(event, newAuthor().pubkey)).toMatchObject({ asked: why });
    expect((await client.query({ ids: [event.id] })).events).toEqual([]);
  });

  it('of a topic that needs a subscription are those who have one', async () => {
    const author = newAuthor();
    const topic = 'kukuri:closed';
    const rules = { pinned: true, public: false, priority: 0, policy: {} };
    await writeTopic(relay.database.pool, home, topic, rules, Date.now());
    await relay.node.communities.refresh();
    const event = await publish(author, { tags: [['t', topic]] });
    const elsewhere = await publish(author, { tags: [['t', 'kukuri:nowhere']] });
    await set('auth.mode', 'required');
    expect(await readersOf(event, root.pubkey)).toEqual({
      anonymous: 'auth-required',
      member: 'subscription-required',
      subscriber: null,
      author: 'subscription-required',
      asked: 'subscription-required',
    });
    expect(await readersOf(elsewhere)).toMatchObject({ member: 'topic-not-carried' });
    await set('auth.mode', 'off');
  });
});
