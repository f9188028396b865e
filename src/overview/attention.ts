/** What an operator should look at first, each found with a bounded query. */
import type { Pool } from 'pg';
import type { Community } from '../communities/communities.js';
import { readTotals } from '../communities/communities.sql.js';
import { countWaiting } from '../erasure/erasures.sql.js';
import { openAlarms } from '../erasure/people.sql.js';
import { readCommunitySteps, readSize, WHOLE } from '../events/postgres/capacity.js';
import { communityLimits, fullness, type Step } from '../events/rules/capacity.js';
import { type JobRun, readJobRuns } from '../jobs/job-runs.sql.js';
import { countCases, type WaitingCases } from '../moderation/waiting.sql.js';
import type { Disk } from '../node/rules-disk.js';
import { type ConsumerState, readConsumers } from '../outbox/consumers/admin.sql.js';
import type { Bounded } from '../postgres/page.js';
import { countPending } from '../topics/requests.sql.js';
import { DAY_MS, type Forecast, forecast, type Point } from './rules.js';
import { readDatabaseSizes, readSizes } from './samples.sql.js';

/** More than this is shown as "100+". */
const COUNT_MAX = 100;
const FORECAST_MS = 7 * DAY_MS;
/** A consumer that is later than this needs a look. */
const LAG_SECONDS_MAX = 60;

export const CONSUMER_PROBLEMS = ['paused', 'failing', 'behind', 'lagging', 'dead_letters'] as const;
export type ConsumerProblem = (typeof CONSUMER_PROBLEMS)[number];

export function consumerProblems(state: ConsumerState): ConsumerProblem[] {
  const has: Record<ConsumerProblem, boolean> = {
    paused: state.pausedAt !== null,
    failing: state.failingSince !== null,
    behind: state.behind,
    lagging: state.lagSeconds > LAG_SECONDS_MAX,
    dead_letters: state.deadLetters > 0,
  };
  return CONSUMER_PROBLEMS.filter((problem) => has[problem]);
}

export interface Attention {
  readonly requests: Bounded;
  readonly cases: WaitingCases;
  readonly erasures: Bounded;
  readonly alarms: number;
  readonly jobs: readonly JobRun[];
  readonly consumers: readonly (ConsumerState & { readonly problems: readonly ConsumerProblem[] })[];
  readonly space: { readonly step: Step; readonly percent: number };
  readonly lagStep: Step;
}

export async function readAttention(pool: Pool, community: Community, now: number): Promise<Attention> {
  const { id, settings } = community;
  const steps = await readCommunitySteps(pool, id);
  const stepOf = (cause: 'space' | 'lag') => steps.find((step) => step.cause === cause)?.step ?? 0;
  const size = await readSize(pool, { community: id, topic: WHOLE });
  const consumers = await readConsumers(pool, now);
  return {
    requests: await countPending(pool, id, COUNT_MAX),
    cases: await countCases(pool, id, COUNT_MAX),
    erasures: await countWaiting(pool, id, COUNT_MAX),
    alarms: (await openAlarms(pool, id)).length,
    jobs: (await readJobRuns(pool)).filter(({ error }) => error !== null),
    consumers: consumers
      .map((state) => ({ ...state, problems: consumerProblems(state) }))
      .filter(({ problems }) => problems.length > 0),
    space: { step: stepOf('space'), percent: Math.floor(fullness(size, communityLimits(settings))) },
    lagStep: stepOf('lag'),
  };
}

export type Limited = 'events' | 'bytes' | 'disk';

export interface LimitForecast extends Forecast {
  readonly of: Limited;
  readonly used: number;
  readonly limit: number;
}

/**
 * When the limits of this community are met. Without a limit or with little history there is none. The
 * history has deletion requests, which limits do not count: what is left until a limit is without them.
 */
export async function communityForecasts(
  pool: Pool,
  { id, settings }: Community,
  now: number,
): Promise<LimitForecast[]> {
  const { maxEvents, maxBytes } = communityLimits(settings);
  if (maxEvents === 0 && maxBytes === 0) return [];
  const sizes = await readSizes(pool, id, now - FORECAST_MS);
  const size = await readSize(pool, { community: id, topic: WHOLE });
  const kept = await readTotals(pool, id);
  const of = (what: 'events' | 'bytes', limit: number): LimitForecast[] => {
    if (limit === 0) return [];
    const used = size[what];
    const points = [...sizes, { at: now, ...kept }].map((one) => ({ at: one.at, value: one[what] }));
    const found = forecast(points, limit - used, now);
    return found === undefined ? [] : [{ of: what, used, limit, ...found }];
  };
  return [...of('events', maxEvents), ...of('bytes', maxBytes)];
}

/** When the reserve of the disk is reached, by the growth of the database. */
export async function diskForecast(pool: Pool, disk: Disk, now: number): Promise<LimitForecast[]> {
  const { freeBytes, totalBytes, minBytes } = disk;
  if (freeBytes === undefined || totalBytes === undefined) return [];
  const points: Point[] = await readDatabaseSizes(pool, now - FORECAST_MS);
  const found = forecast(points, freeBytes - minBytes, now);
  const limit = totalBytes - minBytes;
  return found === undefined ? [] : [{ of: 'disk', used: totalBytes - freeBytes, limit, ...found }];
}
