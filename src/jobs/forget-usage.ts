/**
 * What was counted is forgotten when nobody can ask for it any more: requests after two days, counts after somewhat more than a
 * year, a provider's calls after a season, revoked tokens once they would have ended by themselves.
 */
import { DAY_MS } from '../core/retention.js';
import { dayOf } from '../store/facts.js';
import { countBefore, forgetBefore } from '../store/forget.js';
import { countPastUsage, forgetUsageCounters } from '../store/usage.js';
import { type DryRunCount, inBatches, type Job, type JobContext } from './job.js';

/** Whoever sends a request again does so sooner. */
const REQUESTS_KEPT_DAYS = 2;
/** A year can be compared with the one before. */
const COUNTERS_KEPT_DAYS = 400;
/** Providers give up within days. */
const PLAN_EVENTS_KEPT_DAYS = 90;
/** The clock of another instance may be behind. */
const TOKENS_KEPT_MS = 60_000;

const daysAgo = ({ now }: Pick<JobContext, 'now'>, days: number) => now() - days * DAY_MS;

export const forgetUsage: Job = {
  name: 'forget-usage',
  cron: '43 4 * * *',
  fill: '1d',
  about: 'forgets which requests were counted, old counts of usage, and old calls of payment providers',
  purges: false,
  run: (context, client) =>
    inBatches(context, async () => {
      const { rows } = context.bounds;
      const requests = await forgetBefore(
        client,
        'usage_requests',
        daysAgo(context, REQUESTS_KEPT_DAYS),
        rows,
      );
      const events = await forgetBefore(client, 'plan_events', daysAgo(context, PLAN_EVENTS_KEPT_DAYS), rows);
      let counters = 0;
      for (const { id } of context.communities.all()) {
        const firstKept = dayOf(context.now()) - COUNTERS_KEPT_DAYS;
        counters += await forgetUsageCounters(client, id, firstKept, rows - counters);
        if (counters >= rows) break;
      }
      return requests + events + counters;
    }),
  dryRun: async (context, client) => {
    const firstKept = dayOf(context.now()) - COUNTERS_KEPT_DAYS;
    const past = await countPastUsage(client, daysAgo(context, REQUESTS_KEPT_DAYS), firstKept);
    const events = await countBefore(client, 'plan_events', daysAgo(context, PLAN_EVENTS_KEPT_DAYS));
    const counts: DryRunCount[] = [
      { reason: 'request', class: 'usage', rows: past.requests },
      { reason: 'count', class: 'usage', rows: past.counters },
      { reason: 'provider', class: 'usage', rows: events },
    ];
    return counts.filter(({ rows }) => rows > 0);
  },
};

export const forgetTokens: Job = {
  name: 'forget-tokens',
  cron: '*/10 * * * *',
  about: 'forgets revoked tokens that would have ended by themselves',
  purges: false,
  run: (context, client) =>
    inBatches(context, () =>
      forgetBefore(client, 'revoked_tokens', context.now() - TOKENS_KEPT_MS, context.bounds.rows),
    ),
  dryRun: async ({ now }, client) => {
    const rows = await countBefore(client, 'revoked_tokens', now() - TOKENS_KEPT_MS);
    return rows === 0 ? [] : [{ reason: 'expired', class: 'token', rows }];
  },
};
