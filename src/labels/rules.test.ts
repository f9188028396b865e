/** Labels as events: the same label gives the same event, and readers of its target's topics get it. */
import { describe, expect, it } from 'vitest';
import { labelSchema, labelTemplates, lapsesAt, type PutLabel, withdrawalTemplate } from './rules.js';

const put: PutLabel = {
  label: 'nsfw',
  confidence: 0.75,
  policy: 'https://example.org/rules#3',
  signedAt: 1_000,
  lapsesAt: lapsesAt(1_000, { days: 2 }),
  targetEvent: 'e'.repeat(64),
  targetPubkey: 'a'.repeat(64),
  topics: ['x', 'y'],
};

describe('a label as events', () => {
  it('names the label, its target, the confidence, the policy and the expiry', () => {
    const { label, claim } = labelTemplates(put);
    const about = [
      ['e', put.targetEvent],
      ['t', 'x'],
      ['t', 'y'],
      ['expiration', '173800'],
    ];
    expect(label).toEqual({
      kind: 1_985,
      created_at: 1_000,
      content: '',
      tags: [['L', 'minato.moderation'], ['l', 'nsfw', 'minato.moderation'], ...about],
    });
    expect(claim.kind).toBe(39_006);
    expect(claim.tags).toEqual([
      ['d', `${put.targetEvent}:nsfw`],
      ['target', `event:${put.targetEvent}`],
      ['label', 'nsfw'],
      ['confidence', '0.75'],
      ['policy', put.policy],
      ['exp', '173800'],
      ...about,
    ]);
    expect(labelTemplates(put)).toEqual({ label, claim });
  });

  it('targets the person when there is no event', () => {
    const { label, claim } = labelTemplates({ ...put, targetEvent: undefined, topics: [], policy: '' });
    expect(label.tags).toContainEqual(['p', put.targetPubkey]);
    expect(claim.tags).toContainEqual(['d', `${put.targetPubkey}:nsfw`]);
    expect(claim.tags.some(([name]) => name === 'policy' || name === 'e')).toBe(false);
  });

  it('is withdrawn by naming both events', () => {
    expect(withdrawalTemplate(['1', '2'], 5)).toMatchObject({ kind: 5, created_at: 5 });
    expect(withdrawalTemplate(['1', '2'], 5).tags.slice(0, 2)).toEqual([
      ['e', '1'],
      ['e', '2'],
    ]);
  });

  it('has defaults and limits', () => {
    expect(labelSchema.parse({ label: 'spam' })).toEqual({
      label: 'spam',
      confidence: 1,
      days: 90,
      policy: '',
    });
    for (const bad of [
      { label: 'odd' },
      { label: 'spam', confidence: 0 },
      { label: 'spam', confidence: 1.1 },
      { label: 'spam', days: 0 },
    ])
      expect(labelSchema.safeParse(bad).success).toBe(false);
  });
});
