/**
 * The search documents that the outbox consumer writes, and the pages of a result: applying the same changes
 * again changes nothing, a rebuilt generation equals the live one (I9), documents of deleted, purged and
 * erased events disappear (I6, I12), and pages keep their order while posts and reactions arrive.
 */
import type { Client } from 'pg';
import { afterAll, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { isDenial } from '../../src/api/rules-errors.js';
import type { Communities, Community } from '../../src/communities/communities.js';
import { type Settings, settingsFrom } from '../../src/communities/rules-settings.js';
import { countRowsOf, deleteRowsOf, stepsOf } from '../../src/erasure/rows.sql.js';
import type { Lane } from '../../src/events/postgres/lane/lane.js';
import { purgeDeleted } from '../../src/events/postgres/sweeps.js';
import { type Access, ANONYMOUS, seenBy } from '../../src/events/rules/access.js';
import { type NostrEvent, serializeEvent } from '../../src/events/rules/event.js';
import { type Filter, parseFilter } from '../../src/events/rules/filter.js';
import { readChanges, readView } from '../../src/outbox/changes.sql.js';
import { replayFrom } from '../../src/outbox/consumers/admin.sql.js';
import { readHead } from '../../src/outbox/outbox.sql.js';
import { sealPlace } from '../../src/postgres/sealed-cursor.js';
import { searchConsumer } from '../../src/search/consumer.js';
import { purgeDocuments } from '../../src/search/documents.sql.js';
import { countSearched, type SearchPage, SearchTooLong, searchPage } from '../../src/search/search.sql.js';
import { postSearchDocumentsTable } from '../../src/search/tables.sql.js';
import { indexAll } from '../support/domains/search.js';
import { unsigned } from '../support/stores/life.js';
import { openTestStore, type TestStore } from '../support/stores/store.js';

const START = Date.UTC(2026, 5, 1);
const ALICE = 'a'.repeat(64);
const BOB = 'b'.repeat(64);
const SECRET = '5e'.repeat(32);
let now = START;
let store: TestStore;
let lane: Lane;
let client: Client;
let rules: Pick<Community, 'id' | 'slug' | 'settings' | 'topics' | 'refused'>;
let posts = 0;

const communities = {
  all: () => [rules],
  get: (id: number) => (id === rules.id ? rules : undefined),
} as unknown as Pick<Communities, 'all' | 'get'>;
const index = () => indexAll(store.database, communities, now);
const withRules = (values: Partial<Settings>, topics: Community['topics'] = new Map()) => {
  rules = { ...rules, settings: settingsFrom(new Map(Object.entries(values))), topics };
};
const topic = (isPublic: boolean) =>
  ({ enabled: true, blocked: false, public: isPublic, priority: 0, policy: {} }) as const;

async function post(draft: Partial<NostrEvent>): Promise<NostrEvent> {
  posts += 1;
  const event = unsigned({
    kind: 1,
    pubkey: ALICE,
    created_at: START / 1_000 - 100_000 + posts,
    ...draft,
  });
  await lane.submit({ community: 1, event, payload: serializeEvent(event) });
  return event;
}
const remove = (event: NostrEvent) =>
  post({ kind: 5, pubkey: event.pubkey, tags: [['e', event.id]], content: `${posts}` });

interface DocumentRow {
  readonly id: string;
  readonly deleted_at: number | null;
  readonly seq: number;
  readonly words: string;
}
async function documents(generation = 1): Promise<DocumentRow[]> {
  const { rows } = await client.query<DocumentRow>(
    `SELECT encode(event_id, 'hex') AS id, deleted_at, seq, words FROM post_search_documents
     WHERE generation = $1 ORDER BY event_id`,
    [generation],
  );
  return rows;
}
const documentOf = async (event: NostrEvent) => (await documents()).find(({ id }) => id === event.id);

const filterOf = (raw: object) => parseFilter(raw, { 'limits.filterValuesMax': 100 }) as Filter;
/** By default for a client without a key. */
async function page(raw: object, limit: number, cursor?: string, client?: Access): Promise<SearchPage> {
  const { database, tagHash } = store;
  const pools = { pool: database.pool, searchPool: database.searchPool, tagHash, cursorSecret: SECRET };
  const access = client ?? { ...ANONYMOUS, enforced: rules.settings['auth.mode'] === 'required' };
  const found = await searchPage(pools, rules, seenBy(filterOf(raw), access, rules), { limit, cursor, now });
  if (isDenial(found)) throw new Error(JSON.stringify(found));
  return found;
}
const contents = ({ items }: SearchPage) =>
  items.map(({ payload }) => (JSON.parse(payload) as NostrEvent).content);

beforeAll(async () => {
  store = await openTestStore({ now: () => now });
  lane = store.lane();
  client = await store.database.connect();
});
afterAll(async () => {
  await client.end();
  await store.close();
});
beforeEach(() => {
  now = START;
  rules = {
    id: 1,
    slug: 'default',
    settings: settingsFrom(new Map()),
    topics: new Map(),
    refused: new Map(),
  };
});

describe('documents', () => {
  it('are written once and marked when deleted, and a repeated change has no effect', async () => {
    await index();
    const [kept, deleted, unknown] = [
      await post({ content: 'a kept boat' }),
      await post({ content: 'a sunk boat' }),
      await post({ kind: 7, content: 'boat' }),
    ];
    await index();
    await remove(deleted);
    await index();
    const before = await documents();
    expect(await documentOf(kept)).toMatchObject({ deleted_at: null, words: "'a':2B 'boat':4B 'kept':3B" });
    expect(await documentOf(deleted)).toMatchObject({ deleted_at: now });
    expect(await documentOf(unknown)).toBeUndefined();
    const versions = () =>
      client.query('SELECT event_id, xmin::text FROM post_search_documents ORDER BY event_id');
    const rowsBefore = (await versions()).rows;
    expect(await replayFrom(client, 'search', 0)).toBeUndefined();
    await index();
    expect(await documents()).toEqual(before);
    expect((await versions()).rows).toEqual(rowsBefore);
  });

  it('of a replaced version are deleted, and never written for a version that is not current', async () => {
    const old = await post({ kind: 0, content: '{"name":"old harbour"}' });
    await index();
    const newer = await post({ kind: 0, content: '{"name":"new harbour"}' });
    const short = await post({ content: 'posted and deleted before the index came by' });
    await remove(short);
    await index();
    expect(await documentOf(old)).toBeUndefined();
    expect(await documentOf(newer)).toBeDefined();
    expect(await documentOf(short)).toBeUndefined();
  });

  it('are removed when their event is no longer searchable', async () => {
    const event = await post({ content: 'a harbour' });
    await index();
    expect(await documentOf(event)).toBeDefined();
    withRules({ 'search.kinds': [30_023] });
    expect(await replayFrom(client, 'search', 0)).toBeUndefined();
    await index();
    expect(await documents()).toEqual((await documents()).filter(({ deleted_at }) => deleted_at !== null));
    withRules({});
    expect(await replayFrom(client, 'search', 0)).toBeUndefined();
    await index();
    expect(await documentOf(event)).toBeDefined();
  });

  it('of a rebuilt generation equal those of the live one (I9)', async () => {
    await post({ content: '東京都の港', tags: [['t', 'tea']] });
    await remove(await post({ content: 'gone again' }));
    await index();
    const consumer = searchConsumer({ communities });
    await client.query('BEGIN');
    await consumer.open!(client, 2);
    const head = await readHead(client);
    await consumer.apply(await readView(client, { after: 0, upTo: head, limit: 10_000 }), client, 2);
    const { changes } = await readChanges(client, { after: 0, limit: 10_000 });
    // A replay over the scan, as after a start position before it.
    await consumer.apply(changes, client, 2);
    await client.query('COMMIT');
    const live = (list: readonly DocumentRow[]) => list.filter(({ deleted_at }) => deleted_at === null);
    expect(live(await documents(2))).toEqual(live(await documents(1)));
    expect(live(await documents(2)).length).toBeGreaterThan(2);
    await client.query('BEGIN');
    await consumer.open!(client, 2);
    await client.query('COMMIT');
    expect(await documents(2)).toEqual([]);
    await consumer.drop!(client, 2);
    await consumer.drop!(client, 2);
    const { rows } = await client.query("SELECT to_regclass('post_search_documents_2') AS there");
    expect(rows).toEqual([{ there: null }]);
  });
});

describe('rules', () => {
  const consumer = searchConsumer({ communities });
  const outdated = () => consumer.outdated!(client, 1);
  /** Adds a post that is indexed by the current rules. */
  const open = async () => {
    await client.query('DELETE FROM search_rules');
    const [change] = await readView(client, { after: 0, upTo: await readHead(client), limit: 1 });
    await consumer.apply([change!], client, 1);
    expect(await outdated()).toBeUndefined();
    expect((await client.query('SELECT 1 FROM search_rules')).rowCount).toBe(1);
  };

  it('that changed and changed back between two checks are detected by the batches in between', async () => {
    await open();
    withRules({ 'search.kinds': [1] });
    await post({ content: 'tapir' });
    await index();
    withRules({});
    expect(await outdated()).toMatch(/kinds/);
    await index();
    expect(await outdated()).toMatch(/kinds/);
  });

  it('of a community that is not loaded yet are waited for; an unknown one has none', async () => {
    await index();
    await client.query('DELETE FROM search_rules');
    const event = await post({ content: 'okapi' });
    const [change] = (await readChanges(client, { after: (await readHead(client)) - 1, limit: 1 })).changes;
    const unseen = searchConsumer({ communities: { all: () => [], get: () => undefined } });
    await expect(unseen.apply([change!], client, 1)).rejects.toMatchObject({ code: '55P03' });
    await unseen.apply([{ ...change!, community: 999 }], client, 1);
    expect(await outdated()).toMatch(/not known/);
    await index();
    expect(await documentOf(event)).toMatchObject({ deleted_at: null });
    expect(await outdated()).toBeUndefined();
  });

  it('that have not changed, or only irrelevantly, need no rebuild', async () => {
    await open();
    expect(await outdated()).toBeUndefined();
    withRules({ 'limits.filtersMax': 3 }, new Map([['kukuri:new', topic(true)]]));
    expect(await outdated()).toBeUndefined();
  });

  it('of kinds and of private kinds need one', async () => {
    for (const values of [{ 'search.kinds': [1] }, { 'auth.privateKinds': [4] }]) {
      withRules({});
      await open();
      withRules(values as Partial<Settings>);
      expect(await outdated()).toMatch(/^default: .* changed$/);
    }
  });

  it('of topics need none, because topics are checked when somebody searches', async () => {
    const word = 'pangolin';
    await post({ content: word, tags: [['t', 'kukuri:used']] });
    await index();
    const found = async () => contents(await page({ search: word }, 5));
    for (const [isPublic, seen] of [
      [false, []],
      [true, [word]],
    ] as const) {
      withRules({ 'auth.mode': 'required' }, new Map([['kukuri:used', topic(isPublic)]]));
      expect(await outdated()).toBeUndefined();
      expect(await found()).toEqual(seen);
    }
    withRules({ 'auth.mode': 'required', 'topic.namespace': 'other' });
    expect(await outdated()).toBeUndefined();
  });
});

describe('purging and erasing', () => {
  it('a document is purged after its event, not before', async () => {
    const events: NostrEvent[] = [];
    for (let each = 0; each < 5; each += 1) events.push(await post({ content: `purged ${each}` }));
    await index();
    now = START + 1_000;
    for (const event of events) await remove(event);
    await index();
    const deletedBefore = now + 1;
    const ofOurs = async () =>
      (await documents()).filter(
        ({ id, deleted_at }) => deleted_at === now && events.some((event) => event.id === id),
      );
    expect(await ofOurs()).toHaveLength(5);
    // Their rows are kept for the audit: nothing is purged, and each is read once.
    const from = { deletedAt: START + 999, id: 'f'.repeat(64) };
    const first = await purgeDocuments(client, { community: 1, deletedBefore, after: from }, 3);
    expect(first).toMatchObject({ purged: 0, next: { deletedAt: now } });
    expect(await purgeDocuments(client, { community: 1, deletedBefore, after: first.next }, 3)).toEqual({
      purged: 0,
      next: undefined,
    });
    await purgeDeleted(client, 1, deletedBefore, now, 1_000);
    expect(await purgeDocuments(client, { community: 1, deletedBefore: now }, 100)).toMatchObject({
      next: undefined,
    });
    expect(await ofOurs()).toHaveLength(5);
    expect(await purgeDocuments(client, { community: 2, deletedBefore }, 100)).toEqual({
      purged: 0,
      next: undefined,
    });
    const batch = await purgeDocuments(client, { community: 1, deletedBefore }, 3);
    expect(batch.purged).toBe(3);
    expect(await purgeDocuments(client, { community: 1, deletedBefore, after: batch.next }, 3)).toMatchObject(
      {
        purged: 2,
      },
    );
    expect(await ofOurs()).toEqual([]);
  });

  it('documents of one author up to a time are erased in every generation, and no others', async () => {
    const early = await post({ pubkey: BOB, content: 'early' });
    const late = await post({ pubkey: BOB, content: 'late' });
    const other = await post({ content: 'of another' });
    await index();
    const consumer = searchConsumer({ communities });
    await client.query('BEGIN');
    await consumer.open!(client, 2);
    const head = await readHead(client);
    await consumer.apply(await readView(client, { after: 0, upTo: head, limit: 10_000 }), client, 2);
    await client.query('COMMIT');
    const table = postSearchDocumentsTable;
    const mark = { type: 'member', community: 1, pubkey: BOB, until: early.created_at } as const;
    expect(await countRowsOf(client, [table], mark)).toBe(2);
    const [step] = stepsOf(table, mark);
    const erase = (limit: number) => deleteRowsOf(client, table, step!, { subject: mark, now, limit });
    expect(await erase(1)).toBe(1);
    expect(await erase(10)).toBe(1);
    expect(await erase(10)).toBe(0);
    for (const generation of [1, 2]) {
      const ids = (await documents(generation)).map(({ id }) => id);
      expect(ids).toEqual(expect.arrayContaining([late.id, other.id]));
      expect(ids).not.toContain(early.id);
    }
  });
});

describe('pages', () => {
  it.each([
    ['by the words', 'lighthouse', {}],
    ['along an author', 'headland', { authors: [ALICE] }],
  ])(
    'found %s go on in their order while posts and reactions come in, each event once',
    async (_how, word, more) => {
      const filter = { search: word, ...more };
      const made: NostrEvent[] = [];
      for (let each = 0; each < 25; each += 1)
        made.push(await post({ content: `${word} ${'and more '.repeat(each % 4)}${each}` }));
      await index();
      const whole = await page(filter, 100);
      expect(whole.items).toHaveLength(25);
      expect(whole.nextCursor).toBeUndefined();
      const scores = whole.items.map(({ score }) => score);
      expect(scores).toEqual([...scores].sort((a, b) => b - a));
      expect(new Set(scores).size).toBeGreaterThan(3);
      const seen: string[] = [];
      let cursor: string | undefined;
      do {
        const next: SearchPage = await page(filter, 4, cursor);
        seen.push(...contents(next));
        cursor = next.nextCursor;
        // A day later, with new posts at both ends, and reactions to the worst match that would make it the
        // best now.
        now += 86_400_000;
        await post({ content: word, created_at: Math.floor(now / 1_000) });
        await post({ content: `${word} ${'and more '.repeat(9)}`, created_at: 1_000 + posts });
        for (let each = 0; each < 10; each += 1)
          await post({ kind: 7, content: `${posts}`, tags: [['e', whole.items.at(-1)!.id]] });
        if (seen.length === 8) await index();
      } while (cursor !== undefined);
      expect(seen).toEqual(contents(whole));
      expect(contents(await page(filter, 100))).toHaveLength(25 + 7 * 2);
    },
  );

  it('a deleted event is missing from the following pages', async () => {
    const made: NostrEvent[] = [];
    for (let each = 0; each < 6; each += 1) made.push(await post({ content: `beacon ${each}` }));
    const first = await page({ search: 'beacon' }, 2);
    const last = await page({ search: 'beacon' }, 100);
    await remove(made.find(({ id }) => id === last.items[3]!.id)!);
    const second = await page({ search: 'beacon' }, 100, first.nextCursor);
    const left = last.items.filter((_, at) => at > 1 && at !== 3).map(({ id }) => id);
    expect(second.items.map(({ id }) => id)).toEqual(left);
  });

  it('a foreign cursor and a query without words are refused with their field', async () => {
    const { database, tagHash } = store;
    const pools = { pool: database.pool, searchPool: database.searchPool, tagHash, cursorSecret: SECRET };
    const ask = (raw: object, cursor: string | undefined) =>
      searchPage(pools, rules, filterOf(raw), { limit: 5, cursor, now });
    const text = (value: unknown) => Buffer.from(JSON.stringify(value)).toString('base64url');
    const good = [1, 1, 0.1, 1, 'a'.repeat(64)];
    for (const cursor of [
      '',
      'x',
      '%%%',
      text(null),
      text([]),
      text([...good, 1]),
      text([-1, ...good.slice(1)]),
      text([1, 1, 'x', 1, 'a']),
    ])
      expect(await ask({ search: 'sea' }, cursor)).toMatchObject({ denied: 'INVALID_REQUEST' });
    const place = { asOf: 1, cut: 1, score: 0.1, createdAt: 1, id: ALICE };
    const ours = sealPlace({ secret: SECRET, community: 1 }, place);
    expect(await ask({ search: 'sea' }, ours)).toMatchObject({ items: [] });
    expect(Buffer.from(ours, 'base64url').includes(ALICE)).toBe(false);
    const changed = Buffer.from(ours, 'base64url');
    changed[20]! ^= 1;
    for (const cursor of [
      text(good),
      changed.toString('base64url'),
      ours.slice(0, -8),
      sealPlace({ secret: SECRET, community: 2 }, place),
      sealPlace({ secret: '00'.repeat(32), community: 1 }, place),
    ])
      expect(await ask({ search: 'sea' }, cursor)).toMatchObject({ denied: 'INVALID_REQUEST' });
    const ahead = { ...place, cut: Number.MAX_SAFE_INTEGER, score: 9 };
    await post({ content: 'open sea' });
    const beyond = await ask({ search: 'sea' }, sealPlace({ secret: SECRET, community: 1 }, ahead));
    expect(beyond).toMatchObject({ items: [{}] });
    expect(await ask({ kinds: [1] }, undefined)).toMatchObject({ denied: 'INVALID_REQUEST' });
    expect(await ask({ search: '!!!' }, undefined)).toMatchObject({ items: [], nextCursor: undefined });
    await client.query(`UPDATE consumer_offsets SET generation = 0 WHERE consumer = 'search'`);
    expect(await ask({ search: 'sea' }, undefined)).toEqual({ denied: 'SEARCH_NOT_READY' });
    await client.query(`UPDATE consumer_offsets SET generation = 1 WHERE consumer = 'search'`);
  });

  it('a filter that excludes most matches still gets a full result', async () => {
    const wanted: string[] = [];
    const all = Array.from({ length: 2_500 }, (_, at) => {
      const isWanted = at < 20;
      const event = unsigned({
        kind: 1,
        pubkey: ALICE,
        created_at: START / 1_000 - 50_000 + at,
        content: `pier ${at}`,
        tags: isWanted ? [['l', 'rare']] : [],
      });
      if (isWanted) wanted.push(event.id);
      return event;
    });
    await Promise.all(
      all.map((event) => lane.submit({ community: 1, event, payload: serializeEvent(event) })),
    );
    await index();
    const found = await page({ search: 'pier', '#l': ['rare'] }, 50);
    expect(found.items.map(({ id }) => id).sort()).toEqual(wanted.sort());
  });
});

it('posts of topics that a client may not read use up none of its candidates', async () => {
  const [CLOSED, OPEN] = ['kukuri:closed', 'kukuri:open'];
  withRules(
    { 'auth.mode': 'required' },
    new Map([
      [OPEN, topic(true)],
      [CLOSED, topic(false)],
    ]),
  );
  const wanted = [];
  for (const tags of [
    [['t', OPEN]],
    [
      ['t', OPEN],
      ['t', CLOSED],
    ],
    [['t', 'sunset']],
    [],
  ])
    wanted.push((await post({ content: 'narwhal', created_at: 1_000 + posts, tags })).id);
  await Promise.all(
    Array.from({ length: 1_100 }, (_, at) => post({ content: `narwhal ${at}`, tags: [['t', CLOSED]] })),
  );
  await index();
  const { database } = store;
  let portions = 0;
  const searchPool = new Proxy(database.searchPool, {
    get: (pool, name) =>
      name !== 'query'
        ? Reflect.get(pool, name)
        : async (text: string, values: unknown[]) => {
            portions += 1;
            return pool.query(text, values);
          },
  });
  const pools = { pool: database.pool, searchPool, tagHash: store.tagHash, cursorSecret: SECRET };
  const find = async (client: Access) => {
    const filter = seenBy(filterOf({ search: 'narwhal' }), client, rules);
    const found = await searchPage(pools, rules, filter, { limit: 1_000, cursor: undefined, now });
    if (isDenial(found)) throw new Error(found.denied);
    return found.items.map(({ id }) => id);
  };
  const stranger = { ...ANONYMOUS, enforced: true };
  expect((await find(stranger)).sort()).toEqual(wanted.sort());
  expect(portions).toBe(1);
  expect(await find({ ...stranger, subscribed: new Set([CLOSED]) })).toHaveLength(1_000);
});

describe('changes that the index has not read', () => {
  it('are split into words once for all searches, and later changes are seen', async () => {
    await index();
    const made = await Promise.all(
      Array.from({ length: 30 }, (_, at) => post({ content: `penguin 東京の港に大きな船が着いた ${at}` })),
    );
    const segmented = vi.spyOn(Intl.Segmenter.prototype, 'segment');
    const find = async () => (await page({ search: 'penguin' }, 100)).items.map(({ id }) => id);
    const together = await Promise.all(Array.from({ length: 5 }, find));
    for (const ids of together) expect(ids).toHaveLength(30);
    expect(segmented).toHaveBeenCalledTimes(30);
    await remove(made[3]!);
    const late = await post({ content: 'penguin 朝の港に大きな船が着いた' });
    const ids = await find();
    expect(ids).toHaveLength(30);
    expect(ids).toContain(late.id);
    expect(ids).not.toContain(made[3]!.id);
    expect(segmented).toHaveBeenCalledTimes(31);
    segmented.mockRestore();
  });

  it('are read from the position of each search: an old page, or an index far behind', async () => {
    await index();
    for (let at = 0; at < 3; at += 1) await post({ content: `walrus ${at}` });
    const first = await page({ search: 'walrus' }, 1);
    await index();
    await post({ content: 'walrus new' });
    expect(contents(await page({ search: 'walrus' }, 9))).toHaveLength(4);
    await replayFrom(client, 'search', 0);
    expect(contents(await page({ search: 'walrus' }, 9))).toHaveLength(4);
    expect(contents(await page({ search: 'walrus' }, 9, first.nextCursor))).toHaveLength(2);
    await index();
  });
});

describe('a reference that raises a score', () => {
  const OPEN = 'kukuri:open';
  const CLOSED = 'kukuri:closed';
  const scoreOf = async (word: string, client?: Access, more = {}) =>
    (await page({ search: word, ...more }, 5, undefined, client)).items[0]!.score;

  it('must be visible to the client: no private kind, and a closed topic only to members', async () => {
    withRules(
      { 'auth.mode': 'required' },
      new Map([
        [OPEN, topic(true)],
        [CLOSED, topic(false)],
      ]),
    );
    const { id } = await post({ content: 'zebra', tags: [['t', OPEN]] });
    const before = await scoreOf('zebra');
    const refer = (kind: number, ...tags: string[][]) =>
      post({ kind, pubkey: BOB, content: `${posts}`, tags: [['e', id], ...tags] });
    await refer(4, ['p', ALICE]);
    await refer(1059, ['p', ALICE]);
    await refer(1, ['t', CLOSED]);
    expect(await scoreOf('zebra')).toBe(before);
    expect(await scoreOf('zebra', undefined, { '#t': [OPEN] })).toBe(before);
    const member: Access = { ...ANONYMOUS, enforced: true, subscribed: new Set([CLOSED]) };
    const seen = await scoreOf('zebra', member);
    expect(seen).toBeGreaterThan(before);
    expect(await scoreOf('zebra', { ...member, subscribed: new Set(['kukuri:else']) })).toBe(before);
    await refer(1, ['t', OPEN]);
    const replied = await scoreOf('zebra');
    expect(replied).toBeGreaterThan(before);
    await refer(7);
    expect(await scoreOf('zebra')).toBeGreaterThan(replied);
  });

  it('no longer counts when it expired or was deleted, or its author vanished', async () => {
    const { id } = await post({ content: 'giraffe' });
    withRules({ 'search.freshnessWeight': 0 });
    const before = await scoreOf('giraffe');
    const refer = (pubkey: string, ...tags: string[][]) =>
      post({ kind: 7, pubkey, content: `${posts}`, tags: [['e', id], ...tags] });
    await refer(BOB, ['expiration', String(now / 1_000 + 10)]);
    expect(await scoreOf('giraffe')).toBeGreaterThan(before);
    now += 10_000;
    expect(await scoreOf('giraffe')).toBe(before);
    const reaction = await refer(BOB);
    expect(await scoreOf('giraffe')).toBeGreaterThan(before);
    await remove(reaction);
    expect(await scoreOf('giraffe')).toBe(before);
    const vanishing = 'c'.repeat(64);
    const { created_at } = await refer(vanishing);
    expect(await scoreOf('giraffe')).toBeGreaterThan(before);
    await client.query(
      `INSERT INTO vanish_marks (community, pubkey, until, recipient_tag, request)
       VALUES (1, decode($1, 'hex'), $2, 0, '')`,
      [vanishing, created_at],
    );
    expect(await scoreOf('giraffe')).toBe(before);
    await client.query('DELETE FROM vanish_marks');
  });

  it('does not raise a match that is far from the best by words, and pages keep their order', async () => {
    withRules({ 'search.freshnessWeight': 0 });
    const far = await post({ content: `ostrich ${'and more '.repeat(30)}` });
    await Promise.all(
      Array.from({ length: 105 }, (_, at) =>
        post({ content: `ostrich`, created_at: START / 1_000 - 5_000 + at }),
      ),
    );
    const whole = await page({ search: 'ostrich' }, 200);
    const near = whole.items[50]!;
    for (const id of [far.id, near.id])
      await post({ kind: 7, pubkey: BOB, content: `${posts}`, tags: [['e', id]] });
    await index();
    const ids = (await page({ search: 'ostrich' }, 200)).items.map(({ id }) => id);
    expect(ids[0]).toBe(near.id);
    expect(ids.at(-1)).toBe(far.id);
    const seen: string[] = [];
    for (let cursor: string | undefined, at = 0; at === 0 || cursor !== undefined; at += 1) {
      const next: SearchPage = await page({ search: 'ostrich' }, 30, cursor);
      seen.push(...next.items.map(({ id }) => id));
      cursor = next.nextCursor;
    }
    expect(seen).toEqual(ids);
  });
});

it('a count has one time-out for all its filters', async () => {
  const { database, tagHash } = store;
  const time = new AbortController();
  let queries = 0;
  const searchPool = new Proxy(database.searchPool, {
    get: (pool, name) =>
      name !== 'query'
        ? Reflect.get(pool, name)
        : async (text: string, values: unknown[]) => {
            queries += 1;
            time.abort();
            return pool.query(text, values);
          },
  });
  const pools = { pool: database.pool, searchPool, tagHash };
  const filters = [filterOf({ search: 'boat' }), filterOf({ search: 'sea' })];
  await expect(countSearched(pools, rules, filters, 100, now, time.signal)).rejects.toThrow(SearchTooLong);
  expect(queries).toBe(1);
});

it('a search starts again when the index is replaced meanwhile', async () => {
  const event = await post({ content: 'a breakwater' });
  await index();
  const consumer = searchConsumer({ communities });
  await client.query('BEGIN');
  await consumer.open!(client, 2);
  const head = await readHead(client);
  await consumer.apply(await readView(client, { after: 0, upTo: head, limit: 10_000 }), client, 2);
  await client.query('COMMIT');
  const { database, tagHash } = store;
  let queries = 0;
  const searchPool = new Proxy(database.searchPool, {
    get: (pool, name) =>
      name !== 'query'
        ? Reflect.get(pool, name)
        : async (text: string, values: unknown[]) => {
            queries += 1;
            if (queries === 1) {
              await client.query(`UPDATE consumer_offsets SET generation = 2 WHERE consumer = 'search'`);
              await consumer.drop!(client, 1);
            }
            return pool.query(text, values);
          },
  });
  const pools = { pool: database.pool, searchPool, tagHash, cursorSecret: SECRET };
  const found = await searchPage(pools, rules, filterOf({ search: 'breakwater' }), {
    limit: 5,
    cursor: undefined,
    now,
  });
  expect(found).toMatchObject({ items: [{ id: event.id }] });
  expect(queries).toBe(2);
});
