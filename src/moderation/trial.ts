/**
 * Tries a rule on the newest events of a community, in portions: memory and pauses for other work do not
 * depend on their number (I14).
 */

import type { Settings } from '../communities/rules-settings.js';
import type { NostrEvent } from '../events/rules/event.js';
import type { ServedEvent, StoredEvents } from '../events/stored-events.js';
import { rest } from '../limits/time-slices.js';
import type { Db } from '../postgres/values.js';
import { asMatched } from '../topics/rules.js';
import { inSteps } from './patterns/thread.js';
import { TRY_EVENTS_MAX } from './rules.js';
import type { CompiledRule } from './rules-match.js';
import { Trial, type TrialResult } from './rules-trial.js';

const PORTION_ROWS = 200;

export async function tryRule(
  db: Db,
  events: StoredEvents,
  { id: community, settings }: { readonly id: number; readonly settings: Settings },
  rule: CompiledRule,
  last: number,
): Promise<TrialResult> {
  const trial = new Trial(rule, settings);
  let after = { createdAt: Number.MAX_SAFE_INTEGER, id: '' };
  for (let left = Math.min(last, TRY_EVENTS_MAX); left > 0; ) {
    const page = await events.served(db, { community, after, limit: Math.min(left, PORTION_ROWS) });
    await lookAt(trial, page.rows);
    left -= page.rows.length;
    if (page.next === undefined) break;
    after = page.next;
  }
  return trial.result();
}

async function lookAt(trial: Trial, rows: readonly ServedEvent[]): Promise<void> {
  for (const { payload, bound } of rows) {
    await inSteps(trial.look(asMatched(JSON.parse(payload) as NostrEvent, bound)));
    await rest();
  }
}
