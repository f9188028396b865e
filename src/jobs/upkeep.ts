/**
 * What keeps the node itself in order: partitions made ahead of time, a short live bus, no counts of days that are over, no
 * rates of clients who are gone, no sessions that are over, no job that nobody works on.
 */
import { dayOf } from '../store/facts.js';
import { countBefore, forgetBefore } from '../store/forget.js';
import { abandonedJobs, takeUpAgain } from '../store/job-runs.js';
import { countPastLimits } from '../store/limits.js';
import { trimBus } from '../store/outbox.js';
import { ensurePartitions, missingPartitions } from '../store/partitions.js';
import { countBus, countPastQuotas, forgetPastQuotas } from '../store/sweeps.js';
import { inBatches, type Job } from './job.js';

const EPHEMERAL_KEPT_MS = 5 * 60_000;

export const partitions: Job = {
  name: 'partitions',
  cron: '13 * * * *',
  fill: '2h',
  about: 'makes the partitions of the next months ahead of time',
  purges: false,
  run: async ({ now }, client) => ({ changed: (await ensurePartitions(client, now())).length, more: false }),
  dryRun: async ({ now }, client) => {
    const rows = (await missingPartitions(client, now())).length;
    return rows === 0 ? [] : [{ reason: 'missing', class: 'partition', rows }];
  },
};

export const trimLiveBus: Job = {
  name: 'trim-bus',
  cron: '* * * * *',
  about: 'drops ephemeral events that every instance has long seen',
  purges: false,
  run: async ({ now }, client) => {
    const sentBefore = now() - EPHEMERAL_KEPT_MS;
    const changed = await countBus(client, sentBefore);
    if (changed > 0) await trimBus(client, sentBefore);
    return { changed, more: false };
  },
  dryRun: async ({ now }, client) => {
    const rows = await countBus(client, now() - EPHEMERAL_KEPT_MS);
    return rows === 0 ? [] : [{ reason: 'delivered', class: 'bus', rows }];
  },
};

/** Yesterday's stay: the clock of another instance may still be there. */
const firstDayKept = (now: number) => dayOf(now) - 1;

export const forgetQuotas: Job = {
  name: 'forget-quotas',
  cron: '33 4 * * *',
  fill: '1d',
  about: 'forgets how many deletions each author asked for on days that are over',
  purges: false,
  run: (context, client) =>
    inBatches(context, () => forgetPastQuotas(client, firstDayKept(context.now()), context.bounds.rows)),
  dryRun: async ({ now }, client) => {
    const rows = await countPastQuotas(client, firstDayKept(now()));
    return rows === 0 ? [] : [{ reason: 'past', class: 'quota', rows }];
  },
};

/** By then every bucket is full again, or as good as. */
const BUCKETS_KEPT_MS = 60 * 60_000;
/** The clock of another instance may be behind. */
const CREDENTIALS_KEPT_MS = 60_000;

export const forgetLimits: Job = {
  name: 'forget-limits',
  cron: '*/10 * * * *',
  about: 'forgets the rates of clients who are gone, and used credentials whose time is over',
  purges: false,
  run: (context, client) =>
    inBatches(context, async () => {
      const { now, bounds } = context;
      const buckets = await forgetBefore(client, 'rate_buckets', now() - BUCKETS_KEPT_MS, bounds.rows);
      return (
        buckets + (await forgetBefore(client, 'used_credentials', now() - CREDENTIALS_KEPT_MS, bounds.rows))
      );
    }),
  dryRun: async ({ now }, client) => {
    const past = await countPastLimits(client, now() - BUCKETS_KEPT_MS, now() - CREDENTIALS_KEPT_MS);
    const counts = [
      { reason: 'idle', class: 'limit' as const, rows: past.buckets },
      { reason: 'expired', class: 'limit' as const, rows: past.credentials },
    ];
    return counts.filter(({ rows }) => rows > 0);
  },
};

/** The clock of another instance may be behind. */
const SESSIONS_KEPT_MS = 60_000;
const SESSION_TABLES = ['operator_sessions', 'csrf_tokens'] as const;

/** In Redis they go by themselves. */
export const forgetSessions: Job = {
  name: 'forget-sessions',
  cron: '*/10 * * * *',
  about: 'forgets sessions of operators whose time is over',
  purges: false,
  run: (context, client) =>
    inBatches(context, async () => {
      const { now, bounds } = context;
      let forgotten = 0;
      for (const table of SESSION_TABLES)
        forgotten += await forgetBefore(client, table, now() - SESSIONS_KEPT_MS, bounds.rows);
      return forgotten;
    }),
  dryRun: async ({ now }, client) => {
    const rows = await countBefore(client, 'operator_sessions', now() - SESSIONS_KEPT_MS);
    return rows === 0 ? [] : [{ reason: 'expired', class: 'session', rows }];
  },
};

/** Longer than a job that was taken waits for its turn. */
const TAKEN_MS_MAX = 60_000;
const ABANDONED_MAX = 100;

/**
 * A process that is killed leaves the job it had taken behind, taken for ever. While this job runs no other does, so what was
 * taken a minute ago and is still not done belongs to nobody.
 */
export const freeJobs: Job = {
  name: 'free-jobs',
  cron: '* * * * *',
  about: 'takes up again what a killed process was working on',
  purges: false,
  run: async ({ now }, client) => {
    const jobs = await abandonedJobs(client, now() - TAKEN_MS_MAX, ABANDONED_MAX);
    if (jobs.length > 0) await takeUpAgain(client, jobs, now());
    return { changed: jobs.length, more: jobs.length === ABANDONED_MAX };
  },
  dryRun: async ({ now }, client) => {
    const rows = (await abandonedJobs(client, now() - TAKEN_MS_MAX, ABANDONED_MAX)).length;
    return rows === 0 ? [] : [{ reason: 'killed', class: 'job', rows }];
  },
};
