import { describe, expect, it } from 'vitest';
import { type PolicyChange, PolicySums, withPolicy } from './policy-preview.js';
import { DAY_MS, type IngestPolicy, type Retention, type TopicRule } from './retention.js';

const NOW = 1_000 * DAY_MS;
const rule = (policy: IngestPolicy): TopicRule => ({
  enabled: true,
  blocked: false,
  public: true,
  priority: 0,
  policy,
});
const rules: Retention = {
  settings: { 'retention.regularDays': 30 },
  topics: new Map([
    ['tea', rule({})],
    ['sea', rule({ retentionDays: 90 })],
  ]),
};

/** One event a day for 40 days, the oldest first, each of 10 bytes. */
function preview(policy: IngestPolicy, { topics = ['tea'], step = 0 as PolicyChange['step'] } = {}) {
  const { maxEvents = 0, maxBytes = 0 } = policy;
  const sums = new PolicySums({
    topic: 'tea',
    before: rules,
    after: withPolicy(rules, 'tea', policy, NOW),
    limits: { maxEvents, maxBytes },
    step,
    size: { events: 40, bytes: 400 },
    now: NOW,
  });
  for (let day = 40; day > 0; day -= 1) sums.add({ topics, ingestedAt: NOW - day * DAY_MS + 1, bytes: 10 });
  return sums.result();
}

const NONE = { events: 0, bytes: 0 };
const DUE = { events: 10, bytes: 100 };

describe('the preview of a policy', () => {
  it('counts what is past the shorter days, beside what is due already', () => {
    expect(preview({ retentionDays: 10 })).toEqual({
      retention: { events: 20, bytes: 200 },
      due: DUE,
      capacity: NONE,
      leaving: 0,
    });
  });

  it('brings nothing back and purges nothing more with longer days', () => {
    expect(preview({ retentionDays: 0 })).toEqual({ retention: NONE, due: DUE, capacity: NONE, leaving: 0 });
  });

  it('keeps events that another topic keeps longer, and says that they leave this one', () => {
    expect(preview({ retentionDays: 10 }, { topics: ['tea', 'sea'] })).toEqual({
      retention: NONE,
      due: NONE,
      capacity: NONE,
      leaving: 20,
    });
  });

  it('purges the oldest of what is left until it fits below 90 % of a limit', () => {
    // 30 are left; below 90 % of 20 are 17.
    expect(preview({ maxEvents: 20 }).capacity).toEqual({ events: 13, bytes: 130 });
    expect(preview({ maxBytes: 200 }).capacity).toEqual({ events: 13, bytes: 130 });
    // 20 are past the days, 10 are left.
    expect(preview({ maxEvents: 20, retentionDays: 10 })).toMatchObject({
      retention: { events: 20, bytes: 200 },
      capacity: NONE,
    });
  });

  it('purges nothing for space below the limit, unless a purge is under way', () => {
    expect(preview({ maxEvents: 31 }).capacity).toEqual(NONE);
    expect(preview({ maxEvents: 31 }, { step: 3 }).capacity).toEqual({ events: 3, bytes: 30 });
  });
});
