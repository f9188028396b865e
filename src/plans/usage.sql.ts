/**
 * The usage of members' plans. A use is counted before the work and given back when the work was not done.
 * The count is exact with any number of instances, because one statement checks and raises the row of the
 * day.
 */
import type { ClientBase, Pool, PoolClient } from 'pg';
import { z } from 'zod';
import type { Denial } from '../api/rules-errors.js';
import { dayOf } from '../events/postgres/facts.js';
import { DAY_MS } from '../events/rules/retention.js';
import { type Order, type Page, type PageOf, readPage } from '../postgres/page.js';
import { BEGIN_BRIEFLY, inTransaction } from '../postgres/transaction.js';
import { bytes, type Db } from '../postgres/values.js';
import { type MemberPlan, type PlanHolder, readMemberPlan } from './plans.sql.js';
import {
  DAILY_METRICS,
  type DailyMetric,
  endOfDay,
  limitOf,
  type PlanLimits,
  quotaExceeded,
} from './rules.js';

export interface Counting extends PlanHolder {
  readonly metric: DailyMetric;
  /**
   * Identifies the request, so that sending it again is not counted again. Without it each request counts.
   */
  readonly requestId?: string | undefined;
  readonly now: number;
}

export interface Use {
  /** Of today, including this use. */
  readonly used: number;
  /** Of the plan; null means no limit. */
  readonly limit: number | null;
}

/**
 * Counts one use, or refuses when none is left. A request that was counted before passes again at no cost,
 * even when nothing is left now.
 */
export async function countUse(pool: Pool, counting: Counting): Promise<Use | Denial> {
  const { requestId } = counting;
  if (requestId === undefined) return countWithin(pool, counting);
  const limit = await readLimit(pool, counting);
  return inTransaction(pool, BEGIN_BRIEFLY, async (db) => {
    const isFirst = await holdRequest(db, counting, requestId);
    return isFirst ? raise(db, counting, limit) : { used: await readUsed(db, counting), limit };
  });
}

/** Counts one use within a transaction; a rollback takes it back. */
export async function countWithin(db: Db, counting: Counting): Promise<Use | Denial> {
  return raise(db, counting, await readLimit(db, counting));
}

async function readLimit(db: Db, counting: Counting): Promise<number | null> {
  const { limits } = await readMemberPlan(db, counting, counting.now);
  return limitOf(limits, counting.metric);
}

/**
 * Gives back what `countUse` counted. When a request was sent several times, only the last one that fails
 * gives it back.
 */
export async function giveBack(pool: Pool, counting: Counting): Promise<void> {
  const { requestId, now } = counting;
  if (requestId === undefined) return lower(pool, counting, dayOf(now));
  await inTransaction(pool, BEGIN_BRIEFLY, async (db) => {
    const countedAt = await releaseRequest(db, counting, requestId);
    if (countedAt !== undefined) await lower(db, counting, dayOf(countedAt));
  });
}

const keyOf = ({ community, pubkey, metric }: Counting) => [community, bytes(pubkey), metric] as const;

/** The condition is checked on the locked row, so two requests cannot take the last use. */
async function raise(db: Db, counting: Counting, limit: number | null): Promise<Use | Denial> {
  const { rows } = await db.query<{ used: number }>({
    name: 'usage-raise',
    text: `INSERT INTO usage_counters AS c (community, pubkey, metric, day, used)
           SELECT $1, $2, $3, $4, 1 WHERE $5::integer IS NULL OR $5 > 0
           ON CONFLICT (community, pubkey, day, metric)
           DO UPDATE SET used = c.used + 1 WHERE $5 IS NULL OR c.used < $5
           RETURNING used`,
    values: [...keyOf(counting), dayOf(counting.now), limit],
  });
  if (rows[0] !== undefined) return { used: rows[0].used, limit };
  return quotaExceeded(counting.metric, await readUsed(db, counting), limit ?? 0, counting.now);
}

