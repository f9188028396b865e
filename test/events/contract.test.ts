/**
 * The contract of the event store (src/events/store.ts), on every store that implements it: what is accepted,
 * what is served, and what stays out, in every order of arrival.
 */
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import type { NostrEvent } from '../../src/events/rules/event.js';
import type { Filter } from '../../src/events/rules/filter.js';
import { DAY_MS } from '../../src/events/rules/retention.js';
import { type Bound, RECORD_BYTES } from '../../src/sync/rules-negentropy.js';
import { type Contract, openContract, START, STORES, settings, topicOf } from '../support/stores/contract.js';
import { hash, unsigned } from '../support/stores/life.js';

const SECONDS = START / 1_000;
const [alice, bob, carol] = ['alice', 'bob', 'carol'].map(hash) as [string, string, string];
const DELETED = 'blocked: deleted by its author';
const VANISHED = 'blocked: its author asked to vanish';
const OLDER = 'older';

let made = 0;
const note = (draft: Partial<NostrEvent> = {}) => {
  made += 1;
  return unsigned({ kind: 1, pubkey: alice, created_at: SECONDS - 100, content: `${made}`, ...draft });
};
const article = (created_at: number, draft: Partial<NostrEvent> = {}) =>
  note({ kind: 30_023, created_at, tags: [['d', 'x']], ...draft });
const profile = (created_at: number, draft: Partial<NostrEvent> = {}) =>
  note({ kind: 0, created_at, ...draft });
const byId = (...events: NostrEvent[]) => events.map(({ id }) => ['e', id]);
const request = (tags: string[][], draft: Partial<NostrEvent> = {}) =>
  note({ kind: 5, created_at: SECONDS, tags, ...draft });
const vanish = (created_at: number, pubkey = alice) =>
  note({ kind: 62, pubkey, created_at, tags: [['relay', 'ALL_RELAYS']] });

/** In both orders: the second is sent by another writer. */
const orders = [false, true];

