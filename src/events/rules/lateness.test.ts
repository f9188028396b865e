import { describe, expect, it } from 'vitest';
import type { NostrEvent } from './event.js';
import { refuseLate } from './lateness.js';
import type { IngestPolicy, TopicRule } from './retention.js';

const NOW = 1_700_000_000;
const DAY = 86_400;
const RULES = { enabled: true, blocked: false, public: true, priority: 0 };

interface Draft {
  readonly age: number;
  readonly kind?: number;
  readonly t?: readonly string[];
}

function refusedBy(policies: Record<string, IngestPolicy>, draft: Draft, mode: 'open' | 'default' = 'open') {
  const { age, kind = 1, t = ['chat'] } = draft;
  const event: NostrEvent = {
    id: 'a'.repeat(64),
    pubkey: 'b'.repeat(64),
    created_at: NOW - age,
    kind,
    tags: t.map((topic) => ['t', topic]),
    content: '',
    sig: 'c'.repeat(128),
  };
  const topics = new Map<string, TopicRule>(
    Object.entries(policies).map(([topic, policy]) => [topic, { ...RULES, policy }]),
  );
  const settings = {
    'topic.mode': mode,
    'topic.freeKinds': [] as (number | string)[],
    'topic.namespace': 'kukuri',
    'capacity.backfillSeconds': DAY,
  };
  return refuseLate({ event, settings, nowSeconds: NOW, topics })?.why;
}

const late = (topic: string, seconds: number) =>
  `created too long ago for topic ${topic}, at most ${seconds} s`;

describe('a late event', () => {
  it.each<[string, IngestPolicy, [at: number, after: number] | undefined]>([
    ['is accepted without a rule', {}, undefined],
    ['is accepted where backfill is allowed', { allowBackfill: true }, undefined],
    [
      'is accepted beyond the delay where backfill is allowed',
      { allowBackfill: true, maxDelaySeconds: 60 },
      undefined,
    ],
    ['is refused beyond the delay', { maxDelaySeconds: 60 }, [60, 61]],
    ['is refused beyond no delay at all', { maxDelaySeconds: 0 }, [0, 1]],
    ['is refused without backfill, by the general limit', { allowBackfill: false }, [DAY, DAY + 1]],
    ['is refused without backfill beyond the delay', { allowBackfill: false, maxDelaySeconds: 60 }, [60, 61]],
  ])('%s', (_what, policy, bound) => {
    expect(refusedBy({ chat: policy }, { age: bound?.[0] ?? 100 * DAY })).toBeUndefined();
    if (bound !== undefined)
      expect(refusedBy({ chat: policy }, { age: bound[1] })).toBe(late('chat', bound[0]));
  });

  it('is refused when one of its topics refuses it, and by no other topic', () => {
    const policies = { chat: {}, news: { maxDelaySeconds: 60 } };
    expect(refusedBy(policies, { age: 61, t: ['chat', 'news'] })).toBe(late('news', 60));
    expect(refusedBy(policies, { age: 61, t: ['chat'] })).toBeUndefined();
    expect(refusedBy(policies, { age: 61, t: [] })).toBeUndefined();
  });

  it('is refused by the global topic that it is bound to', () => {
    const policies = { 'kukuri:global': { maxDelaySeconds: 60 } };
    expect(refusedBy(policies, { age: 61, t: [] }, 'default')).toBe(late('kukuri:global', 60));
    expect(refusedBy(policies, { age: 61, t: [] })).toBeUndefined();
  });

  it.each([
    ['a deletion request', 5],
    ['a request to vanish', 62],
    ['a profile', 0],
    ['a list', 10_002],
    ['an article', 30_023],
    ['a gift wrap', 1_059],
  ])('%s is never late', (_what, kind) => {
    expect(refusedBy({ chat: { maxDelaySeconds: 0 } }, { age: 100 * DAY, kind })).toBeUndefined();
  });

  it.each([
    ['a post', 1],
    ['a report', 1_984],
    ['an ephemeral event', 20_001],
  ])('%s can be late', (_what, kind) => {
    expect(refusedBy({ chat: { maxDelaySeconds: 0 } }, { age: 1, kind })).toBe(late('chat', 0));
  });
});
