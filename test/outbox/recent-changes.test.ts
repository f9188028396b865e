/**
 * Changes that a process has committed are read from memory, and are the same as in the outbox (I8): the same
 * changes, with the same current events. If memory is not certain, the outbox is read.
 */
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { type Change, eventOf, readChanges } from '../../src/outbox/changes.sql.js';
import { RecentChanges } from '../../src/outbox/consumers/recent-changes.js';
import { readHead } from '../../src/outbox/outbox.sql.js';
import { START } from '../support/models/event-model.js';
import { Poster } from '../support/stores/consuming.js';
import { type Life, openLife } from '../support/stores/life.js';

let life: Life;
let recent: RecentChanges;
let poster: Poster;
let start: number;
let unsubscribe: () => void;

beforeAll(async () => {
  life = await openLife(START * 1_000, [{}], 2);
});
afterAll(() => life?.close());
beforeEach(async () => {
  recent = new RecentChanges();
  // Of one of two instances.
  unsubscribe = life.onCommit(0, (writes) => recent.onCommit(writes));
  poster = new Poster(life);
  start = await readHead(life.client);
  recent.passed('reader', start);
});
afterEach(() => unsubscribe());

const page = (after = start, limit = 500) => recent.page(life.client, after, limit);
const asRead = async (after = start): Promise<readonly Change[]> =>
  (await readChanges(life.client, { after, limit: 500 })).changes;

/** Memory has all changes, and they equal those of the outbox. */
async function expectSame(): Promise<void> {
  const found = (await page())!;
  const read = await asRead();
  expect(found.changes).toEqual(read);
  expect(found.changes.map(eventOf)).toEqual(read.map(eventOf));
  expect(found).toMatchObject({ upTo: await readHead(life.client), full: false, isWhole: true });
}

describe('what was committed here', () => {
  it('equals the outbox: posts, versions, deletions', async () => {
    const [first] = await poster.sendMany(5);
    await poster.send({ kind: 0, content: 'old' });
    await poster.send({ kind: 0, content: 'new' });
    await poster.send({ kind: 30_023, tags: [['d', 'a "b" \\ c']], content: 'an article' });
    await expectSame();
    await poster.delete(first!);
    await expectSame();
  });

  it('comes in pages', async () => {
    await poster.sendMany(5);
    const two = (await page(start, 2))!;
    expect(two.changes.map(({ seq }) => seq)).toEqual([start + 1, start + 2]);
    expect(two).toMatchObject({ upTo: start + 2, full: true });
    expect((await page(start + 4, 2))!.changes).toHaveLength(1);
    expect(await page(start + 5, 2)).toBeUndefined();
  });
});

describe('what memory does not know', () => {
  it('an event that another instance deleted has no payload, as in the outbox', async () => {
    const [first, second] = await poster.sendMany(2);
    await poster.send({ kind: 5, tags: [['e', first!.id]] }, undefined, 1);
    const found = (await page())!.changes;
    expect(found.map(({ payload }) => payload === undefined)).toEqual([true, false]);
    expect(found).toEqual((await asRead()).slice(0, 2));
    expect(found[1]!.id).toBe(second!.id);
  });

  it('after a request to vanish everything is read again', async () => {
    await poster.sendMany(2);
    await poster.vanish();
    expect(await page()).toBeUndefined();
    expect((await asRead()).every(({ payload }) => payload === undefined)).toBe(true);
  });

  it('nor is memory used after a request to vanish on another instance', async () => {
    await poster.sendMany(2);
    const tags = [['relay', 'ALL_RELAYS']];
    await poster.send({ kind: 62, tags }, [life.communities[0]!], 1);
    expect(await page()).toBeUndefined();
    expect((await asRead()).every(({ payload }) => payload === undefined)).toBe(true);
  });

  it('changes of another instance are read, and memory continues after them', async () => {
    await poster.sendMany(2);
    await poster.send({}, undefined, 1);
    await poster.sendMany(1);
    expect(await page()).toBeUndefined();
    expect((await page(start + 3))!.changes).toEqual(await asRead(start + 3));
  });
});

describe('its limits', () => {
  it('what every reader has passed is dropped', async () => {
    recent.passed('slow', start);
    await poster.sendMany(4);
    recent.passed('reader', start + 4);
    expect(recent.size).toBe(4);
    recent.passed('slow', start + 3);
    expect(recent.size).toBe(1);
    expect(await page()).toBeUndefined();
  });

  it('the oldest changes beyond the limit of bytes are dropped, and then read from the outbox', async () => {
    recent = new RecentChanges(1_000);
    recent.passed('reader', start);
    await poster.sendMany(20);
    expect(recent.size).toBeGreaterThan(0);
    expect(recent.size).toBeLessThan(20);
    expect(await page()).toBeUndefined();
  });

  it('a consumer is pressed if changes that it has not read will soon be dropped', async () => {
    recent = new RecentChanges(5_000);
    recent.passed('reader', start);
    await poster.sendMany(2);
    expect(recent.isPressing(start)).toBe(false);
    await poster.sendMany(30);
    const head = await readHead(life.client);
    expect(recent.isPressing(head - 1)).toBe(true);
    expect(recent.isPressing(head)).toBe(false);
  });

  it('a consumer is pressed if its next change has been dropped and newer ones are there', async () => {
    recent = new RecentChanges(5_000);
    recent.passed('reader', start);
    expect(recent.isPressing(start)).toBe(false);
    await poster.sendMany(32);
    expect(recent.size).toBeLessThan(32);
    expect(recent.isPressing(start)).toBe(true);
    recent.passed('reader', await readHead(life.client));
    expect(recent.isPressing(start)).toBe(false);
  });

  it('nothing is kept without a reader', async () => {
    recent = new RecentChanges();
    await poster.sendMany(3);
    expect(recent.size).toBe(0);
  });
});
