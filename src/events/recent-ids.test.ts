import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { describe, expect, it } from 'vitest';
import { RecentIds } from './recent-ids.js';

const idOf = (number: number) => number.toString(16).padStart(64, '0');

describe('the recent ids', () => {
  it('follow the outbox: what is hidden first is not added by an upsert that is read later', () => {
    const recent = new RecentIds();
    recent.add(1, idOf(1));
    expect([recent.has(1, idOf(1)), recent.has(2, idOf(1)), recent.has(1, idOf(2))]).toEqual([
      true,
      false,
      false,
    ]);
    recent.withdraw(1, idOf(1));
    recent.add(1, idOf(1));
    expect(recent.has(1, idOf(1))).toBe(false);
    recent.forget(1, idOf(1));
    recent.add(1, idOf(1));
    expect(recent.has(1, idOf(1))).toBe(true);
    recent.clear();
    expect(recent.has(1, idOf(1))).toBe(false);
  });

  it('leave the V8 heap as it is, however many there are', () => {
    setFlagsFromString('--expose-gc');
    const collect = runInNewContext('gc') as () => void;
    const recent = new RecentIds();
    collect();
    const before = process.memoryUsage().heapUsed;
    for (let number = 0; number < 120_000; number += 1) recent.add(1, idOf(number));
    collect();
    expect(process.memoryUsage().heapUsed - before).toBeLessThan(2_000_000);
    expect(recent.has(1, idOf(119_999))).toBe(true);
    expect(recent.has(1, idOf(0))).toBe(false);
  });
});