describe.each(STORES)('%s', (name) => {
  let on: Contract;
  beforeAll(async () => {
    on = await openContract(name);
  });
  afterAll(() => on?.close());
  afterEach(() => {
    on.now = START;
  });

  const sendAll = async (community: number, ...events: NostrEvent[]) => {
    for (const event of events) expect(await on.submit(community, event)).not.toMatch(/^error/);
  };
  const both = async (community: number, isReversed: boolean, a: NostrEvent, b: NostrEvent) => {
    const [first, second] = isReversed ? [b, a] : [a, b];
    const outcomes = [await on.submit(community, first), await on.submit(community, second, { writer: 1 })];
    return isReversed ? outcomes.reverse() : outcomes;
  };

  describe('classes', () => {
    it('a regular event is stored once, whichever writer gets it, and is found whole', async () => {
      const community = on.community();
      const one = note({ tags: [['t', 'sea']] });
      expect(await both(community, false, one, one)).toEqual(['stored', 'duplicate']);
      const [found] = await on.find(community);
      expect(found).toMatchObject({ id: one.id, kind: 1, createdAt: one.created_at, ingestedAt: on.now });
      const read = await on.stores[1]!.byIds([{ community, id: one.id }]);
      expect(JSON.parse(read.get(`${community}/${one.id}`)!.payload)).toEqual(one);
      expect(await on.stores[1]!.isServed(community, one)).toBe(true);
    });

    it.each(orders)('the newest version of a key is served (reversed: %s)', async (isReversed) => {
      const community = on.community();
      for (const version of [profile, article]) {
        const [old, young] = [version(SECONDS - 10), version(SECONDS - 5)];
        const outcomes = await both(community, isReversed, old, young);
        expect(outcomes).toEqual(isReversed ? [OLDER, 'stored'] : ['stored', 'stored']);
        expect(await on.ids(community, { kinds: new Set([young.kind]) })).toEqual([young.id]);
        expect(await on.stores[0]!.isServed(community, old)).toBe(false);
      }
    });

    it.each(orders)(
      'of two versions of one second the lowest id is served (reversed: %s)',
      async (isReversed) => {
        const community = on.community();
        const versions = [article(SECONDS), article(SECONDS)];
        const [low, high] = versions.sort((a, b) => (a.id < b.id ? -1 : 1)) as [NostrEvent, NostrEvent];
        await both(community, isReversed, low, high);
        expect(await on.ids(community)).toEqual([low.id]);
      },
    );

    it('addresses differ by d, also where d is empty, long, or holds signs', async () => {
      const community = on.community();
      const values = ['', 'a', 'a:b', ':', '\u0000', '🌊', 'x'.repeat(5_000)];
      const all = values.map((d) => article(SECONDS, { tags: [['d', d]] }));
      await sendAll(community, ...all);
      expect((await on.ids(community)).sort()).toEqual(all.map(({ id }) => id).sort());
    });

    it('an ephemeral event reaches every instance once, and is not stored', async () => {
      const community = on.community();
      const before = await on.stores[1]!.broadcastHead();
      const one = note({ kind: 20_001 });
      expect(await both(community, false, one, one)).toEqual(['broadcast', 'duplicate']);
      const sent = await on.stores[1]!.broadcasts(before, 10);
      expect(sent.map(({ payload }) => JSON.parse(payload).id)).toEqual([one.id]);
      expect(await on.ids(community)).toEqual([]);
    });

    it('communities do not see each other (I13)', async () => {
      const [here, there] = [on.community(), on.community()];
      const one = note();
      await on.submit(here, one);
      await on.submit(there, request(byId(one)));
      expect(await on.ids(here)).toEqual([one.id]);
      expect(await on.submit(there, one)).toBe(DELETED);
      expect(await on.ids(there, { kinds: new Set([1]) })).toEqual([]);
    });
  });

  describe('records (NIP-77)', () => {
    const bound = (time: number) => ({ time, id: new Uint8Array(0) });
    const walk = async (community: number, filter: Partial<Filter>, limit: number) => {
      const upTo = await on.stores[0]!.head();
      const found: string[] = [];
      let spanSeconds: number | undefined;
      let lower: Bound | undefined = bound(0);
      for (let pages = 0; lower !== undefined; pages += 1) {
        expect(pages).toBeLessThan(100);
        const range = { lower, upper: bound(Number.POSITIVE_INFINITY), upTo, spanSeconds };
        const query = { community, filter: { tags: [], ...filter }, limit, now: on.now, ...range };
        const page = await on.stores[0]!.records(query, 'heavy');
        for (let at = 0; at < page.records.length; at += RECORD_BYTES)
          found.push(Buffer.from(page.records.subarray(at + 8, at + RECORD_BYTES)).toString('hex'));
        ({ next: lower, spanSeconds } = page);
      }
      return found;
    };
    const rising = (events: NostrEvent[]) =>
      [...events].sort((a, b) => a.created_at - b.created_at || (a.id < b.id ? -1 : 1)).map(({ id }) => id);

    it('are all that match in rising order, page by page, also within one second', async () => {
      const community = on.community();
      const all = [3, 3, 3, 3, 3, 1, 2, 2, 5].map((ago, at) =>
        note({ created_at: SECONDS - ago, pubkey: at % 2 === 0 ? alice : bob, tags: [['t', `${ago}`]] }),
      );
      await sendAll(community, ...all, article(SECONDS - 9), article(SECONDS - 4));
      const gone = note({ created_at: SECONDS - 3 });
      await sendAll(community, gone, request(byId(gone), { created_at: SECONDS - 1_000 }));
      const notes = { kinds: new Set([1]) };
      for (const limit of [1, 2, 100]) expect(await walk(community, notes, limit)).toEqual(rising(all));
      const own = all.filter(({ pubkey }) => pubkey === bob);
      expect(await walk(community, { authors: new Set([bob]) }, 2)).toEqual(rising(own));
      const third = { tags: [{ name: 't', values: new Set(['3']) }] };
      expect(await walk(community, third, 3)).toEqual(rising(all.slice(0, 5)));
      const some = new Set([all[0]!.id, all[7]!.id, gone.id]);
      expect(await walk(community, { ids: some }, 100)).toEqual(rising([all[0]!, all[7]!]));
      expect(await walk(community, { ...notes, since: SECONDS - 2, until: SECONDS - 2 }, 1)).toEqual(
        rising(all.slice(6, 8)),
      );
    });

    it('an id is known when it was seen before, served or not', async () => {
      const community = on.community();
      const [served, deleted, older, never] = [note(), note(), article(SECONDS - 9), note()];
      await sendAll(community, served, older, article(SECONDS - 8));
      expect(
        await on.stores[1]!.known(
          community,
          [served, older, never].map(({ id }) => id),
        ),
      ).toEqual(new Set([served.id, older.id]));
      expect((await on.stores[1]!.known(community, [deleted.id])).size).toBe(0);
    });
  });

  describe('deletion', () => {
    it.each(orders)(
      'by id: the event is not served and does not come back (reversed: %s)',
      async (isReversed) => {
        const community = on.community();
        const one = note();
        const asked = request(byId(one));
        expect(await both(community, isReversed, one, asked)).toEqual([
          isReversed ? DELETED : 'stored',
          'stored',
        ]);
        expect(await on.ids(community)).toEqual([asked.id]);
        for (const writer of [0, 1]) expect(await on.submit(community, one, { writer })).toBe(DELETED);
        expect(await on.submit(community, asked)).toBe('duplicate');
        expect(await on.stores[0]!.byIds([{ community, id: one.id }])).toEqual(new Map());
      },
    );

    it.each(orders)(
      'by address: versions up to the request, not later ones (reversed: %s)',
      async (isReversed) => {
        const community = on.community();
        const [old, equal, later] = [SECONDS - 5, SECONDS, SECONDS + 1].map((at) => article(at));
        const asked = request([['a', `30023:${alice}:x`]]);
        const list = [old!, equal!, asked, later!];
        await sendAll(community, ...(isReversed ? list.reverse() : list));
        expect(await on.ids(community, { kinds: new Set([30_023]) })).toEqual([later!.id]);
        for (const one of [old!, equal!]) expect(await on.submit(community, one)).not.toBe('stored');
      },
    );

    it.each(orders)('of a replaceable kind by address (reversed: %s)', async (isReversed) => {
      const community = on.community();
      const asked = request([['a', `0:${alice}`]]);
      await both(community, isReversed, profile(SECONDS), asked);
      expect(await on.ids(community)).toEqual([asked.id]);
    });

    it.each(orders)('by a stranger: nothing happens (reversed: %s)', async (isReversed) => {
      const community = on.community();
      const [one, version] = [note(), article(SECONDS)];
      const asked = request([...byId(one), ...byId(version), ['a', `30023:${alice}:x`]], { pubkey: bob });
      await both(community, isReversed, one, asked);
      await on.submit(community, version);
      expect((await on.ids(community)).sort()).toEqual([one.id, version.id, asked.id].sort());
    });

    it.each(orders)('of requests: they are protected (reversed: %s)', async (isReversed) => {
      const community = on.community();
      const asked = request(byId(note()));
      const against = request(byId(asked));
      expect(await both(community, isReversed, asked, against)).toEqual(['stored', 'stored']);
      expect((await on.ids(community)).sort()).toEqual([asked.id, against.id].sort());
    });

    it.each(orders)('of a gift wrap by its recipient (reversed: %s)', async (isReversed) => {
      const community = on.community();
      const wrap = note({ kind: 1_059, pubkey: bob, tags: [['p', alice]] });
      const asked = request(byId(wrap));
      await both(community, isReversed, wrap, asked);
      expect(await on.ids(community)).toEqual([asked.id]);
    });

    it('own and foreign targets in one request: the own ones are deleted', async () => {
      const community = on.community();
      const [own, foreign] = [note(), note({ pubkey: bob })];
      await sendAll(community, own, foreign);
      const asked = request([...byId(own, foreign), ['e', 'malformed'], ['a', '5:x'], ['k', '1']]);
      expect(await on.submit(community, asked)).toBe('stored');
      expect(await on.ids(community, { kinds: new Set([1]) })).toEqual([foreign.id]);
    });

    it('of the newest version: an older one does not come back', async () => {
      const community = on.community();
      const [old, young] = [article(SECONDS - 5), article(SECONDS)];
      await sendAll(community, young, request(byId(young)));
      expect(await on.submit(community, old)).toBe(OLDER);
      expect(await on.ids(community, { kinds: new Set([30_023]) })).toEqual([]);
    });

    it('a version that was deleted before it arrived still supersedes older ones', async () => {
      const community = on.community();
      const [old, young] = [article(SECONDS - 5), article(SECONDS)];
      await sendAll(community, request(byId(young)), old);
      expect(await on.submit(community, young)).toBe(DELETED);
      expect(await on.ids(community, { kinds: new Set([30_023]) })).toEqual([]);
      expect(await on.submit(community, old)).toBe('duplicate');
    });

    it('of superseded versions: they are gone with the newest', async () => {
      const community = on.community();
      const versions = Array.from({ length: 5 }, (_, at) => article(SECONDS - 10 + at));
      await sendAll(community, ...versions, request([['a', `30023:${alice}:x`]]));
      for (const version of versions) expect(await on.submit(community, version)).toBe(DELETED);
      on.now += 3_600_000;
      for (let found = true; found; ) ({ found } = await on.stores[0]!.deleteHistory(100));
      on.now = START;
      expect(await on.ids(community, { kinds: new Set([30_023]) })).toEqual([]);
    });

    it('a request is bound to the topics of its targets', async () => {
      const community = on.community();
      const one = note({ tags: [['t', 'sea']] });
      const asked = request(byId(one));
      await sendAll(community, one, asked);
      const inSea = { tags: [{ name: 't', values: new Set(['sea']) }] };
      expect(await on.ids(community, { ...inSea, kinds: new Set([5]) })).toEqual([asked.id]);
      expect(await on.ids(community, inSea)).toEqual([]);
    });

    it('the targets of an author are limited by day', async () => {
      const community = on.community({ settings: settings({ 'deletion.targetsPerDayMax': 3 }) });
      const [one, two] = [note(), note()];
      await sendAll(community, one, two);
      expect(await on.submit(community, request([...byId(one), ['e', hash('x')]]))).toBe('stored');
      const over = request([...byId(two), ['e', hash('y')]]);
      expect(await on.submit(community, over, { writer: 1 })).toBe('rate-limited: too many deletions today');
      expect(await on.ids(community, { kinds: new Set([1]) })).toEqual([two.id]);
      on.now += DAY_MS;
      expect(await on.submit(community, over)).toBe('stored');
      on.now = START;
      expect(await on.ids(community, { kinds: new Set([1]) })).toEqual([]);
    });

    it('a request of a hundred targets deletes them all', async () => {
      const community = on.community();
      const all = Array.from({ length: 100 }, () => note());
      await Promise.all(all.map((one, at) => on.submit(community, one, { writer: at % 2 })));
      expect(await on.submit(community, request(byId(...all)))).toBe('stored');
      expect(await on.ids(community, { kinds: new Set([1]) })).toEqual([]);
    });

    it('old requests are forgotten with their tombstones, but not with renewed ones', async () => {
      const community = on.community();
      const [one, two] = [hash('never 1'), hash('never 2')];
      const old = request(
        [
          ['e', one],
          ['e', two],
        ],
        { created_at: SECONDS - 50 },
      );
      await on.submit(community, old);
      on.now += 10 * DAY_MS;
      const renewed = request([['e', two]], { created_at: SECONDS + 864_000 });
      await on.submit(community, renewed);
      const which = { by: 'requests', community, keepDays: 5, limit: 100 } as const;
      expect(await on.stores[0]!.hide({ hidden: 'retention', purge: true, which })).toBe(1);
      expect(await on.ids(community)).toEqual([renewed.id]);
    });
  });

  describe('expiration', () => {
    it('an event is not found from its second on, is purged, and is refused afterwards', async () => {
      const community = on.community();
      const one = note({ tags: [['expiration', `${SECONDS + 10}`]] });
      const other = note({ tags: [['expiration', 'soon']] });
      expect(await on.submit(community, one)).toBe('stored');
      await on.submit(community, other);
      on.now = START + 9_999;
      expect(await on.ids(community, { ids: new Set([one.id]) })).toEqual([one.id]);
      on.now = START + 10_000;
      expect(await on.ids(community)).toEqual([other.id]);
      const expire = () =>
        on.stores[0]!.hide({ hidden: 'expired', purge: true, which: { by: 'expiration', limit: 100 } });
      expect(await expire()).toBe(1);
      expect(await expire()).toBe(0);
      on.now = START;
      expect(await on.stores[0]!.isServed(community, one)).toBe(false);
      on.now = START + 10_000;
      expect(await on.submit(community, one)).toBe('invalid: expired');
    });

    it('a version without an expiration replaces one that had it', async () => {
      const community = on.community();
      const old = article(SECONDS - 5, {
        tags: [
          ['d', 'x'],
          ['expiration', `${SECONDS + 10}`],
        ],
      });
      const young = article(SECONDS - 4);
      await sendAll(community, old, young);
      on.now = START + 20_000;
      const which = { by: 'expiration', limit: 100 } as const;
      await on.stores[0]!.hide({ hidden: 'expired', purge: true, which });
      expect(await on.ids(community)).toEqual([young.id]);
    });
  });

  describe('history and retention', () => {
    it('superseded versions are purged after their days; the newest stays', async () => {
      const community = on.community({ settings: settings({ 'retention.historyDays': 7 }) });
      const versions = [1, 2, 3].map((at) => article(SECONDS - 10 + at));
      await sendAll(community, ...versions);
      const rules = {
        id: community,
        settings: settings({ 'retention.historyDays': 7 }),
        historyKeptSince: 0,
      };
      const purge = () =>
        on.stores[0]!.hide({ hidden: 'retention', purge: true, which: { by: 'history', rules, limit: 100 } });
      on.now = START + 6 * DAY_MS;
      expect(await purge()).toBe(0);
      on.now = START + 8 * DAY_MS;
      expect(await purge()).toBe(2);
      expect(await on.ids(community)).toEqual([versions[2]!.id]);
    });

    it('a sweep takes what is past the longest days of its topics, and nothing else', async () => {
      const topics = new Map([
        ['sea', topicOf(90)],
        ['wind', topicOf(3)],
      ]);
      const community = on.community({ settings: settings({ 'retention.regularDays': 30 }), topics });
      const tagged = (...names: string[]) => note({ tags: names.map((one) => ['t', one]) });
      const [plain, sea, wind, mixed] = [tagged(), tagged('sea'), tagged('wind'), tagged('wind', 'sea')];
      const kept = [profile(SECONDS), request([['e', hash('none')]])];
      await sendAll(community, plain, sea, wind, mixed, ...kept);
      const rules = on.retention(community);
      const sweep = async () => {
        let hidden = 0;
        let after: number | undefined = 0;
        while (after !== undefined) {
          const step = await on.stores[0]!.sweep({ after, rules: new Map([[community, rules]]) });
          hidden += step.hidden;
          after = step.next;
        }
        return hidden;
      };
      const regular = () => on.ids(community, { kinds: new Set([1]) }, { rules });
      on.now = START + 2 * DAY_MS;
      expect(await sweep()).toBe(0);
      on.now = START + 4 * DAY_MS;
      expect(new Set(await regular())).toEqual(new Set([plain.id, sea.id, mixed.id]));
      const inWind = { tags: [{ name: 't', values: new Set(['wind']) }] };
      expect(await on.ids(community, inWind, { rules })).toEqual([]);
      expect(await sweep()).toBe(1);
      on.now = START + 31 * DAY_MS;
      expect(await sweep()).toBe(1);
      expect(new Set(await regular())).toEqual(new Set([sea.id, mixed.id]));
      expect(await on.submit(community, plain)).toBe('blocked: past retention');
      on.now = START + 91 * DAY_MS;
      expect(await sweep()).toBe(2);
      expect(new Set(await on.ids(community, {}, { rules }))).toEqual(new Set(kept.map(({ id }) => id)));
    });
  });

  describe('vanish and erasure', () => {
    it.each(orders)('a request to vanish hides at once and refuses (reversed: %s)', async (isReversed) => {
      const community = on.community();
      const [one, asked] = [note({ created_at: SECONDS - 5 }), vanish(SECONDS - 5)];
      expect(await both(community, isReversed, one, asked)).toEqual([
        isReversed ? VANISHED : 'stored',
        'stored',
      ]);
      const wrap = note({ kind: 1_059, pubkey: bob, created_at: SECONDS - 6, tags: [['p', alice]] });
      expect(await on.submit(community, wrap)).toBe(VANISHED);
      expect(await on.ids(community)).toEqual([]);
      expect(await on.stores[1]!.isServed(community, one)).toBe(false);
      expect((await on.stores[1]!.byIds([{ community, id: one.id }])).size).toBe(0);
      expect((await on.stores[1]!.newest(community, { createdAt: SECONDS, id: '' })).events).toEqual([]);
      for (const writer of [0, 1]) expect(await on.submit(community, one, { writer })).toBe(VANISHED);
      expect(await on.submit(community, asked)).toBe('duplicate');
      const later = note({ created_at: SECONDS - 4 });
      expect(await on.submit(community, later)).toBe('stored');
      expect(await on.ids(community)).toEqual([later.id]);
    });

    it('a request holds in every community that it names, also for gift wraps stored before', async () => {
      const [here, there] = [on.community(), on.community()];
      const wrap = note({ kind: 1_059, pubkey: bob, created_at: SECONDS - 6, tags: [['p', alice]] });
      const one = note({ created_at: SECONDS - 6 });
      for (const community of [here, there]) await sendAll(community, wrap, one);
      await on.submit(here, vanish(SECONDS - 5), { vanishIn: [here, there] });
      for (const community of [here, there]) expect(await on.ids(community)).toEqual([]);
    });

    it('a deletion request of a vanished author still deletes, but is not stored', async () => {
      const community = on.community();
      const wrap = note({ kind: 1_059, pubkey: bob, created_at: SECONDS, tags: [['p', alice]] });
      await sendAll(community, wrap, vanish(SECONDS - 5));
      const asked = request(byId(wrap), { created_at: SECONDS - 6 });
      expect(await on.submit(community, asked)).toBe(VANISHED);
      expect(await on.ids(community)).toEqual([]);
      expect(await on.submit(community, wrap)).toBe(DELETED);
    });

    it('a mark of the control plane hides and refuses, with the rows of its transaction', async () => {
      const community = on.community();
      const [one, other] = [note(), note({ pubkey: bob })];
      await sendAll(community, one, other);
      await on.stores[0]!.mark(async (tx) => {
        await tx.query('CREATE TABLE IF NOT EXISTS marked (who text)');
        await tx.query('INSERT INTO marked VALUES ($1)', [`${community}`]);
        return [{ community, pubkey: alice, until: SECONDS, requestId: undefined }];
      });
      expect(await on.ids(community)).toEqual([other.id]);
      expect(await on.submit(community, note(), { writer: 1 })).toBe(VANISHED);
      const { rows } = await on.database.pool.query('SELECT who FROM marked WHERE who = $1', [
        `${community}`,
      ]);
      expect(rows).toHaveLength(1);
    });

    it('a fence of the control plane that fails changes nothing there', async () => {
      const community = on.community();
      const failing = on.stores[0]!.mark(async () => {
        throw new Error('no');
      });
      await expect(failing).rejects.toThrow('no');
      expect(await on.submit(community, note())).toBe('stored');
    });

    it('an erasure takes the events of an author up to a time, in batches, and forgets them', async () => {
      const community = on.community();
      const mine = Array.from({ length: 25 }, (_, at) => note({ created_at: SECONDS - at }));
      const [later, other] = [note({ created_at: SECONDS + 1 }), note({ pubkey: bob })];
      await sendAll(community, ...mine, later, other);
      const author = { community, pubkey: alice, until: SECONDS, sparesRequest: true };
      const erase = () =>
        on.stores[0]!.hide({
          hidden: 'erased',
          purge: true,
          forget: true,
          which: { by: 'author', author, limit: 10 },
        });
      expect([await erase(), await erase(), await erase(), await erase()]).toEqual([10, 10, 5, 0]);
      expect((await on.ids(community)).sort()).toEqual([later.id, other.id].sort());
      // Nothing but a mark keeps them out now.
      expect(await on.submit(community, mine[0]!)).toBe('stored');
    });

    it('a whole community is taken in batches', async () => {
      const community = on.community();
      await sendAll(community, ...Array.from({ length: 12 }, () => note()), profile(SECONDS));
      const take = () =>
        on.stores[0]!.hide({
          hidden: 'erased',
          purge: true,
          which: { by: 'community', community, limit: 10 },
        });
      expect([await take(), await take(), await take()]).toEqual([10, 3, 0]);
      expect(await on.ids(community)).toEqual([]);
    });
  });

  describe('removal', () => {
    const remove = (community: number, ...events: NostrEvent[]) =>
      on.stores[0]!.hide({
        hidden: 'removed',
        purge: false,
        which: { by: 'ids', refs: events.map(({ id }) => ({ community, id })) },
      });
    const restore = (community: number, ...events: NostrEvent[]) =>
      on.stores[1]!.restore(events.map(({ id }) => ({ community, id })));

    it('a removed event is not served, is refused, and can be restored', async () => {
      const community = on.community();
      const one = note({ tags: [['t', 'sea']] });
      await on.submit(community, one);
      expect(await remove(community, one)).toBe(1);
      expect(await remove(community, one)).toBe(0);
      expect(await on.submit(community, one)).toBe('blocked: removed by a moderator');
      expect(await on.ids(community)).toEqual([]);
      expect(await restore(community, one, note())).toEqual(['stored', 'unknown']);
      expect(await on.ids(community, { tags: [{ name: 't', values: new Set(['sea']) }] })).toEqual([one.id]);
      expect(await restore(community, one)).toEqual(['unknown']);
    });

    it('requests are not removed', async () => {
      const community = on.community();
      const asked = request([['e', hash('none')]]);
      await on.submit(community, asked);
      expect(await remove(community, asked)).toBe(0);
    });

    it('a restored event meets every rule: deleted, superseded and expired ones stay out', async () => {
      const community = on.community();
      const [gone, old] = [note(), article(SECONDS - 5)];
      const brief = note({ tags: [['expiration', `${SECONDS + 10}`]] });
      await sendAll(community, gone, old, brief);
      await remove(community, gone, old, brief);
      const [asked, young] = [request(byId(gone)), article(SECONDS - 4)];
      await sendAll(community, asked, young);
      on.now = START + 10_000;
      expect(await restore(community, gone, old, brief)).toEqual(['deleted', 'older', 'expired']);
      expect((await on.ids(community)).sort()).toEqual([asked.id, young.id].sort());
    });

    it('a removed version keeps its place: no older one takes it, and it can be restored', async () => {
      const community = on.community();
      const [young, old] = [article(SECONDS - 4), article(SECONDS - 5)];
      await on.submit(community, young);
      await remove(community, young);
      expect(await on.submit(community, old)).toBe(OLDER);
      expect(await restore(community, young)).toEqual(['stored']);
      expect(await on.ids(community)).toEqual([young.id]);
    });

    it('orders of the control plane are carried out once and noted', async () => {
      const community = on.community();
      const [one, two] = [note(), note()];
      await sendAll(community, one);
      const noted: boolean[][] = [];
      const hidden = await on.stores[0]!.hide({
        hidden: 'removed',
        purge: false,
        which: {
          due: async () => [one, two].map(({ id }) => ({ community, id })),
          note: async (_tx, results) => void noted.push([...results]),
        },
      });
      expect([hidden, noted]).toEqual([1, [[true, false]]]);
      const restored = await on.stores[0]!.restore({
        due: async () => [{ community, id: one.id }],
        note: async () => undefined,
      });
      expect(restored).toEqual(['stored']);
    });
  });

  describe('reading', () => {
    it('an answer is newest first, lowest id first, and its limit cuts within a second', async () => {
      const community = on.community();
      const all = Array.from({ length: 30 }, (_, at) => note({ created_at: SECONDS - Math.floor(at / 10) }));
      await Promise.all(all.map((one) => on.submit(community, one)));
      const sorted = [...all].sort((a, b) => b.created_at - a.created_at || (a.id < b.id ? -1 : 1));
      const ids = sorted.map(({ id }) => id);
      for (const filter of [{}, { kinds: new Set([1]) }, { authors: new Set([alice]) }])
        for (const limit of [1, 15, 30])
          expect(await on.ids(community, filter, { limit })).toEqual(ids.slice(0, limit));
      const filter = {
        kinds: new Set([1]),
        authors: new Set([alice, bob]),
        since: SECONDS - 1,
        until: SECONDS - 1,
      };
      expect(await on.ids(community, filter)).toEqual(ids.slice(10, 20));
    });

    it('hidden events do not make an answer too short', async () => {
      const community = on.community();
      const all = Array.from({ length: 60 }, (_, at) =>
        note({ created_at: SECONDS - at, tags: [['t', 'sea']] }),
      );
      await Promise.all(all.map((one) => on.submit(community, one)));
      await on.submit(community, request(byId(...all.slice(0, 40)), { created_at: SECONDS - 1_000 }));
      const expected = all.slice(40, 50).map(({ id }) => id);
      for (const filter of [
        { kinds: new Set([1]) },
        { tags: [{ name: 't', values: new Set(['sea']) }] },
        { authors: new Set([alice]), kinds: new Set([1]) },
      ])
        expect(await on.ids(community, filter, { limit: 10 })).toEqual(expected);
    });

    it('COUNT counts different events over all filters, up to its maximum', async () => {
      const community = on.community();
      const all = Array.from({ length: 20 }, (_, at) =>
        note({
          pubkey: at % 2 === 0 ? alice : bob,
          tags: [
            ['t', 'sea'],
            ['t', 'wind'],
          ],
        }),
      );
      await Promise.all(all.map((one) => on.submit(community, one)));
      const count = (filters: object[], max = 100) =>
        on.stores[0]!.count(
          { community, filters: filters.map((one) => ({ tags: [], ...one })), max, now: on.now },
          (_filter, query) => query('light'),
        );
      expect(await count([{ kinds: new Set([1]) }])).toBe(20);
      expect(await count([{ authors: new Set([alice]) }, { kinds: new Set([1]) }])).toBe(20);
      expect(await count([{ tags: [{ name: 't', values: new Set(['sea', 'wind']) }] }])).toBe(20);
      expect(await count([{ authors: new Set([carol]) }])).toBe(0);
      expect(await count([{ kinds: new Set([1]) }], 5)).toBe(6);
      expect(await count([{ kinds: new Set([1]), limit: 3 }])).toBe(3);
    });

    it('pages fill a memory without a gap and without doubles', async () => {
      const community = on.community();
      const all = Array.from({ length: 260 }, (_, at) => note({ created_at: SECONDS - (at % 7) }));
      await Promise.all(all.map((one, at) => on.submit(community, one, { writer: at % 2 })));
      const read: string[] = [];
      let place = { createdAt: SECONDS + 10, id: '' };
      for (let isLast = false; !isLast; ) {
        const page = await on.stores[0]!.newest(community, place);
        read.push(...page.events.map(({ id }) => id));
        place = page.events.at(-1) ?? place;
        isLast = page.isLast;
      }
      const sorted = [...all].sort((a, b) => b.created_at - a.created_at || (a.id < b.id ? -1 : 1));
      expect(read).toEqual(sorted.map(({ id }) => id));
    });

    it('counters of repeats may be added for known and unknown events', async () => {
      const community = on.community();
      const one = note();
      await on.submit(community, one);
      const seen = (id: string) => ({ community, id, times: 2, lastSeenAt: on.now });
      await on.stores[0]!.countSeen([seen(one.id), seen(hash('none'))]);
      expect(await on.ids(community)).toEqual([one.id]);
    });
  });
});
