/**
 * What operators, moderation, trust and gossip read of events (src/events/stored-events.ts), on every store:
 * the same answers about events in every state, page by page.
 */
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import type { NostrEvent } from '../../src/events/rules/event.js';
import { factKey } from '../../src/events/rules/facts.js';
import { DAY_MS } from '../../src/events/rules/retention.js';
import type { HiddenOf, ServedOf } from '../../src/events/stored-events.js';
import { type Contract, openContract, START, STORES } from '../support/stores/contract.js';
import { hash, unsigned } from '../support/stores/life.js';

const SECONDS = START / 1_000;
const [alice, bob] = ['alice', 'bob'].map(hash) as [string, string];

let made = 0;
const note = (draft: Partial<NostrEvent> = {}) => {
  made += 1;
  return unsigned({ kind: 1, pubkey: alice, created_at: SECONDS - 100, content: `${made}`, ...draft });
};

describe.each(STORES)('events in %s', (name) => {
  let on: Contract;
  beforeAll(async () => {
    on = await openContract(name);
  });
  afterAll(() => on?.close());
  afterEach(() => {
    on.now = START;
  });

  const stored = () => on.stores[1]!.stored;
  const db = () => on.database.pool;
  const send = async (community: number, ...events: NostrEvent[]) => {
    for (const event of events) expect(await on.submit(community, event)).toBe('stored');
  };
  const refs = (community: number, ...events: NostrEvent[]) => events.map(({ id }) => ({ community, id }));
  const remove = (community: number, ...events: NostrEvent[]) =>
    on.stores[0]!.hide({
      hidden: 'removed',
      purge: false,
      which: { by: 'ids', refs: refs(community, ...events) },
    });

  it('an id is known with its author and why it is hidden', async () => {
    const [here, there] = [on.community(), on.community()];
    const [one, old, hidden] = [note(), note({ kind: 0 }), note({ pubkey: bob })];
    await send(here, one, old, hidden, note({ kind: 0, created_at: SECONDS }));
    await remove(here, hidden);
    const known = await stored().known(db(), refs(here, one, old, hidden, note()));
    expect(known.get(factKey(here, one.id))).toEqual({ author: alice, hidden: undefined, isPurged: false });
    expect(known.get(factKey(here, old.id))).toMatchObject({ author: alice, hidden: 'superseded' });
    expect(known.get(factKey(here, hidden.id))).toMatchObject({ author: bob, hidden: 'removed' });
    expect(known.size).toBe(3);
    expect((await stored().known(db(), refs(there, one))).size).toBe(0);
  });

  it('a stored event is read in any state, and a mark shows at once', async () => {
    const community = on.community();
    const [one, hidden] = [note({ tags: [['t', 'tea']] }), note()];
    await send(community, one, hidden);
    await remove(community, hidden);
    const read = async () => stored().byIds(db(), refs(community, one, hidden));
    expect((await read()).get(factKey(community, one.id))).toMatchObject({
      id: one.id,
      pubkey: alice,
      hidden: undefined,
      isVanished: false,
      ingestedAt: START,
      payload: JSON.stringify(one),
    });
    expect((await read()).get(factKey(community, hidden.id))).toMatchObject({
      hidden: 'removed',
      hiddenAt: START,
    });
    const tags = [['relay', 'ALL_RELAYS']];
    expect(await on.submit(community, note({ kind: 62, created_at: SECONDS, tags }))).toBe('stored');
    expect((await read()).get(factKey(community, one.id))).toMatchObject({ isVanished: true });
  });

  it('deletions are seen for what is removed, by id and by address, and of owners only', async () => {
    const community = on.community();
    const article = (created_at: number) => note({ kind: 30_023, created_at, tags: [['d', 'x']] });
    const [one, other, old, young] = [note(), note(), article(SECONDS - 50), article(SECONDS - 10)];
    await send(community, one, other, old);
    await remove(community, one, other, old);
    const address = ['a', `30023:${alice}:x`];
    await send(
      community,
      note({ kind: 5, created_at: SECONDS - 20, tags: [['e', one.id], address] }),
      note({ kind: 5, pubkey: bob, created_at: SECONDS, tags: [['e', other.id]] }),
    );
    const deleted = await stored().deletedAmong(db(), community, [one, other, old, young]);
    expect([...deleted].sort()).toEqual([one.id, old.id].sort());
  });

  it('served events come page by page, newest first, without what arrived later', async () => {
    const community = on.community();
    const events = Array.from({ length: 7 }, (_, at) =>
      note({ created_at: SECONDS - 10 * Math.floor(at / 2), pubkey: at % 3 === 0 ? bob : alice }),
    );
    await send(community, ...events);
    on.now = START + 1_000;
    const late = note({ created_at: SECONDS - 15 });
    await send(community, late);
    const inOrder = (list: NostrEvent[]) =>
      [...list].sort((a, b) => b.created_at - a.created_at || (a.id < b.id ? -1 : 1)).map(({ id }) => id);
    const all = async (asked: Partial<ServedOf>, limit: number) => {
      const ids: string[] = [];
      let after = { createdAt: Number.MAX_SAFE_INTEGER, id: '' };
      for (let pages = 0; pages < 20; pages += 1) {
        const { rows, next } = await stored().served(db(), { community, after, limit, ...asked });
        ids.push(...rows.map(({ id }) => id));
        if (next === undefined) return ids;
        after = next;
      }
      throw new Error('there is no end');
    };
    for (const limit of [1, 2, 3, 100]) expect(await all({}, limit)).toEqual(inOrder([...events, late]));
    expect(await all({ arrivedUntil: START }, 2)).toEqual(inOrder(events));
    expect(await all({ authors: [bob] }, 2)).toEqual(inOrder(events.filter(({ pubkey }) => pubkey === bob)));
    const young = events.filter(({ created_at: at }) => at >= SECONDS - 10);
    expect(await all({ since: SECONDS - 10 }, 100)).toEqual(inOrder(young));
  });

  it('hidden events are listed by author and by when they were removed, page by page', async () => {
    const community = on.community();
    const events = [30, 20, 10].map((ago) => note({ created_at: SECONDS - ago, tags: [['t', `${ago}`]] }));
    const wrap = note({ kind: 1_059, pubkey: bob, tags: [['p', alice]] });
    await send(community, ...events, note({ pubkey: bob }), wrap);
    await remove(community, wrap);
    for (const event of events) {
      on.now += 1_000;
      await remove(community, event);
    }
    const list = async (by: HiddenOf['by'], more: Partial<HiddenOf> = {}) => {
      const ids: string[] = [];
      let after: HiddenOf['after'];
      for (let pages = 0; pages < 20; pages += 1) {
        const asked = { community, by, tags: [], after, limit: 2, ...more };
        const { places, next } = await stored().placesOfHidden(db(), asked);
        const rows = await stored().rows(db(), community, places);
        expect(rows.map(({ id }) => id)).toEqual(places.map(({ id }) => id));
        ids.push(...places.map(({ id }) => id));
        if (next === undefined) return ids;
        after = next;
      }
      throw new Error('there is no end');
    };
    const newest = events.map(({ id }) => id).reverse();
    expect(await list({ hidden: 'removed' })).toEqual([...newest, wrap.id]);
    expect(await list({ author: alice })).toEqual(newest);
    expect(await list({ author: alice, hidden: 'deleted' })).toEqual([]);
    expect(await list({ author: bob })).toEqual([wrap.id]);
    expect(await list({ hidden: 'removed' }, { tags: [['t', '20']] })).toEqual([newest[1]]);
    expect(await list({ hidden: 'removed' }, { since: SECONDS - 20 })).toEqual(newest.slice(0, 2));
    expect(await list({ author: alice }, { until: SECONDS - 20, kinds: [1] })).toEqual(newest.slice(1));
    await on.stores[0]!.restore(refs(community, events[1]!));
    expect(await list({ hidden: 'removed' })).toEqual([newest[0], newest[2], wrap.id]);
  });

  it('the life of an event has its repeats, tombstones, newest version and marks', async () => {
    const community = on.community();
    const [old, young] = [SECONDS - 9, SECONDS - 5].map((created_at) => note({ kind: 0, created_at })) as [
      NostrEvent,
      NostrEvent,
    ];
    await send(community, old, young);
    await on.stores[0]!.countSeen([{ community, id: old.id, times: 2, lastSeenAt: START + 5 }]);
    const [ref] = refs(community, old);
    expect(await stored().life(db(), ref!)).toMatchObject({
      known: { author: alice, firstSeenAt: START, lastSeenAt: START + 5, seenCount: 3, hidden: 'superseded' },
      tombstones: [],
      head: { id: young.id, created_at: SECONDS - 5 },
      vanish: undefined,
    });
    const gone = note({ created_at: SECONDS - 3 });
    const request = note({ kind: 5, created_at: SECONDS, tags: [['e', gone.id]] });
    await send(community, request);
    expect(await stored().life(db(), refs(community, gone)[0]!)).toMatchObject({
      known: undefined,
      tombstones: [{ author: alice, isAddress: false, requestedAt: SECONDS, deletionEvent: request.id }],
    });
    const vanish = note({ kind: 62, created_at: SECONDS, tags: [['relay', 'ALL_RELAYS']] });
    await send(community, vanish);
    const { vanish: mark } = await stored().life(db(), ref!);
    expect(mark).toEqual({ until: SECONDS, request: vanish.id });
    const requests = async (after: number) => {
      const found = await stored().vanishRequests(db(), after, Number.MAX_SAFE_INTEGER);
      return found.map(({ payload }) => (JSON.parse(payload) as NostrEvent).id);
    };
    for (const _ of [1, 2]) expect(await requests(0)).toContain(vanish.id);
    expect(await requests(Number.MAX_SAFE_INTEGER)).not.toContain(vanish.id);
  });

  it('profiles are the newest ones, and not those that have expired', async () => {
    const community = on.community();
    const young = note({ kind: 0, created_at: SECONDS });
    const expiring = note({ kind: 0, pubkey: bob, tags: [['expiration', `${SECONDS + 60}`]] });
    await send(community, note({ kind: 0 }), young, expiring);
    const profiles = async () => {
      const pubkeys = [alice, bob, hash('nobody')];
      const found = await stored().profiles(db(), { community, pubkeys, now: on.now });
      return [...found].map(([key, payload]) => [key, (JSON.parse(payload) as NostrEvent).id]).sort();
    };
    const both = [
      [alice, young.id],
      [bob, expiring.id],
    ];
    expect(await profiles()).toEqual(both.sort());
    on.now += 61_000;
    expect(await profiles()).toEqual([[alice, young.id]]);
  });

  it('an id is found by its beginning and its author', async () => {
    const community = on.community();
    const one = note({ created_at: SECONDS - 7 });
    await send(community, one, note({ created_at: SECONDS - 7 }));
    const begun = { author: alice, begin: one.id.slice(0, 16), at: (SECONDS - 7) * 1_000 };
    const others = [
      { ...begun, author: bob },
      { ...begun, begin: '0'.repeat(16) },
      { ...begun, at: begun.at - 1 },
    ];
    const found = await stored().wholeIds(db(), community, [begun, ...others]);
    expect(found).toEqual([one.id, undefined, undefined, one.id]);
  });

  it('the activity of a topic counts its posts of a day and of a week', async () => {
    const community = on.community();
    for (const days of [0, 0, 3, 9])
      await send(community, note({ created_at: SECONDS - days * 86_400, tags: [['t', 'tea']] }));
    await send(community, note({ kind: 7, tags: [['t', 'tea']] }));
    const topics = ['tea', 'quiet'];
    const rules = on.retention(community);
    const activity = await stored().topicActivity(db(), { community, topics, rules, now: START });
    expect(activity.get('tea')).toEqual({ postsDay: 2, postsWeek: 3, lastPostAt: SECONDS });
    expect(activity.get('quiet')).toEqual({ postsDay: 0, postsWeek: 0, lastPostAt: null });
  });

  it('the content of what was removed is purged after a time; the id still refuses it', async () => {
    const community = on.community();
    const [old, young] = [note(), note()];
    await send(community, old, young);
    await remove(community, old);
    on.now += 10 * DAY_MS;
    await remove(community, young);
    const purge = () =>
      stored().purgeRemoved(db(), { community, removedBefore: START + DAY_MS, now: on.now, limit: 10 });
    expect(await purge()).toBe(1);
    expect(await purge()).toBe(0);
    const known = await stored().known(db(), refs(community, old, young));
    expect(known.get(factKey(community, old.id))).toMatchObject({ hidden: 'removed', isPurged: true });
    expect(known.get(factKey(community, young.id))).toMatchObject({ hidden: 'removed', isPurged: false });
    expect((await stored().byIds(db(), refs(community, old))).size).toBe(0);
    expect(await on.submit(community, old)).toMatch(/^blocked/);
    expect(await on.stores[0]!.restore(refs(community, old, young))).toEqual(['unknown', 'stored']);
  });
});