async function lower(db: Db, counting: Counting, day: number): Promise<void> {
  await db.query(
    `UPDATE usage_counters SET used = used - 1
     WHERE community = $1 AND pubkey = $2 AND metric = $3 AND day = $4 AND used > 0`,
    [...keyOf(counting), day],
  );
}

async function readUsed(db: Db, counting: Counting): Promise<number> {
  const { rows } = await db.query<{ used: number }>(
    'SELECT used FROM usage_counters WHERE community = $1 AND pubkey = $2 AND metric = $3 AND day = $4',
    [...keyOf(counting), dayOf(counting.now)],
  );
  return rows[0]?.used ?? 0;
}

/**
 * True for a new request, which must be counted. The same request at the same moment waits for this
 * transaction.
 */
async function holdRequest(db: PoolClient, counting: Counting, requestId: string): Promise<boolean> {
  const { rows } = await db.query<{ holders: number }>(
    `INSERT INTO usage_requests AS r (community, pubkey, metric, request_id, counted_at)
     VALUES ($1, $2, $3, $4, $5)
     ON CONFLICT (community, pubkey, metric, request_id)
     DO UPDATE SET holders = r.holders + 1 RETURNING holders`,
    [...keyOf(counting), requestId, counting.now],
  );
  return rows[0]!.holders === 1;
}

/** Returns when it was counted, if no other copy of the request holds it. */
async function releaseRequest(
  db: PoolClient,
  counting: Counting,
  requestId: string,
): Promise<number | undefined> {
  const key = [...keyOf(counting), requestId];
  const where = 'WHERE community = $1 AND pubkey = $2 AND metric = $3 AND request_id = $4';
  await db.query(`UPDATE usage_requests SET holders = holders - 1 ${where}`, key);
  const { rows } = await db.query<{ countedAt: number }>(
    `DELETE FROM usage_requests ${where} AND holders <= 0 RETURNING counted_at AS "countedAt"`,
    key,
  );
  return rows[0]?.countedAt;
}

// ─── Topics ────────────────────────────────────────────────────────────────────────────────────────────────

export interface TopicCounts {
  readonly active: number;
  readonly pending: number;
}

export async function countTopics(db: Db, { community, pubkey }: PlanHolder): Promise<TopicCounts> {
  const { rows } = await db.query<TopicCounts>(
    `SELECT (SELECT count(*) FROM topic_subscriptions
             WHERE community = $1 AND pubkey = $2 AND status = 'active') AS active,
            (SELECT count(*) FROM topic_subscription_requests
             WHERE community = $1 AND pubkey = $2 AND status = 'pending') AS pending`,
    [community, bytes(pubkey)],
  );
  return rows[0]!;
}

/**
 * Why a member's plan allows no further topic. Exact only while the caller holds the row of `config_version`.
 */
export async function refuseTopicQuota(
  db: Db,
  holder: PlanHolder,
  counted: (counts: TopicCounts) => number,
  now: number,
): Promise<Denial | undefined> {
  const limit = limitOf((await readMemberPlan(db, holder, now)).limits, 'topics');
  if (limit === null) return undefined;
  const current = counted(await countTopics(db, holder));
  return current < limit ? undefined : quotaExceeded('topics', current, limit, now);
}

// ─── Reading the usage ─────────────────────────────────────────────────────────────────────────────────────

export interface Usage {
  readonly plan: MemberPlan;
  readonly topics: TopicCounts & { readonly limit: number | null };
  readonly metrics: readonly {
    readonly metric: DailyMetric;
    readonly used: number;
    readonly limit: number | null;
    readonly resetAt: number;
  }[];
}

