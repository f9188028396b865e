/**
 * The overview for operators: what needs attention, the history of the node, live figures, and what the
 * newest events are about. Figures of the whole node are shown at the default community, whose people run
 * the node; other communities see their own (I13).
 */
import { Readable } from 'node:stream';
import type { Pool } from 'pg';
import { z } from 'zod';
import { type Call, Flow, type Route, route } from '../api/contract.js';
import { type EndingReader, type FollowOptions, SignOfLife, watcher } from '../api/following.js';
import { isNodeOperator } from '../api/node-operators.js';
import { denial } from '../api/rules-errors.js';
import { milliseconds, pubkey } from '../api/schemas.js';
import type { Community } from '../communities/communities.js';
import { DEFAULT_SLUG } from '../communities/communities.sql.js';
import { type CapacityOptions, stepNumber } from '../communities/routes-capacity.js';
import type { Finding } from '../health/finding.js';
import { createMetrics, type Metrics } from '../node/metrics.js';
import { DISK_UNKNOWN } from '../node/rules-disk.js';
import { Streams } from '../outbox/streams.js';
import type { Bounded } from '../postgres/page.js';
import { ROWS_MAX, readActivity, type Share } from './activity.sql.js';
import {
  type Attention,
  CONSUMER_PROBLEMS,
  communityForecasts,
  diskForecast,
  type LimitForecast,
  readAttention,
} from './attention.js';
import { Live, type LiveFigures } from './live.js';
import { DAY_MS, HOUR_MS, inSteps, MINUTE_MS, OUTCOMES, quantile, type Sample } from './rules.js';
import { readSamples, readSizes } from './samples.sql.js';

const SSE = 'text/event-stream';
const JSON_TYPE = 'application/json';
const POLL_MS = 1_000;
const SHARES_MAX = 20;

export interface OverviewOptions extends FollowOptions, CapacityOptions {
  readonly pool: Pool;
  /** Of this process. */
  readonly metrics?: Metrics;
  /** Problems that the checks of `minato doctor` find while the node runs. */
  readonly examine?: () => Promise<readonly Finding[]>;
}

type Shown = z.output<typeof overview>;
const count = z.number().int();
const bounded = z.strictObject({
  count,
  more: z.boolean().describe('There are more; counting stops at 100'),
});
const forecasts = z
  .array(
    z.strictObject({
      of: z.enum(['events', 'bytes', 'disk']).describe('Limits of this community, or the disk of the node'),
      used: z.number(),
      limit: z.number(),
      per_day: z.number().describe('By the history of seven days; negative if it shrinks'),
      full_at: milliseconds.nullable().describe('null: not within a year'),
    }),
  )
  .describe('When a limit is met. Empty without a limit, or with less than six hours of history');
const overview = z.strictObject({
  requests: bounded.describe('Topic requests that wait for review'),
  cases_open: bounded,
  cases_held: bounded.describe('Posts that a rule holds until somebody decides'),
  appeals: bounded,
  erasures: bounded.describe('Erasures that are held or failed'),
  erasure_alarms: count.describe('Stores in which data of an erased member was found again'),
  jobs: z
    .array(
      z.strictObject({
        name: z.string(),
        failed_at: milliseconds,
        failures: count.describe('In a row'),
        error: z.string().nullable().describe('Shown to operators of the node only'),
      }),
    )
    .describe('Jobs whose last run failed'),
  consumers: z
    .array(
      z.strictObject({
        name: z.string(),
        problems: z.array(z.enum(CONSUMER_PROBLEMS)),
        lag_seconds: z.number(),
        dead_letters: count,
      }),
    )
    .describe('Consumers with a problem'),
  capacity: z.strictObject({
    space_step: stepNumber,
    percent: count.describe('Usage in percent of the nearest limit; 0 without limits'),
    lag_step: stepNumber,
    disk_level: stepNumber.describe('0: fine, 1: no backfill, 2: no posts, 3: nothing is stored'),
  }),
  findings: z
    .array(
      z.strictObject({
        level: z.enum(['warn', 'fail']),
        text: z.string(),
        advice: z.string().nullable(),
      }),
    )
    .nullable()
    .describe('What `minato doctor` would find. null: shown to operators of the node only'),
  forecasts,
});

const show = ({ count: found, more }: Bounded) => ({ count: found, more });
const showForecast = ({ of, used, limit, perDay, fullAt }: LimitForecast) => ({
  of,
  used,
  limit,
  per_day: perDay,
  full_at: fullAt,
});
const showFinding = ({ level, text, advice }: Finding) => ({
  level: level === 'fail' ? ('fail' as const) : ('warn' as const),
  text,
  advice: advice ?? null,
});

