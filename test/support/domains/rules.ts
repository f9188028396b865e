/** An event and rules of moderation for the tests of matching. */
import { settingsFrom } from '../../../src/communities/rules-settings.js';
import type { NostrEvent } from '../../../src/events/rules/event.js';
import { type Rule, type RuleAction, ruleSchema } from '../../../src/moderation/rules.js';

export const openSettings = settingsFrom(new Map<string, unknown>([['topic.mode', 'open']]));
export const author = 'a'.repeat(64);

export const eventOf = (draft: Partial<NostrEvent> = {}): NostrEvent => ({
  id: 'e'.repeat(64),
  pubkey: author,
  created_at: 1,
  kind: 1,
  tags: [],
  content: '',
  sig: 'c'.repeat(128),
  ...draft,
});

let made = 0;
export const ruleOf = (conditions: unknown, action: RuleAction = 'hide', priority = 0): Rule => {
  made += 1;
  const label = action === 'label' ? { label: 'spam', confidence: 1, days: 1, policy: '' } : undefined;
  const spec = ruleSchema.parse({ name: `rule ${made}`, conditions, action, priority, label });
  return { ...spec, ruleId: `${made}`, version: 1, label: spec.label ?? null, enabledAt: 0 };
};
