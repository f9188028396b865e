/**
 * The limits of a plan: how many topics, and how many uses a day of what costs the node work. Pure. A missing
 * limit means no limit. A member without a plan is on `free`, which always exists.
 */
import { z } from 'zod';
import { type Denial, denial } from '../api/rules-errors.js';
import { DAY_MS } from '../events/rules/retention.js';

/** Counted per day, from one midnight (UTC) to the next. */
export const DAILY_METRICS = ['search', 'trust', 'reports', 'exports'] as const;
export type DailyMetric = (typeof DAILY_METRICS)[number];
/** Topics are not counted per day: their count is how many a member has now. */
export type Metric = DailyMetric | 'topics';

export const LIMIT_KEYS = [
  'maxTopics',
  'searchPerDay',
  'trustPerDay',
  'reportsPerDay',
  'exportsPerDay',
] as const;
export type LimitKey = (typeof LIMIT_KEYS)[number];
export type PlanLimits = { readonly [K in LimitKey]?: number };
/** A change of limits: a missing field keeps the limit, null removes it. */
export type LimitChanges = { readonly [K in LimitKey]?: number | null | undefined };

/** The limit of each metric, and what one unit of it is. */
export const METRICS: Record<Metric, { readonly limit: LimitKey; readonly unit: string }> = {
  topics: { limit: 'maxTopics', unit: 'active subscriptions' },
  search: { limit: 'searchPerDay', unit: 'searches a day' },
  trust: { limit: 'trustPerDay', unit: 'trust queries a day' },
  reports: { limit: 'reportsPerDay', unit: 'reports a day' },
  exports: { limit: 'exportsPerDay', unit: 'exports of personal data a day' },
};

export const LIMIT_MAX = 1_000_000_000;
export const limitSchema = z.number().int().min(0).max(LIMIT_MAX);

export const FREE_PLAN = 'free';
export const FREE: { readonly name: string; readonly limits: PlanLimits } = {
  name: 'Free',
  limits: { maxTopics: 100, searchPerDay: 1_000, trustPerDay: 1_000, reportsPerDay: 50, exportsPerDay: 3 },
};

export const PLAN_ID = /^[a-z0-9][a-z0-9-]{0,62}$/;

export function limitOf(limits: PlanLimits, metric: Metric): number | null {
  return limits[METRICS[metric].limit] ?? null;
}

export function changeLimits(before: PlanLimits, changes: LimitChanges): PlanLimits {
  const entries = LIMIT_KEYS.map((key) => [key, changes[key] === undefined ? before[key] : changes[key]]);
  return Object.fromEntries(entries.filter(([, limit]) => limit !== undefined && limit !== null));
}

/** The midnight at which today's usage ends. */
export function endOfDay(now: number): number {
  return (Math.floor(now / DAY_MS) + 1) * DAY_MS;
}

export function quotaExceeded(metric: Metric, current: number, limit: number, now: number): Denial {
  const resetAt = metric === 'topics' ? null : endOfDay(now);
  return denial('QUOTA_EXCEEDED', { metric, current, limit, reset_at: resetAt });
}
