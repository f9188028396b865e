import { describe, expect, it } from 'vitest';
import { DAY_MS, type TopicRule } from '../events/rules/retention.js';
import { bucketOf, type DropRules, dropsAt, groupOf } from './rules.js';

const rules = (regular: number, history: number | 'forever', ...topics: number[]): DropRules => ({
  settings: { 'retention.regularDays': regular, 'retention.historyDays': history },
  topics: new Map(
    topics.map((retentionDays, at): [string, TopicRule] => [
      `t${at}`,
      { enabled: true, blocked: false, public: true, priority: 0, policy: { retentionDays } },
    ]),
  ),
});
const END = 100 * DAY_MS;

describe('a table', () => {
  it('belongs to what its name says', () => {
    const names = ['events_days30_2026_01', 'events_outbox_3', 'event_tags_forever_all', 'event_dedupe_p1'];
    expect(names.map(groupOf)).toEqual(['events', 'outbox', 'tags', 'ids']);
    expect(['post_search_documents', 'trust_scores', 'audit_log', 'plans'].map(groupOf)).toEqual([
      'search',
      'trust',
      'audit',
      'other',
    ]);
  });

  it('of events has its bucket and month', () => {
    expect(bucketOf('events_days30_2026_01')).toEqual({ bucket: 'days30', suffix: '2026_01' });
    expect(bucketOf('event_tags_forever_all')).toEqual({ bucket: 'forever', suffix: 'all' });
    expect(bucketOf('events_current')).toEqual({ bucket: 'current', suffix: '' });
    expect(bucketOf('events_outbox_3')).toBeUndefined();
  });
});

describe('a month', () => {
  it('is dropped after the longest days of any community and topic that use its bucket', () => {
    const all = [rules(30, 7), rules(14, 10, 20, 60, 400)];
    expect(dropsAt('days30', END, all)).toBe(END + 30 * DAY_MS);
    expect(dropsAt('days90', END, all)).toBe(END + 60 * DAY_MS);
    expect(dropsAt('history', END, all)).toBe(END + 10 * DAY_MS);
  });

  it('that no rule uses any more is dropped at once: its rows move', () => {
    expect(dropsAt('days365', END, [rules(30, 7)])).toBe(END);
  });

  it('of what is kept for ever is never dropped', () => {
    expect(dropsAt('forever', END, [rules(0, 7)])).toBeNull();
    expect(dropsAt('current', END, [rules(30, 7)])).toBeNull();
    expect(dropsAt('history', END, [rules(30, 7), rules(30, 'forever')])).toBeNull();
  });
});
