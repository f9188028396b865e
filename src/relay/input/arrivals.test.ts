import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { Work } from '../../limits/work.js';
import { Arrivals, UNFINISHED_MS_MAX } from './arrivals.js';
import { HeldBytes } from './held-bytes.js';

const PING = Buffer.from([0x89, 0x80, 0, 0, 0, 0]);
const client = {
  community: 1,
  address: '192.0.2.1',
  rateKey: '192.0.2.1',
  networkKey: '192.0.2.1',
  isLoopback: false,
};
let nowMs = 0;

function started() {
  const rejected: string[] = [];
  const held = new HeldBytes(1_000_000_000).join(1, '192.0.2.1', () => undefined);
  const work = new Work();
  const arrivals = new Arrivals({
    client,
    work,
    held,
    isExempt: () => false,
    reject: (why) => rejected.push(why),
  });
  return { arrivals, rejected, held, work };
}

/** The beginning of a message of 500 KB. */
function begun() {
  const { arrivals } = started();
  const head = Buffer.from([0x81, 0x80 | 127, 0, 0, 0, 0, 0, 0x07, 0xa1, 0x20, 0, 0, 0, 0]);
  arrivals.take(head);
  return arrivals;
}

beforeEach(() => {
  vi.spyOn(performance, 'now').mockImplementation(() => nowMs);
});
afterEach(() => {
  vi.restoreAllMocks();
});

describe('a message that arrives slowly', () => {
  it('of half a megabyte over a slow phone is taken', () => {
    const arrivals = begun();
    // 40 kbit/s, in segments of TCP.
    for (let sent = 0; sent < 500_000; sent += 1_250) {
      nowMs += 250;
      expect(arrivals.isOverdue()).toBe(false);
      arrivals.take(Buffer.alloc(1_250));
    }
    nowMs += 3_600_000;
    expect(arrivals.isOverdue()).toBe(false);
  });

  it('that stands still, or goes on byte by byte, is overdue', () => {
    const still = begun();
    nowMs += UNFINISHED_MS_MAX + 1_000;
    expect(still.isOverdue()).toBe(true);
    const dripping = begun();
    for (let seconds = 0; seconds < 60; seconds += 1) {
      dripping.take(Buffer.alloc(1));
      nowMs += 1_000;
    }
    expect(dripping.isOverdue()).toBe(true);
  });

  it('has more time when the node did not read the socket', () => {
    const arrivals = begun();
    nowMs += UNFINISHED_MS_MAX + 1_000;
    arrivals.postpone(2_000);
    expect(arrivals.isOverdue()).toBe(false);
  });
});

describe('pings', () => {
  it('of a client that sends one a second, or ten, are never too many', () => {
    const { arrivals, rejected } = started();
    for (let sent = 0; sent < 36_000; sent += 1) {
      nowMs += sent < 18_000 ? 1_000 : 100;
      arrivals.take(PING);
    }
    expect(rejected).toEqual([]);
  });

  it('of one that sends a hundred a second are', () => {
    const { arrivals, rejected } = started();
    for (let sent = 0; sent < 1_000; sent += 1) {
      nowMs += 10;
      arrivals.take(PING);
    }
    expect(rejected).toContain('rate-limited: too many pings and pongs');
  });
});
