/** Rules of moderation in a test database, and how many counted events a query plan read. */
import type { Pool } from 'pg';
import { isDenial } from '../../../src/api/rules-errors.js';
import { ruleSchema } from '../../../src/moderation/rules.js';
import {
  changeRule,
  createRule,
  type KeptRule,
  noteTried,
} from '../../../src/moderation/stored-rules.sql.js';

interface At {
  readonly pool: Pool;
  readonly community: number;
  readonly now: number;
}

/** Creates a rule and notes that it was tried; it is not enabled yet. */
export async function writeRule({ pool, community, now }: At, rule: object): Promise<KeptRule> {
  const written = await createRule(pool, { community }, ruleSchema.parse(rule), now);
  if (isDenial(written)) throw new Error(written.denied);
  await noteTried(pool, written);
  return written;
}

export async function switchRule(
  { pool, community, now }: At,
  ruleId: string,
  enabled: boolean,
): Promise<void> {
  const unchanged = (before: KeptRule) => ({ ...before, label: before.label ?? undefined });
  const changed = await changeRule(pool, { community, ruleId }, { enabled }, unchanged, now);
  if (isDenial(changed)) throw new Error(changed.denied);
}

export interface Plan {
  readonly 'Relation Name'?: string;
  readonly 'Actual Rows': number;
  readonly Plans?: readonly Plan[];
}

/** Rows of `moderation_rates` that each scan of the plan read. */
export const rateScans = (plan: Plan): number[] => [
  ...(plan['Relation Name'] === 'moderation_rates' ? [plan['Actual Rows']] : []),
  ...(plan.Plans ?? []).flatMap(rateScans),
];
