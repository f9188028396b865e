/**
 * Jobs for the node itself. They create partitions ahead of time, trim the live bus, delete old quotas, rates
 * and sessions, free jobs of killed processes, and shorten the write-ahead log.
 */
import { dayOf } from '../events/postgres/facts.js';
import { ensurePartitions, missingPartitions } from '../events/postgres/partitions.js';
import { countBus, countPastQuotas, forgetPastQuotas } from '../events/postgres/sweeps.js';
import { countPastLimits } from '../limits/limits.sql.js';
import { trimBus } from '../outbox/outbox.sql.js';
import { CLUSTER_NAME } from '../postgres/server-settings.js';
import { countBefore, forgetBefore } from './forget.sql.js';
import { inBatches, type Job } from './job.js';
import { abandonedJobs, takeUpAgain } from './job-runs.sql.js';
import { readLog } from './write-ahead-log.sql.js';

const EPHEMERAL_KEPT_MS = 5 * 60_000;

export const partitions: Job = {
  name: 'partitions',
  cron: '13 * * * *',
  fill: '2h',
  about: 'creates the partitions of the next months',
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
  about: 'deletes ephemeral events that every instance has delivered',
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

/**
 * Less log than this is not worth a checkpoint: after one, each changed page is logged as a whole once, some
 * 100 kB for an event. Few events would make the next checkpoint due.
 */
export const LOG_BYTES_MIN = 128 * 2 ** 20;
/** How long nothing has been written when the node counts as calm. */
const CALM_MS = 30_000;

/**
 * After a burst the write-ahead log takes as much disk as the burst, until the next checkpoint of the server
 * (15 minutes). This one comes when nobody writes. Only for the embedded server.
 */
export const checkpointWhenCalm: Job = {
  name: 'checkpoint',
  cron: '* * * * *',
  about: 'frees the disk space of the write-ahead log after a burst of writes',
  purges: false,
  run: async ({ now }, client) => {
    const log = await readLog(client, CLUSTER_NAME);
    const isCalm = log.newestAt === null || now() - log.newestAt >= CALM_MS;
    if (!log.isOurs || !isCalm || log.bytes < LOG_BYTES_MIN) return { changed: 0, more: false };
    await client.query('CHECKPOINT');
    return { changed: 1, more: false };
  },
  dryRun: async () => [],
};

/** Those of yesterday are kept: the clock of another instance may be behind. */
const firstDayKept = (now: number) => dayOf(now) - 1;

export const forgetQuotas: Job = {
  name: 'forget-quotas',
  cron: '33 4 * * *',
  fill: '1d',
  about: 'deletes the counts of deletion requests of past days',
  purges: false,
  run: (context, client) =>
    inBatches(context, () => forgetPastQuotas(client, firstDayKept(context.now()), context.bounds.rows)),
  dryRun: async ({ now }, client) => {
    const rows = await countPastQuotas(client, firstDayKept(now()));
    return rows === 0 ? [] : [{ reason: 'past', class: 'quota', rows }];
  },
};

/** After this time every bucket is full or nearly full. */
const BUCKETS_KEPT_MS = 60 * 60_000;
/** The clock of another instance may be behind. */
const CREDENTIALS_KEPT_MS = 60_000;

export const forgetLimits: Job = {
  name: 'forget-limits',
  cron: '*/10 * * * *',
  about: 'deletes unused rate buckets and expired one-time credentials',
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
const SESSION_TABLES = ['operator_sessions', 'csrf_tokens', 'sign_in_links'] as const;

/** For PostgreSQL. In Redis sessions expire; links are always in PostgreSQL. */
export const forgetSessions: Job = {
  name: 'forget-sessions',
  cron: '*/10 * * * *',
  about: 'deletes expired sessions of operators, and links to sign in',
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

/** Longer than a job waits for the lock of jobs. */
const TAKEN_MS_MAX = 60_000;
const ABANDONED_MAX = 100;

/**
 * The job of a killed process stays locked for ever. While this job runs no other does, so a job that was
 * taken a minute ago and is not finished belongs to a dead process.
 */
export const freeJobs: Job = {
  name: 'free-jobs',
  cron: '* * * * *',
  about: 'queues the jobs of killed processes again',
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
