/**
 * What waits for a reader is bounded for its connection and counted (I14), and its live events are charged to
 * it (I18), in order and each once (I10). The socket is a stand-in that takes everything at once.
 */
import type { Duplex } from 'node:stream';
import { describe, expect, it } from 'vitest';
import type { WebSocket } from 'ws';
import { parseFilters } from '../events/rules/filter.js';
import { isRefusal } from '../events/rules/reply.js';
import { Work } from '../limits/work.js';
import { createMetrics } from '../node/metrics.js';
import type { LiveEvent } from './fanout.js';
import { HeldBytes } from './input/held-bytes.js';
import { WAITING_BYTES, WaitingEvents } from './live/waiting.js';
import { type LivePayer, Outgoing } from './outgoing.js';
import { Subscription } from './subscription.js';

const LIMITS = { 'limits.filterValuesMax': 100, 'limits.filtersMax': 10 };
const WAITING_MAX = 5_000;
const CLIENT = { rateKey: 'a', networkKey: 'a' };
const hex = (number: number) => number.toString(16).padStart(64, '0');

function start() {
  const written: Buffer[] = [];
  const ws = { OPEN: 1, readyState: 1, bufferedAmount: 0, close() {}, terminate() {} };
  const socket = {
    writableHighWaterMark: 16_384,
    on() {},
    write: (bytes: Buffer, done: () => void) => {
      written.push(Buffer.from(bytes));
      done();
    },
  };
  const clock = { ms: 0 };
  const work = new Work(() => clock.ms);
  const turns: (() => void)[] = [];
  const payer: LivePayer = {
    charge: (ms) => work.charge(CLIENT, ms),
    debtMs: () => work.waitMs(CLIENT),
    isGreedy: () => work.isGreedy(CLIENT),
    turn: (run) =>
      new Promise((resolve) =>
        turns.push(() => {
          run();
          resolve();
        }),
      ),
  };
  const held = new HeldBytes(100_000_000);
  const outgoing = new Outgoing(
    ws as unknown as WebSocket,
    socket as unknown as Duplex,
    createMetrics(),
    (giveUp) => held.join(1, 'a', giveUp),
    payer,
  );
  const waiting = new WaitingEvents();
  const ended: string[] = [];
  const subscribe = (id: string, filter: object = { kinds: [1] }): Subscription => {
    const filters = parseFilters([filter], LIMITS);
    if (isRefusal(filters)) throw new Error('a wrong filter');
    return new Subscription(id, filters, filters, 0, outgoing, (overflown) => {
      ended.push(overflown.id);
      overflown.end();
    });
  };
  const note = (number: number, content = ''): LiveEvent => {
    const id = hex(number);
    const event = { id, pubkey: hex(1), created_at: 1, kind: 1, tags: [], content, sig: '' };
    const waits = waiting.of(event);
    const payload = Buffer.from(JSON.stringify(event));
    const isOver = () => waits.isWithdrawn;
    return { seq: number, ingestedAt: 0, event, payload, matched: event, waits, isOver };
  };
  /** The numbers of the events that were sent, in order. */
  const sent = () => {
    outgoing.flush();
    const text = Buffer.concat(written).toString('latin1');
    return [...text.matchAll(/"id":"([0-9a-f]{64})"/g)].map(([, id]) => Number.parseInt(id!, 16));
  };
  /** Gives it so many turns. */
  const turn = async (count: number) => {
    for (let given = 0; given < count && turns.length > 0; given += 1) {
      turns.shift()!();
      await new Promise(setImmediate);
    }
  };
  return { outgoing, held, waiting, work, turns, ended, subscribe, note, sent, turn };
}

const numbersTo = (last: number) => Array.from({ length: last }, (_, at) => at + 1);