function showAttention(found: Attention, isOfNode: boolean): Omit<Shown, 'findings' | 'forecasts'> {
  return {
    requests: show(found.requests),
    cases_open: show(found.cases.open),
    cases_held: show(found.cases.held),
    appeals: show(found.cases.appealed),
    erasures: show(found.erasures),
    erasure_alarms: found.alarms,
    jobs: found.jobs.map(({ job, startedAt, finishedAt, failures, error }) => ({
      name: job,
      failed_at: finishedAt ?? startedAt,
      failures,
      error: isOfNode ? error : null,
    })),
    consumers: found.consumers.map(({ consumer, problems, lagSeconds, deadLetters }) => ({
      name: consumer,
      problems: [...problems],
      lag_seconds: lagSeconds,
      dead_letters: deadLetters,
    })),
    capacity: {
      space_step: found.space.step,
      percent: found.space.percent,
      lag_step: found.lagStep,
      disk_level: 0,
    },
  };
}

// ── History ────────────────────────────────────────────────────────────────────────────────────────────────

const RANGES = {
  '24h': { ms: DAY_MS, stepMs: 5 * MINUTE_MS, from: 'minute' },
  '30d': { ms: 30 * DAY_MS, stepMs: HOUR_MS, from: 'hour' },
} as const;

const series = z.array(z.number().nullable());
const history = z.strictObject({
  step_seconds: count,
  node: z
    .strictObject({
      at: z.array(milliseconds).describe('The start of each step, without gaps'),
      events: z.partialRecord(z.enum(OUTCOMES), series).describe('How many in each step, by outcome'),
      connections: series,
      lane_depth: series.describe('Most events that waited to be written'),
      ok_p50_ms: series,
      ok_p99_ms: series,
      lag_seconds: z.record(z.string(), series).describe('The greatest lag of each consumer'),
      database_bytes: series,
      disk_free_bytes: series,
    })
    .nullable()
    .describe('Of the whole node, summed over its instances. null: shown at the default community only'),
  community: z
    .strictObject({ at: z.array(milliseconds), events: z.array(count), bytes: z.array(count) })
    .describe('What this community kept at each hour'),
  forecasts,
});

/** Columns without gaps: a step in which no instance ran is null. */
function columnsOf(samples: readonly Sample[], since: number, until: number, stepMs: number) {
  const byTime = new Map(inSteps(samples, stepMs).map((sample) => [sample.at, sample]));
  const start = Math.ceil(since / stepMs) * stepMs;
  const at = Array.from(
    { length: Math.max(0, Math.ceil((until - start) / stepMs)) },
    (_, n) => start + n * stepMs,
  );
  const steps = at.map((time) => byTime.get(time));
  const column = (read: (sample: Sample) => number | null | undefined) =>
    steps.map((sample) => (sample === undefined ? null : (read(sample) ?? null)));
  const consumers = new Set(samples.flatMap(({ lagSeconds }) => Object.keys(lagSeconds)));
  return {
    at,
    events: Object.fromEntries(
      OUTCOMES.map(
        (outcome, place) => [outcome, column(({ outcomes }) => outcomes[place] ?? 0)] as const,
      ).filter(([, values]) => values.some((value) => value !== null && value > 0)),
    ),
    connections: column(({ connections }) => connections),
    lane_depth: column(({ laneDepth }) => laneDepth),
    ok_p50_ms: column(({ okTimes }) => quantile(okTimes, 0.5)),
    ok_p99_ms: column(({ okTimes }) => quantile(okTimes, 0.99)),
    lag_seconds: Object.fromEntries(
      [...consumers].sort().map((name) => [name, column(({ lagSeconds }) => lagSeconds[name])]),
    ),
    database_bytes: column(({ databaseBytes }) => databaseBytes),
    disk_free_bytes: column(({ diskFreeBytes }) => diskFreeBytes),
  };
}

// ── Live figures ───────────────────────────────────────────────────────────────────────────────────────────

const live = z.strictObject({
  at: milliseconds,
  per_second: z
    .partialRecord(z.enum(OUTCOMES), z.number())
    .nullable()
    .describe('Events by outcome, of the instance that answers; null at first'),
  connections: count,
  lane_depth: count,
  ok_p50_ms: z.number().nullable(),
  ok_p99_ms: z.number().nullable(),
  lag_seconds: z.record(z.string(), z.number()),
});

function showLive(figures: LiveFigures): z.output<typeof live> {
  return {
    at: figures.at,
    per_second: figures.perSecond ?? null,
    connections: figures.connections,
    lane_depth: figures.laneDepth,
    ok_p50_ms: figures.okP50Ms ?? null,
    ok_p99_ms: figures.okP99Ms ?? null,
    lag_seconds: { ...figures.lagSeconds },
  };
}

async function* liveLines(source: Live, ending: EndingReader): AsyncGenerator<string> {
  const life = new SignOfLife();
  for (let sent = 0; ; ) {
    const figures = await source.read().catch(() => undefined);
    if (figures !== undefined && figures.at !== sent) {
      yield `event: figures\ndata: ${JSON.stringify(showLive(figures))}\n\n`;
      sent = figures.at;
      life.given();
    } else if (life.isDue()) {
      yield ':\n\n';
      life.given();
    }
    const ended = await ending(POLL_MS);
    if (ended === 'gone') return;
    if (ended !== undefined) return yield `event: closed\ndata: ${JSON.stringify({ code: ended })}\n\n`;
  }
}

