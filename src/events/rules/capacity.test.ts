import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  AT_EASE,
  type Capacity,
  escalated,
  excess,
  fullness,
  highestStep,
  type LagStep,
  LOW_PRIORITY_MS_MAX,
  lagStepAt,
  MARKS,
  refuseForSpace,
  type Step,
  stepAt,
  topicStepAt,
} from './capacity.js';
import type { NostrEvent } from './event.js';
import type { TopicRule } from './retention.js';

const STEPS: readonly Step[] = [0, 1, 2, 3];

describe('how full it is', () => {
  it('is the share of the nearest limit; 0 means no limit', () => {
    const size = { events: 50, bytes: 900 };
    expect(fullness(size, { maxEvents: 0, maxBytes: 0 })).toBe(0);
    expect(fullness(size, { maxEvents: 100, maxBytes: 0 })).toBe(50);
    expect(fullness(size, { maxEvents: 100, maxBytes: 1_000 })).toBe(90);
    expect(fullness(size, { maxEvents: 40, maxBytes: 1_000 })).toBe(125);
  });
});

describe('the step now', () => {
  /** From each step before, left to right 0 to 3. */
  const TABLE: [percent: number, steps: [Step, Step, Step, Step]][] = [
    [0, [0, 0, 0, 0]],
    [84.9, [0, 0, 0, 0]],
    [85, [0, 1, 1, 1]],
    [89.9, [0, 1, 1, 1]],
    [90, [1, 1, 2, 3]],
    [94.9, [1, 1, 2, 3]],
    [95, [2, 2, 2, 3]],
    [99.9, [2, 2, 2, 3]],
    [100, [3, 3, 3, 3]],
    [250, [3, 3, 3, 3]],
  ];
  it.each(TABLE)('at %d %%, from each step before, is %j', (percent, steps) => {
    expect(STEPS.map((before) => stepAt(percent, before))).toEqual(steps);
  });

  it('begins at its mark and ends at least five points below', () => {
    for (const { from, until } of Object.values(MARKS)) expect(from - until).toBeGreaterThanOrEqual(5);
  });

  it('grows with the size, does not flicker, and computing it twice changes nothing', () => {
    const percent = fc.double({ min: 0, max: 120, noNaN: true });
    fc.assert(
      fc.property(
        percent,
        fc.double({ min: 0, max: 4.99, noNaN: true }),
        fc.constantFrom(...STEPS),
        (at, less, before) => {
          const step = stepAt(at, before);
          expect(stepAt(at, step)).toBe(step);
          expect(stepAt(at + less, before)).toBeGreaterThanOrEqual(step);
          // A step that began at a size does not end by a change of less than five points.
          const entered = stepAt(at, 0);
          expect(stepAt(at - less, entered)).toBe(entered);
        },
      ),
    );
  });
});

describe('the step of a topic by its own limits', () => {
  it('goes from no backfill to the purge: nothing in a topic has a lower priority', () => {
    expect([0, 85, 89, 90, 95, 99, 100].map((percent) => topicStepAt(percent, 0))).toEqual([
      0, 0, 0, 1, 1, 1, 3,
    ]);
    expect([99, 90, 89, 85, 84].map((percent) => topicStepAt(percent, 3))).toEqual([3, 3, 1, 1, 0]);
    // An older version of the program may have stored it.
    expect([99, 90, 85, 84].map((percent) => topicStepAt(percent, 2))).toEqual([1, 1, 1, 0]);
  });
});

describe('a community in step 2', () => {
  it('goes to step 3 after an hour, and no other step changes by time', () => {
    expect(escalated(2, 1_000, 1_000 + LOW_PRIORITY_MS_MAX - 1)).toBe(2);
    expect(escalated(2, 1_000, 1_000 + LOW_PRIORITY_MS_MAX)).toBe(3);
    for (const step of [0, 1, 3] as const) expect(escalated(step, 0, 10 * LOW_PRIORITY_MS_MAX)).toBe(step);
  });
});

