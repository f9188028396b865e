/**
 * Deletes old usage: counted requests after 2 days, counters after 400 days, calls of payment providers after
 * 90 days.
 */

import { dayOf } from '../events/postgres/facts.js';
import { DAY_MS } from '../events/rules/retention.js';
import { countBefore, forgetBefore } from '../jobs/forget.sql.js';
import { type DryRunCount, inBatches, type Job, type JobContext } from '../jobs/job.js';
import { countPastUsage, forgetUsageCounters } from './usage.sql.js';

/** Clients send a request again sooner than this. */
const REQUESTS_KEPT_DAYS = 2;
/** Long enough to compare a year with the year before. */
const COUNTERS_KEPT_DAYS = 400;
/** Providers stop retrying within days. */
const PLAN_EVENTS_KEPT_DAYS = 90;

const daysAgo = ({ now }: Pick<JobContext, 'now'>, days: number) => now() - days * DAY_MS;

export const forgetUsage: Job = {
  name: 'forget-usage',
  cron: '43 4 * * *',
  fill: '1d',
  about: 'deletes old counted requests, usage counters and calls of payment providers',
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