describe('changes that wait for EOSE', () => {
  it('are bounded for all subscriptions of a connection; the one with most of them ends', () => {
    const { subscribe, note, ended, outgoing } = start();
    const [large, small] = [subscribe('large'), subscribe('small')];
    for (const number of numbersTo(WAITING_MAX - 10)) large.deliver(note(number));
    for (const number of numbersTo(10)) small.deliver(note(number));
    expect([ended, outgoing.waiting.count]).toEqual([[], WAITING_MAX]);
    small.deliver(note(11));
    expect([ended, outgoing.waiting.count]).toEqual([['large'], 11]);
    small.announce({ seq: 12, id: hex(1), ingestedAt: 0 });
    expect(outgoing.waiting.count).toBe(12);
  });

  it('are counted in the memory for all readers, until EOSE or the end', () => {
    const { subscribe, note, held } = start();
    const [first, second] = [subscribe('first'), subscribe('second')];
    for (const number of numbersTo(100)) for (const each of [first, second]) each.deliver(note(number));
    // Once more at the end: it takes one place.
    first.deliver(note(1));
    expect(held.bytes).toBe(200 * WAITING_BYTES);
    first.goLive(0);
    expect(held.bytes).toBe(100 * WAITING_BYTES);
    second.end();
    expect(held.bytes).toBe(0);
  });

  it('are bounded by their bytes too; what was hidden meanwhile goes first', () => {
    const { subscribe, note, ended, outgoing, waiting } = start();
    const large = 'x'.repeat(1_000_000);
    const [other, versions] = [subscribe('other'), subscribe('versions')];
    for (const number of numbersTo(10)) other.deliver(note(number));
    for (const number of numbersTo(20)) {
      versions.deliver(note(100 + number, large));
      waiting.withdraw(hex(99 + number));
    }
    expect(ended).toEqual([]);
    expect(outgoing.waiting.count).toBeLessThan(10 + 5);
    for (const number of numbersTo(5)) versions.deliver(note(200 + number, large));
    expect([ended, outgoing.waiting.count]).toEqual([['versions'], 10]);
  });

  it('are withdrawn in one step for all who wait, and are not kept after it', () => {
    const { subscribe, note, waiting, sent } = start();
    const subscriptions = numbersTo(200).map((number) => subscribe(`s${number}`));
    const [deleted, other] = [note(1), note(2)];
    for (const each of subscriptions) for (const live of [deleted, other]) each.deliver(live);
    expect(waiting.size).toBe(2);
    waiting.withdraw(deleted.event.id);
    expect(waiting.size).toBe(1);
    // Restored since: it is another one.
    subscriptions[0]!.deliver(note(1));
    for (const each of subscriptions) each.goLive(0);
    expect(waiting.size).toBe(0);
    expect(sent().filter((number) => number === 2)).toHaveLength(200);
    expect(sent().filter((number) => number === 1)).toHaveLength(1);
  });
});

describe('live events', () => {
  it('are charged to their reader by number and bytes', () => {
    const { subscribe, note, outgoing, work } = start();
    const subscription = subscribe('s');
    subscription.goLive(0);
    for (const number of numbersTo(1_000)) subscription.deliver(note(number));
    // 1,000 notes take at least 2 ms; a reader with one subscription is not slowed by that.
    expect(work.isGreedy(CLIENT)).toBe(false);
    for (const number of numbersTo(100)) subscription.deliver(note(1_000 + number, 'x'.repeat(90_000)));
    expect(work.isGreedy(CLIENT)).toBe(true);
    expect(outgoing.waiting.count).toBe(0);
  });

  it('of a greedy reader wait for its turns, in order and each once', async () => {
    const { subscribe, note, sent, turn, turns, work, held } = start();
    const subscription = subscribe('s');
    subscription.goLive(0);
    work.charge(CLIENT, 50);
    const all = numbersTo(2_000);
    for (const number of all) subscription.deliver(note(number));
    const atOnce = sent().length;
    expect(atOnce).toBeLessThan(100);
    expect(turns).toHaveLength(1);
    expect(held.bytes).toBe((2_000 - atOnce) * WAITING_BYTES);
    await turn(1);
    // A turn of 0.25 ms has less than 125 of them.
    expect(sent().length - atOnce).toBeGreaterThan(50);
    expect(sent().length - atOnce).toBeLessThan(126);
    await turn(100);
    expect(sent()).toEqual(all);
    expect(held.bytes).toBe(0);
  });

  it('of a greedy reader who reads may wait for more than those of one who does not', async () => {
    const { subscribe, note, sent, turn, work } = start();
    const subscription = subscribe('s');
    subscription.goLive(0);
    work.charge(CLIENT, 50);
    const all = numbersTo(80);
    for (const number of all) subscription.deliver(note(number, 'x'.repeat(100_000)));
    await turn(1_000);
    expect(sent()).toEqual(all);
  });

  it('that were hidden, closed or are not visible any more are not sent at the turn', async () => {
    const { subscribe, note, sent, turn, work, waiting } = start();
    const [kept, closed, changed] = [subscribe('kept'), subscribe('closed'), subscribe('changed')];
    for (const each of [kept, closed, changed]) each.goLive(0);
    work.charge(CLIENT, 50);
    for (const number of numbersTo(100)) kept.deliver(note(number));
    const atOnce = sent().length;
    for (const number of [201, 202]) for (const each of [kept, closed, changed]) each.deliver(note(number));
    waiting.withdraw(hex(202));
    closed.end();
    changed.filters = [];
    await turn(100);
    expect(atOnce).toBeLessThan(100);
    expect(sent()).toEqual([...numbersTo(100), 201]);
    expect(waiting.size).toBe(0);
  });
});
