/** Plans in the API. A limit of null means no limit. */
import { z } from 'zod';
import { milliseconds } from '../api/schemas.js';
import type { MemberPlan } from './plans.sql.js';
import { LIMIT_KEYS, type LimitChanges, limitSchema, PLAN_ID, type PlanLimits } from './rules.js';

export const planId = z
  .string()
  .regex(PLAN_ID, 'lower-case letters, digits and -, at most 63')
  .describe('The id of a plan; members without a plan are on "free"');

const limit = limitSchema.nullable();
/** Every limit, with its name in the API. */
const shape = {
  max_topics: limit.describe('Active subscriptions at a time; null: no limit'),
  search_per_day: limit,
  trust_per_day: limit,
  reports_per_day: limit,
  exports_per_day: limit,
};
export const limitsShown = z.strictObject(shape);
export const limitsGiven = limitsShown.partial();

const NAMES = {
  maxTopics: 'max_topics',
  searchPerDay: 'search_per_day',
  trustPerDay: 'trust_per_day',
  reportsPerDay: 'reports_per_day',
  exportsPerDay: 'exports_per_day',
} as const satisfies Record<keyof PlanLimits, keyof typeof shape>;

export function showLimits(limits: PlanLimits): z.output<typeof limitsShown> {
  const entries = LIMIT_KEYS.map((key) => [NAMES[key], limits[key] ?? null]);
  return Object.fromEntries(entries) as z.output<typeof limitsShown>;
}

export function limitsFrom(given: z.output<typeof limitsGiven>): LimitChanges {
  return Object.fromEntries(LIMIT_KEYS.map((key) => [key, given[NAMES[key]]]));
}

export const memberPlan = z.strictObject({
  plan_id: planId,
  name: z.string(),
  until: milliseconds.nullable().describe('When it ends and "free" follows; null: never'),
  limits: limitsShown,
});

export function showMemberPlan({ planId: id, name, until, limits }: MemberPlan): z.output<typeof memberPlan> {
  return { plan_id: id, name, until, limits: showLimits(limits) };
}
