import { describe, expect, it } from 'vitest';
import type { NostrEvent } from '../events/rules/event.js';
import { HIDDEN_CODES, type Hidden } from '../events/rules/hidden.js';
import type { Retention } from '../events/rules/retention.js';
import { concealedAs, STATES, type StateFacts, stateOf } from './rules-finder.js';

const DAY = 86_400_000;
const NOW = 1_700_000_000_000;
const RULES: Retention = { settings: { 'retention.regularDays': 30 }, topics: new Map() };
const event: NostrEvent = {
  id: 'a'.repeat(64),
  pubkey: 'b'.repeat(64),
  created_at: NOW / 1_000,
  kind: 1,
  tags: [],
  content: '',
  sig: 'c'.repeat(128),
};
const facts = (change: Partial<StateFacts> = {}): StateFacts => ({
  event,
  hidden: undefined,
  isVanished: false,
  expiresAt: null,
  ingestedAt: NOW,
  bound: [],
  isHeld: false,
  ...change,
});

describe('the state of a stored event', () => {
  it('is why its row is hidden; a removed one that waits for a moderator is held', () => {
    for (const hidden of Object.keys(HIDDEN_CODES) as Hidden[])
      expect(stateOf(facts({ hidden }), RULES, NOW)).toBe(hidden);
    expect(stateOf(facts({ hidden: 'removed', isHeld: true }), RULES, NOW)).toBe('held');
    expect(stateOf(facts({ hidden: 'deleted', isHeld: true }), RULES, NOW)).toBe('deleted');
  });

  it('changes with time and marks before the row does', () => {
    expect(stateOf(facts(), RULES, NOW)).toBe('served');
    expect(stateOf(facts({ isVanished: true }), RULES, NOW)).toBe('vanished');
    expect(stateOf(facts({ expiresAt: NOW / 1_000 + 1 }), RULES, NOW)).toBe('served');
    expect(stateOf(facts({ expiresAt: NOW / 1_000 }), RULES, NOW)).toBe('expired');
    expect(stateOf(facts({ ingestedAt: NOW - 30 * DAY }), RULES, NOW)).toBe('served');
    expect(stateOf(facts({ ingestedAt: NOW - 30 * DAY - 1 }), RULES, NOW)).toBe('retention');
  });
});

describe('the content of an event', () => {
  it('is concealed when its author took it back or wrote it to somebody only', () => {
    const concealed = STATES.map((state) => [state, concealedAs(1, state, false, [4])]);
    expect(Object.fromEntries(concealed.filter(([, why]) => why !== undefined))).toEqual({
      deleted: 'deleted',
      expired: 'expired',
      vanished: 'vanished',
      withheld: 'vanished',
      erased: 'erased',
    });
    expect(concealedAs(4, 'served', false, [4])).toBe('private');
    expect(concealedAs(1, 'removed', true, [4])).toBe('deleted');
  });
});