export async function readUsage(db: Db, holder: PlanHolder, now: number): Promise<Usage> {
  const plan = await readMemberPlan(db, holder, now);
  const topics = await countTopics(db, holder);
  const { rows } = await db.query<{ metric: DailyMetric; used: number }>(
    'SELECT metric, used FROM usage_counters WHERE community = $1 AND pubkey = $2 AND day = $3',
    [holder.community, bytes(holder.pubkey), dayOf(now)],
  );
  const used = new Map(rows.map((row) => [row.metric, row.used]));
  return {
    plan,
    topics: { ...topics, limit: limitOf(plan.limits, 'topics') },
    metrics: DAILY_METRICS.map((metric) => metricOf(metric, used.get(metric) ?? 0, plan.limits, now)),
  };
}

function metricOf(metric: DailyMetric, used: number, limits: PlanLimits, now: number) {
  return { metric, used, limit: limitOf(limits, metric), resetAt: endOfDay(now) };
}

export interface UsageCount {
  readonly pubkey: string;
  readonly metric: DailyMetric;
  /** Days since 1970, UTC. */
  readonly day: number;
  readonly used: number;
}

export interface UsageChoice {
  readonly community: number;
  readonly pubkey?: string | undefined;
  readonly metric?: DailyMetric | undefined;
  readonly day?: number | undefined;
}

const NEWEST_DAY: Order<[number, string, string]> = {
  schema: z.tuple([
    z.number().int().min(-1e9).max(0),
    z.string().regex(/^[0-9a-f]{64}$/),
    z.enum(DAILY_METRICS),
  ]),
  start: [-1e9, '', ''],
};

/** Newest day first, then by key and metric. */
export function listUsage(db: Db, choice: UsageChoice, page: PageOf): Promise<Page<UsageCount> | Denial> {
  const { community, pubkey, metric, day } = choice;
  return readPage(
    page,
    NEWEST_DAY,
    (row: UsageCount) => [-row.day, row.pubkey, row.metric],
    async ([negativeDay, key, after], limit) => {
      // Only the given conditions are in the statement, so that each combination can use its index.
      const values: unknown[] = [community, negativeDay, bytes(key), after, limit];
      const chosen = (column: string, value: unknown) =>
        value === undefined ? '' : `AND ${column} = $${values.push(value)}`;
      const { rows } = await db.query<UsageCount>(
        `SELECT encode(pubkey, 'hex') AS pubkey, metric, day, used FROM usage_counters
         WHERE community = $1 AND (-day, pubkey, metric) > ($2::integer, $3::bytea, $4)
           ${chosen('pubkey', pubkey && bytes(pubkey))} ${chosen('metric', metric)} ${chosen('day', day)}
         ORDER BY -day, pubkey, metric LIMIT $5`,
        values,
      );
      return rows;
    },
  );
}

// ─── Cleaning up ───────────────────────────────────────────────────────────────────────────────────────────

export async function forgetUsageCounters(
  client: ClientBase,
  community: number,
  firstDayKept: number,
  limit: number,
): Promise<number> {
  const { rowCount } = await client.query(
    `DELETE FROM usage_counters WHERE ctid = ANY (ARRAY(
       SELECT ctid FROM usage_counters WHERE community = $1 AND -day > $2 ORDER BY -day DESC LIMIT $3))`,
    [community, -firstDayKept, limit],
  );
  return rowCount ?? 0;
}

export async function countPastUsage(
  client: ClientBase,
  countedBefore: number,
  firstDayKept: number,
): Promise<{ requests: number; counters: number }> {
  const { rows } = await client.query<{ requests: number; counters: number }>(
    `SELECT (SELECT count(*) FROM usage_requests WHERE counted_at < $1) AS requests,
       (SELECT count(*) FROM communities c
          JOIN usage_counters u ON u.community = c.id AND -u.day > $2) AS counters`,
    [countedBefore, -firstDayKept],
  );
  return rows[0]!;
}

/** 2031-05-17, UTC. */
export function dayText(day: number): string {
  return new Date(day * DAY_MS).toISOString().slice(0, 10);
}

export function dayFrom(text: string): number {
  return Date.parse(`${text}T00:00:00Z`) / DAY_MS;
}