// ── Activity ───────────────────────────────────────────────────────────────────────────────────────────────

const activity = z.strictObject({
  events: count.describe('How many events were looked at'),
  since: milliseconds.nullable().describe('When the oldest of them arrived'),
  kinds: z.array(z.strictObject({ kind: count, events: count })),
  topics: z.array(z.strictObject({ topic: z.string(), events: count })),
  authors: z.array(z.strictObject({ pubkey, events: count })),
});

// ── Routes ─────────────────────────────────────────────────────────────────────────────────────────────────

const isDefault = ({ slug }: Community) => slug === DEFAULT_SLUG;
const OF_NODE = denial('OPERATORS_ONLY', {
  explanation: 'Figures of the whole node are shown at the default community only.',
});

export function overviewRoutes(options: OverviewOptions): Route[] {
  const { pool, disk = () => DISK_UNKNOWN, examine, metrics = createMetrics(), now } = options;
  const shared = { tags: ['admin: overview'], who: 'operator', method: 'GET', role: 'viewer' } as const;
  const figures = new Live({ pool, metrics, now });
  const streams = new Streams(options.communities);
  const readForecasts = async (call: Call<'operator'>) => [
    ...(await communityForecasts(pool, call.community, call.now)),
    ...(isDefault(call.community) ? await diskForecast(pool, disk(), call.now) : []),
  ];
  return [
    route({
      ...shared,
      url: '/admin/overview',
      summary: 'What needs attention in this community and on this node',
      response: overview,
      errors: [],
      handler: async (call) => {
        const isOfNode = isNodeOperator(options, call);
        const shown = showAttention(await readAttention(pool, call.community, call.now), isOfNode);
        const findings = isOfNode ? ((await examine?.()) ?? []).map(showFinding) : null;
        const forecasts = (await readForecasts(call)).map(showForecast);
        const capacity = { ...shown.capacity, disk_level: disk().level };
        return { ...shown, capacity, findings, forecasts };
      },
    }),
    route({
      ...shared,
      url: '/admin/history',
      summary: 'Figures of the last 24 hours or 30 days',
      description: 'In steps of five minutes or an hour. docs/operations/overview.md says what is kept.',
      query: z.strictObject({ range: z.enum(['24h', '30d']).default('24h') }),
      response: history,
      errors: [],
      handler: async (call) => {
        const { ms, stepMs, from } = RANGES[call.query.range];
        const since = call.now - ms;
        const sizes = await readSizes(pool, call.community.id, since);
        return {
          step_seconds: stepMs / 1_000,
          node: isDefault(call.community)
            ? columnsOf(await readSamples(pool, from, since, call.now), since, call.now, stepMs)
            : null,
          community: {
            at: sizes.map(({ at }) => at),
            events: sizes.map(({ events }) => events),
            bytes: sizes.map(({ bytes }) => bytes),
          },
          forecasts: (await readForecasts(call)).map(showForecast),
        };
      },
    }),
    route({
      ...shared,
      url: '/admin/live',
      summary: 'Current figures of the instance that answers',
      description:
        'With Accept: text/event-stream an event `figures` every three seconds, as long as somebody reads. ' +
        '`closed`: you may no longer read. At the default community only.',
      produces: { [JSON_TYPE]: live, [SSE]: live },
      response: z.custom<Flow>(),
      errors: [],
      handler: async (call) => {
        if (!isDefault(call.community)) return OF_NODE;
        if (call.type !== SSE)
          return new Flow(Readable.from([JSON.stringify(showLive(await figures.read()))]));
        const full = streams.refuse(call);
        if (full !== undefined) return full;
        const stream = Readable.from(liveLines(figures, watcher(options, call)), { objectMode: false });
        streams.hold(call, stream);
        return new Flow(stream);
      },
    }),
    route({
      ...shared,
      url: '/admin/activity',
      summary: 'Kinds, topics and authors of the newest events',
      description: `Of this community's events among the newest ${ROWS_MAX} changes of the node.`,
      response: activity,
      errors: [],
      handler: async ({ community }) => {
        const found = await readActivity(pool, community.id, SHARES_MAX);
        const shares = <T extends object>(of: readonly Share[], named: (name: string) => T) =>
          of.map(({ name, events }) => ({ ...named(name), events }));
        return {
          events: found.events,
          since: found.since,
          kinds: shares(found.kinds, (name) => ({ kind: Number(name) })),
          topics: shares(found.topics, (topic) => ({ topic })),
          authors: shares(found.authors, (author) => ({ pubkey: author })),
        };
      },
    }),
  ];
}
