import { describe, expect, it } from 'vitest';
import { settingsFrom } from '../communities/rules-settings.js';
import type { Access, AccessRules } from '../events/rules/access.js';
import type { TopicRule } from '../events/rules/retention.js';
import { accessAs, unseenBy } from './rules-readers.js';

const [AUTHOR, OTHER] = ['b'.repeat(64), 'd'.repeat(64)];
const CLOSED = 'kukuri:closed';
const topic: TopicRule = { enabled: true, blocked: false, public: false, priority: 0, policy: {} };
const rules: AccessRules = {
  settings: settingsFrom(new Map()),
  topics: new Map([
    [CLOSED, topic],
    ['kukuri:off', { ...topic, enabled: false }],
  ]),
  refused: new Map([[OTHER, 'disabled']]),
};
const eventIn = (topics: readonly string[], kind = 1) => ({
  id: 'a'.repeat(64),
  pubkey: AUTHOR,
  created_at: 1,
  kind,
  tags: topics.map((each) => ['t', each]),
  content: '',
  sig: 'c'.repeat(128),
});
const why = (topics: readonly string[], access: Access, kind = 1) =>
  unseenBy(eventIn(topics, kind), topics, 'served', access, rules);
const keyed = (pubkey: string, mayRead: boolean): Access => ({
  pubkeys: new Set([pubkey]),
  enforced: true,
  consented: new Set(mayRead ? [pubkey] : []),
  subscribed: new Set(),
});

describe('where clients must authenticate', () => {
  it('everybody is refused for their own reason', () => {
    expect(why([], accessAs('anonymous', [], true))).toBe('auth-required');
    expect(why([], keyed(AUTHOR, false))).toBe('consent-required');
    expect(why([], keyed(OTHER, false))).toBe('account-refused');
    expect(why([], accessAs('member', [], true))).toBeUndefined();
  });

  it('a topic is for its subscribers, and one that is not carried for nobody', () => {
    expect(why([CLOSED], accessAs('member', [CLOSED], true))).toBe('subscription-required');
    expect(why([CLOSED], accessAs('subscriber', [CLOSED], true))).toBeUndefined();
    expect(why(['kukuri:off'], accessAs('subscriber', ['kukuri:off'], true))).toBe('topic-not-carried');
  });
});

it('a private kind is for its parties, whether clients authenticate or not', () => {
  for (const enforced of [true, false]) {
    expect(why([], accessAs('subscriber', [], enforced), 4)).toBe('private');
    expect(why([], { ...keyed(AUTHOR, true), enforced }, 4)).toBeUndefined();
  }
});

it('what is hidden is hidden from everybody', () => {
  expect(unseenBy(eventIn([]), [], 'removed', keyed(AUTHOR, true), rules)).toBe('removed');
});
