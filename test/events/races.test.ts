/**
 * Races of two writes: each is forced in both orders, on two lanes that wait for the same lock. The view is
 * the same in both orders (I4, I5, I6).
 */
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import type { Lane } from '../../src/events/postgres/lane/lane.js';
import { findEvents } from '../../src/events/postgres/read/find.js';
import { isRefusal, type Outcome, type Refusal, words } from '../../src/events/rules/reply.js';
import { RawClient } from '../support/clients/client.js';
import { type Author, type Draft, newAuthor, nowSeconds, sign } from '../support/events.js';
import { startTestNode } from '../support/node.js';
import { inLockOrder, openTestStore, type TestStore } from '../support/stores/store.js';

type Signed = ReturnType<typeof sign>;

const COMMUNITY = 1;
const DELETED = 'blocked: deleted by its author';
const VANISHED = 'blocked: its author asked to vanish';
const AT = nowSeconds() - 1_000;

let store: TestStore;
let lanes: [Lane, Lane];
let alice: Author;
let bob: Author;

beforeAll(async () => {
  store = await openTestStore();
  lanes = [store.lane(), store.lane()];
});
afterAll(() => store.close());
beforeEach(() => {
  alice = newAuthor();
  bob = newAuthor();
});

async function submit(lane: Lane, event: Signed): Promise<string> {
  const outcome: Outcome | Refusal = await lane.submit({
    community: COMMUNITY,
    event,
    payload: JSON.stringify(event),
  });
  return isRefusal(outcome) ? words(outcome) : outcome;
}

const race = (first: Signed, second: Signed) =>
  inLockOrder(store.database, [() => submit(lanes[0], first), () => submit(lanes[1], second)]);

async function servedOf(...authors: Author[]): Promise<string[]> {
  const filter = { authors: new Set(authors.map((author) => author.pubkey)), tags: [] };
  const rows = await findEvents(
    { pool: store.database.pool, tagHash: store.tagHash },
    { community: COMMUNITY, filter, limit: 100, now: nowSeconds() * 1_000 },
  );
  return rows.map((row) => row.id).sort();
}

async function announced(event: Signed): Promise<string[]> {
  const { rows } = await store.database.pool.query<{ what: string }>(
    "SELECT concat_ws(' ', op, reason) AS what FROM events_outbox WHERE event_id = $1 ORDER BY seq",
    [Buffer.from(event.id, 'hex')],
  );
  return rows.map((row) => row.what);
}

const ids = (...events: Signed[]) => events.map((event) => event.id).sort();
const deletion = (author: Author, event: Signed, draft: Draft = {}) =>
  sign(author, { kind: 5, tags: [['e', event.id]], ...draft });
const version = (created_at: number, draft: Draft = {}) =>
  sign(alice, { kind: 30_023, created_at, tags: [['d', 'x']], content: `${created_at}`, ...draft });
const addressDeletion = (created_at: number) =>
  sign(alice, { kind: 5, created_at, tags: [['a', `30023:${alice.pubkey}:x`]] });

const orders = [
  { order: 'the event first', requestFirst: false },
  { order: 'the request first', requestFirst: true },
];