describe('what a purge has to free', () => {
  it('is just enough to be below where the step ends, by events and by bytes', () => {
    expect(excess({ events: 100, bytes: 0 }, { maxEvents: 100, maxBytes: 0 })).toEqual({
      events: 11,
      bytes: 0,
    });
    expect(excess({ events: 89, bytes: 5_000 }, { maxEvents: 100, maxBytes: 1_000 })).toEqual({
      events: 0,
      bytes: 4_101,
    });
    expect(excess({ events: 9, bytes: 9 }, { maxEvents: 0, maxBytes: 0 })).toEqual({ events: 0, bytes: 0 });
  });

  it('leaves one event to a limit of one', () => {
    expect(excess({ events: 3, bytes: 0 }, { maxEvents: 1, maxBytes: 0 }).events).toBe(2);
    expect(excess({ events: 1, bytes: 0 }, { maxEvents: 1, maxBytes: 0 }).events).toBe(0);
  });

  it('ends the step, and one event less would not', () => {
    const max = fc.integer({ min: 2, max: 1_000_000 });
    fc.assert(
      fc.property(max, fc.integer({ min: 0, max: 2_000_000 }), (maxEvents, events) => {
        const limits = { maxEvents, maxBytes: 0 };
        const { events: over } = excess({ events, bytes: 0 }, limits);
        const left = (gone: number) => fullness({ events: events - gone, bytes: 0 }, limits);
        expect(left(over)).toBeLessThan(MARKS[3].until);
        if (over > 0) expect(left(over - 1)).toBeGreaterThanOrEqual(MARKS[3].until);
      }),
    );
  });
});

