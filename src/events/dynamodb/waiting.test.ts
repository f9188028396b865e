import { describe, expect, it } from 'vitest';
import { QUEUE_BYTES_MAX, QUEUE_EVENTS_MAX } from '../postgres/lane/queue.js';
import { type WaitingEvent, WaitingEvents } from './waiting.js';

interface Named extends WaitingEvent {
  readonly name: string;
}
const item = (name: string, part: Partial<Named> = {}): Named => ({
  name,
  community: 1,
  from: ['network', 'address', 'author'],
  bytes: 100,
  key: undefined,
  ...part,
});
function waitingWith(...items: readonly Named[]): WaitingEvents<Named> {
  const waiting = new WaitingEvents<Named>();
  for (const one of items) expect(waiting.add(one)).toBe(true);
  return waiting;
}
const taken = (waiting: WaitingEvents<Named>, count: number) =>
  Array.from({ length: count }, () => waiting.take()?.name);

describe('the turn of a key', () => {
  it('one event of a key is taken at a time, in the order of arrival; others pass', () => {
    const versions = ['v1', 'v2', 'v3'].map((name) => item(name, { key: 'k' }));
    const waiting = waitingWith(...versions, item('note'), item('other', { key: 'l' }));
    expect(taken(waiting, 4)).toEqual(['v1', 'note', 'other', undefined]);
    expect(waiting.size).toBe(2);
    for (const [at, next] of ['v2', 'v3', undefined].entries()) {
      waiting.giveBack(versions[at]!);
      expect(taken(waiting, 2)).toEqual([next, undefined]);
    }
    expect(waiting.size).toBe(0);
    waiting.add(item('v4', { key: 'k' }));
    expect(taken(waiting, 1)).toEqual(['v4']);
  });

  it('an event that comes later does not pass one that has received the turn', () => {
    const [first, second, third] = ['v1', 'v2', 'v3'].map((name) => item(name, { key: 'k' }));
    const waiting = waitingWith(first!, second!);
    expect(taken(waiting, 2)).toEqual(['v1', undefined]);
    waiting.giveBack(first!);
    waiting.add(third!);
    expect(taken(waiting, 2)).toEqual(['v2', undefined]);
  });

  it('those that receive turns leave half of the writes to the queue', () => {
    const keys = Array.from({ length: 10 }, (_, at) => `${at}`);
    const firsts = keys.map((key) => item(`a${key}`, { key }));
    const waiting = waitingWith(...firsts, ...keys.map((key) => item(`b${key}`, { key })));
    expect(taken(waiting, 11).at(-1)).toBe(undefined);
    for (const key of keys) waiting.add(item(`c${key}`, { from: ['n', 'a', 'b'] }));
    for (const first of firsts) waiting.giveBack(first);
    const next = taken(waiting, 10).map((name) => name![0]);
    expect(next.filter((part) => part === 'c')).toHaveLength(5);
    expect(taken(waiting, 11).filter((name) => name !== undefined)).toHaveLength(10);
  });

  it('after everything was taken at once, only events that are written have turns', () => {
    const [first, second, third] = ['v1', 'v2', 'v3'].map((name) => item(name, { key: 'k' }));
    const [one, two] = ['w1', 'w2'].map((name) => item(name, { key: 'l' }));
    const waiting = waitingWith(first!, second!, third!, one!, two!);
    expect(taken(waiting, 3)).toEqual(['v1', 'w1', undefined]);
    waiting.giveBack(one!);
    expect(waiting.takeAll().map(({ name }) => name)).toEqual(['w2', 'v2', 'v3']);
    expect(waiting.size).toBe(0);
    waiting.add(item('v4', { key: 'k' }));
    waiting.add(item('w3', { key: 'l' }));
    expect(taken(waiting, 2)).toEqual(['w3', undefined]);
    waiting.giveBack(first!);
    expect(taken(waiting, 1)).toEqual(['v4']);
  });
});

describe('the bound', () => {
  it('those that wait for a turn take room of their author, network and community', () => {
    const waiting = new WaitingEvents<Named>();
    const fill = (part: Partial<Named>) => {
      let added = 0;
      while (waiting.add(item('', part))) added += 1;
      waiting.take();
      return added;
    };
    const [ofSender, ofCommunity] = [QUEUE_EVENTS_MAX / 4, QUEUE_EVENTS_MAX / 2];
    expect(fill({ key: 'k' })).toBe(ofSender);
    // Another author of the network has no room: only that of the event that was taken.
    expect(fill({ from: ['network', 'address', 'other'] })).toBe(1);
    expect(fill({ from: ['network 2', 'address', 'other'], key: 'l' })).toBe(ofSender);
    // Of each of the two networks one event was taken.
    expect(fill({ from: ['network 3', 'address', 'other'] })).toBe(ofCommunity - 2 * ofSender + 2);
    expect(fill({ community: 2, from: undefined })).toBe(ofCommunity);
    waiting.takeAll();
    expect(waiting.size).toBe(0);
    expect(fill({})).toBe(ofSender);
  });

  it('by bytes as well', () => {
    const waiting = new WaitingEvents<Named>();
    const large = item('', { bytes: QUEUE_BYTES_MAX / 4, key: 'k' });
    expect([waiting.add(large), waiting.add(large)]).toEqual([true, false]);
    waiting.take();
    expect([waiting.add(large), waiting.add(item('', { bytes: 1 }))]).toEqual([true, false]);
  });
});
