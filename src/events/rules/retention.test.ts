import { describe, expect, it } from 'vitest';
import type { NostrEvent } from './event.js';
import { matchFilter } from './filter.js';
import {
  asKept,
  DAY_MS,
  defaultSince,
  eventSince,
  historySince,
  type Retention,
  surelySince,
  topicSince,
} from './retention.js';

const NOW = 1_000 * DAY_MS;
const ago = (days: number) => NOW - days * DAY_MS;
const topic = (retentionDays?: number, keptSince?: number) => ({
  enabled: true,
  blocked: false,
  public: true,
  priority: 0,
  policy: retentionDays === undefined ? {} : { retentionDays },
  keptSince,
});
const rules = (regularDays: number, keptSince: number, topics: Record<string, ReturnType<typeof topic>>) => {
  const settings = { 'retention.regularDays': regularDays };
  return { settings, keptSince, topics: new Map(Object.entries(topics)) } satisfies Retention;
};

describe('the time since when events are kept', () => {
  it.each([
    ['by the default days', rules(30, 0, {}), 'any', ago(30)],
    ['for ever', rules(0, 0, {}), 'any', 0],
    ['events past their days stay hidden after the days are raised', rules(60, ago(10), {}), 'any', ago(10)],
    ['for ever, except events that were past their days before', rules(0, ago(40), {}), 'any', ago(40)],
    ['by the days of the topic', rules(30, ago(10), { any: topic(90) }), 'any', ago(90)],
    [
      'by the days of the topic, except what it hid before',
      rules(30, 0, { any: topic(90, ago(50)) }),
      'any',
      ago(50),
    ],
    ['by the default where the topic has no days', rules(30, ago(10), { any: topic() }), 'any', ago(10)],
    [
      'except what the default hid while the topic had days of its own',
      rules(30, ago(10), { any: topic(undefined, ago(90)) }),
      'any',
      ago(30),
    ],
  ] as const)('%s', (_, given, name, since) => {
    expect(topicSince(given, name, NOW)).toBe(since);
  });

  it('is that of the topic which keeps the event longest; without a topic, of the default', () => {
    const given = rules(30, 0, { brief: topic(2), lasting: topic(90), always: topic(0) });
    expect(eventSince(given, [], NOW)).toBe(defaultSince(given, NOW));
    expect(eventSince(given, ['brief'], NOW)).toBe(ago(2));
    expect(eventSince(given, ['brief', 'other'], NOW)).toBe(ago(30));
    expect(eventSince(given, ['brief', 'lasting', 'other'], NOW)).toBe(ago(90));
    expect(eventSince(given, ['always', 'brief'], NOW)).toBe(0);
    expect(surelySince(given, NOW)).toBe(ago(2));
  });

  it('follows retention.historyDays for a superseded version: none, some, or for ever', () => {
    const since = (days: number | 'forever', historyKeptSince = 0) =>
      historySince({ settings: { 'retention.historyDays': days }, historyKeptSince }, NOW);
    expect(since(7)).toBe(ago(7));
    expect(since(7, ago(3))).toBe(ago(3));
    expect(since('forever')).toBe(0);
    expect(since('forever', ago(3))).toBe(ago(3));
    expect(since(0)).toBeGreaterThan(NOW);
  });
});

describe('an event as filters see it', () => {
  const given = rules(30, 0, { brief: topic(2), lasting: topic(90) });
  const event = (kind: number, ...topics: string[]): NostrEvent => ({
    id: 'a'.repeat(64),
    pubkey: 'b'.repeat(64),
    created_at: 1,
    kind,
    tags: topics.map((name) => ['t', name]),
    content: '',
    sig: 'c'.repeat(128),
  });
  const kept = (one: NostrEvent, ingestedAt: number) => asKept(given, one, { bound: [], ingestedAt }, NOW);
  const finds = (name: string, one: NostrEvent, ingestedAt: number) =>
    matchFilter({ tags: [{ name: 't', values: new Set([name]) }] }, kept(one, ingestedAt)!);

  it('is found by the topics that still keep it, and not by the others', () => {
    const both = event(1, 'brief', 'lasting');
    expect([finds('brief', both, ago(2)), finds('lasting', both, ago(2))]).toEqual([true, true]);
    expect([finds('brief', both, ago(2) - 1), finds('lasting', both, ago(2) - 1)]).toEqual([false, true]);
    expect(kept(both, ago(90) - 1)).toBeUndefined();
    expect(kept(event(1, 'brief'), ago(2) - 1)).toBeUndefined();
  });

  it('does not age when it is a current version or a request', () => {
    for (const kind of [0, 5, 62, 30_023]) expect(kept(event(kind, 'brief'), 0)).toBeDefined();
  });
});