describe('what is refused', () => {
  const NOW = 1_700_000_000;
  const DAY = 86_400;
  const topics = new Map<string, TopicRule>([
    ['main', { enabled: true, blocked: false, public: false, priority: 1, policy: {} }],
    ['chat', { enabled: true, blocked: false, public: false, priority: 0, policy: { maxEvents: 10 } }],
  ]);
  const refusalOf = (capacity: Capacity, { kind = 1, age = 0, t = [] as string[] }) => {
    const event: NostrEvent = {
      id: 'a'.repeat(64),
      pubkey: 'b'.repeat(64),
      created_at: NOW - age,
      kind,
      tags: t.map((topic) => ['t', topic]),
      content: '',
      sig: 'c'.repeat(128),
    };
    const settings = { 'capacity.backfillSeconds': DAY };
    return refuseForSpace({ event, settings, nowSeconds: NOW, capacity, topics });
  };
  const refuse = (...arrival: Parameters<typeof refusalOf>) =>
    refusalOf(...arrival)?.why.replace(/^.*: /, '');
  const whole = (step: Step): Capacity => ({ ...AT_EASE, step });
  const chat = (step: Step): Capacity => ({ ...AT_EASE, topics: new Map([['chat', step]]) });
  const FULL_CHAT: Capacity = { ...chat(3), full: new Set(['chat']) };
  const lagging = (lag: LagStep): Capacity => ({ ...AT_EASE, lag });

  const OLD = 'events older than 86400 seconds are not taken now';
  const LOW = 'only topics of higher priority take posts now';
  const FULL = 'this topic takes no posts now';
  type Words = readonly (string | undefined)[];
  const NEVER: Words = [undefined, undefined, undefined, undefined];
  const FROM_1: Words = [undefined, OLD, OLD, OLD];
  const FROM_2 = (words: string): Words => [undefined, undefined, words, words];
  /** In steps 0 to 3 of the community, then of the topic `chat` alone. */
  const TABLE: [what: string, event: Parameters<typeof refuse>[1], community: Words, topic: Words][] = [
    ['a post without topic', {}, FROM_2(LOW), NEVER],
    ['a post in a topic without rule', { t: ['x'] }, FROM_2(LOW), NEVER],
    ['a post in a topic of priority 0', { t: ['chat'] }, FROM_2(LOW), NEVER],
    ['a post in a topic of priority 1', { t: ['main'] }, NEVER, NEVER],
    ['a post in both', { t: ['chat', 'main'] }, NEVER, NEVER],
    ['a post of exactly the age', { t: ['main'], age: DAY }, NEVER, NEVER],
    ['backfill', { t: ['main'], age: DAY + 1 }, FROM_1, NEVER],
    ['backfill of the topic', { t: ['chat'], age: DAY + 1 }, FROM_1, FROM_1],
    ['an addressable event', { kind: 30_000 }, FROM_2(LOW), NEVER],
    ['a profile', { kind: 0, t: ['chat'] }, NEVER, NEVER],
    ['an old profile', { kind: 0, t: ['chat'], age: DAY + 1 }, FROM_1, FROM_1],
    ['an ephemeral event', { kind: 20_000, t: ['chat'], age: DAY + 1 }, NEVER, NEVER],
    ['a deletion request', { kind: 5, t: ['chat'], age: DAY + 1 }, NEVER, NEVER],
    ['a request to vanish', { kind: 62, t: ['chat'], age: DAY + 1 }, NEVER, NEVER],
  ];
  it.each(TABLE)('%s', (_what, event, community, topic) => {
    expect(STEPS.map((step) => refuse(whole(step), event))).toEqual(community);
    expect(STEPS.map((step) => refuse(chat(step), event))).toEqual(topic);
  });

  it.each(TABLE)(
    '%s, while readers of the outbox are behind: the same as in the first steps of the community',
    (_what, event, community) => {
      expect(([0, 1, 2] as const).map((lag) => refuse(lagging(lag), event))).toEqual(community.slice(0, 3));
    },
  );

  it('the reason is short space first, then readers that are behind', () => {
    const both = { ...AT_EASE, step: 1, lag: 2 } as const;
    expect(refusalOf(lagging(1), { age: DAY + 1 })?.why).toMatch(/^the node is catching up: events older/);
    expect(refusalOf(both, { age: DAY + 1 })?.why).toMatch(/^space is short: events older/);
    expect(refusalOf(both, {})?.why).toMatch(/^the node is catching up: only topics/);
  });

  it('each refusal is restricted, and says that space is short', () => {
    const refusals = [
      refusalOf(whole(1), { age: DAY + 1 }),
      refusalOf(whole(2), {}),
      refusalOf(FULL_CHAT, { t: ['chat'] }),
    ];
    for (const refusal of refusals) {
      expect(refusal).toEqual({ refused: 'restricted', why: expect.stringMatching(/^space is short: /) });
    }
  });

  it.each([
    ['a post in a topic that holds only what is never purged', { t: ['chat'] }, FULL],
    ['a post in this topic and another', { t: ['chat', 'main'] }, FULL],
    ['an addressable event there', { kind: 30_000, t: ['chat'] }, FULL],
    ['a post elsewhere', { t: ['main'] }, undefined],
    ['a profile', { kind: 0, t: ['chat'] }, undefined],
    ['a deletion request', { kind: 5, t: ['chat'] }, undefined],
    ['a request to vanish', { kind: 62, t: ['chat'] }, undefined],
    ['an ephemeral event', { kind: 20_000, t: ['chat'] }, undefined],
  ])('%s', (_what, event, words) => {
    expect(refuse(FULL_CHAT, event)).toBe(words);
  });

  it('the highest step of a community counts its topics', () => {
    expect(highestStep(AT_EASE)).toBe(0);
    expect(highestStep(whole(2))).toBe(2);
    expect(highestStep(chat(3))).toBe(3);
    expect(highestStep(lagging(2))).toBe(2);
  });
});

describe('the step for readers that are behind', () => {
  const LAG_MAX = 300;
  const after = (before: LagStep, lags: readonly number[]) =>
    lags.map((lag) => lagStepAt(lag, LAG_MAX, before));

  it('begins at the maximum and at twice the maximum, and never purges', () => {
    expect(after(0, [0, 299, 300, 599, 600, 1_000_000])).toEqual([0, 0, 1, 1, 2, 2]);
  });

  it('ends at half of the mark, so that it does not flicker', () => {
    expect(after(1, [299, 150, 149])).toEqual([1, 1, 0]);
    expect(after(2, [599, 300, 299, 150, 149])).toEqual([2, 2, 1, 1, 0]);
  });

  it('is always 0 without a maximum', () => {
    expect(lagStepAt(1_000_000, 0, 2)).toBe(0);
  });
});