describe.each(orders)('insert ∥ delete, $order', ({ requestFirst }) => {
  const meet = async (event: Signed, request: Signed): Promise<{ event: string; request: string }> => {
    const [first, second] = requestFirst ? [request, event] : [event, request];
    const outcomes = await race(first, second);
    const [ofEvent, ofRequest] = requestFirst ? [outcomes[1]!, outcomes[0]!] : [outcomes[0]!, outcomes[1]!];
    return { event: ofEvent, request: ofRequest };
  };

  it('by id: the event is not served, and is refused on both lanes', async () => {
    const note = sign(alice);
    const request = deletion(alice, note);
    expect(await meet(note, request)).toEqual({
      event: requestFirst ? DELETED : 'stored',
      request: 'stored',
    });
    expect(await servedOf(alice)).toEqual(ids(request));
    expect(await announced(note)).toEqual(requestFirst ? [] : ['upsert', 'delete nip09']);
    for (const lane of lanes) expect(await submit(lane, note)).toBe(DELETED);
  });

  it('by address: the version is not served', async () => {
    const [article, request] = [version(AT), addressDeletion(AT)];
    expect(await meet(article, request)).toEqual({
      event: requestFirst ? DELETED : 'stored',
      request: 'stored',
    });
    expect(await servedOf(alice)).toEqual(ids(request));
    for (const lane of lanes) expect(await submit(lane, article)).toBe(DELETED);
  });

  it('a gift wrap by its recipient: it is not served', async () => {
    const sender = newAuthor();
    const wrap = sign(sender, { kind: 1_059, tags: [['p', alice.pubkey]] });
    const request = deletion(alice, wrap);
    await meet(wrap, request);
    expect(await servedOf(sender, alice)).toEqual(ids(request));
  });

  it('by a stranger: the event is served', async () => {
    const note = sign(alice);
    const request = deletion(bob, note);
    expect(await meet(note, request)).toEqual({ event: 'stored', request: 'stored' });
    expect(await servedOf(alice, bob)).toEqual(ids(note, request));
    expect(await announced(note)).toEqual(['upsert']);
  });

  it('of a request: both are served', async () => {
    const request = deletion(alice, sign(alice));
    const against = deletion(alice, request);
    expect(await meet(request, against)).toEqual({ event: 'stored', request: 'stored' });
    expect(await servedOf(alice)).toEqual(ids(request, against));
  });

  it('a request to vanish: the event is not served, and is refused on both lanes', async () => {
    const note = sign(alice, { created_at: AT });
    const request = sign(alice, { kind: 62, created_at: AT, tags: [['relay', 'ALL_RELAYS']] });
    expect(await meet(note, request)).toEqual({
      event: requestFirst ? VANISHED : 'stored',
      request: 'stored',
    });
    expect(await servedOf(alice)).toEqual([]);
    for (const lane of lanes) expect(await submit(lane, note)).toBe(VANISHED);
    const later = sign(alice, { created_at: AT + 1 });
    expect(await submit(lanes[1], later)).toBe('stored');
    expect(await servedOf(alice)).toEqual(ids(later));
  });
});

describe.each(orders)('replace ∥ delete, $order', ({ requestFirst }) => {
  const meet = async (old: Signed, event: Signed, request: Signed): Promise<string[]> => {
    expect(await submit(lanes[0], old)).toBe('stored');
    return requestFirst ? race(request, event) : race(event, request);
  };

  it('the new version by its id: nothing is served, the old one does not come back', async () => {
    const [old, newer] = [version(AT), version(AT + 1)];
    const request = deletion(alice, newer);
    expect(await meet(old, newer, request)).toEqual(
      requestFirst ? ['stored', DELETED] : ['stored', 'stored'],
    );
    expect(await servedOf(alice)).toEqual(ids(request));
    expect(await announced(old)).toEqual(['upsert', 'delete superseded']);
    expect(await submit(lanes[0], old)).toBe('duplicate');
    expect(await submit(lanes[1], version(AT, { content: 'another old one' }))).toBe('older');
    expect(await servedOf(alice)).toEqual(ids(request));
  });

  it('the old version by its id: the new one is served', async () => {
    const [old, newer] = [version(AT), version(AT + 1)];
    const request = deletion(alice, old);
    expect(await meet(old, newer, request)).toEqual(['stored', 'stored']);
    expect(await servedOf(alice)).toEqual(ids(newer, request));
    expect(await announced(old)).toEqual(['upsert', requestFirst ? 'delete nip09' : 'delete superseded']);
    for (const lane of lanes) expect(await submit(lane, old)).toBe(DELETED);
  });

  it('the address, before the new version was made: the new one is served', async () => {
    const [old, newer, request] = [version(AT), version(AT + 1), addressDeletion(AT)];
    expect(await meet(old, newer, request)).toEqual(['stored', 'stored']);
    expect(await servedOf(alice)).toEqual(ids(newer, request));
    for (const lane of lanes) expect(await submit(lane, old)).toBe(DELETED);
  });

  it('the address, in the second of the new version: nothing is served', async () => {
    const [old, newer, request] = [version(AT), version(AT + 1), addressDeletion(AT + 1)];
    expect(await meet(old, newer, request)).toEqual(
      requestFirst ? ['stored', DELETED] : ['stored', 'stored'],
    );
    expect(await servedOf(alice)).toEqual(ids(request));
    for (const event of [old, newer]) expect(await submit(lanes[1], event)).toBe(DELETED);
  });

  it('an older version and the deletion of the newest: nothing is served', async () => {
    const [newest, older] = [version(AT + 1), version(AT)];
    const request = deletion(alice, newest);
    expect(await meet(newest, older, request)).toEqual(
      requestFirst ? ['stored', 'older'] : ['older', 'stored'],
    );
    expect(await servedOf(alice)).toEqual(ids(request));
  });
});

it('delete ∥ delete: both requests are kept, the target is deleted once', async () => {
  const note = sign(alice);
  await submit(lanes[0], note);
  const requests = [deletion(alice, note), deletion(alice, note, { content: 'again' })] as const;
  expect(await race(...requests)).toEqual(['stored', 'stored']);
  expect(await servedOf(alice)).toEqual(ids(...requests));
  expect(await announced(note)).toEqual(['upsert', 'delete nip09']);
});

it('delete ∥ re-upload of the deleted event, in both orders: it stays refused', async () => {
  for (const uploadFirst of [true, false]) {
    const note = sign(alice, { content: `${uploadFirst}` });
    await submit(lanes[0], note);
    const request = deletion(alice, note);
    const outcomes = uploadFirst ? await race(note, request) : await race(request, note);
    expect(outcomes).toEqual(uploadFirst ? ['duplicate', 'stored'] : ['stored', DELETED]);
    expect(await servedOf(alice)).not.toContain(note.id);
  }
});

describe.each(orders)('two instances, $order', ({ requestFirst }) => {
  it('agree on the view, and no subscription gets the event after its deletion', async () => {
    // The order is that of those who wait for the lock, so no job and no consumer may be among them.
    const a = await startTestNode({ jobs: [], consumers: [] });
    const b = await startTestNode({ on: a.test, jobs: [], consumers: [] });
    const clients = [await RawClient.connect(a.url), await RawClient.connect(b.url)] as const;
    for (const client of clients) {
      client.send(['REQ', 'live', { authors: [alice.pubkey] }]);
      await client.waitFor((frame) => frame[0] === 'EOSE');
    }
    const note = sign(alice);
    const request = deletion(alice, note);
    // A first event opens the lane's session, and may have to be tried again: that would change the order.
    for (const client of clients) expect(await client.publish(sign(bob))).toEqual([true, '']);
    const works = [() => clients[0].publish(note), () => clients[1].publish(request)];
    const outcomes = await inLockOrder(a.database, requestFirst ? works.reverse() : works);
    expect(outcomes).toEqual(
      requestFirst
        ? [
            [true, ''],
            [false, DELETED],
          ]
        : [
            [true, ''],
            [true, ''],
          ],
    );
    for (const client of clients) {
      const live = () =>
        client.frames.flatMap((f) => (f[0] === 'EVENT' && f[1] === 'live' ? [(f[2] as Signed).id] : []));
      await client.until(() => live().includes(request.id));
      expect((await client.query({ authors: [alice.pubkey] })).events).toEqual([request]);
      const got = live();
      expect(got.slice(got.indexOf(request.id))).toEqual([request.id]);
      await client.close();
    }
    await b.close();
    await a.close();
  });
});
