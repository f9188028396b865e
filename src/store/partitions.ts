/**
 * Partitions of `events` and `event_tags`, made ahead of time. Attaching needs no lock that stops readers or
 * the lane, so it runs outside the lane, on any instance, any number of times.
 */
import type { Client, ClientBase } from 'pg';
import { Keep, REGULAR_KEEPS, stepOf } from '../core/keep.js';
import type { RowRef } from '../core/plan.js';
import { settingDefinitions } from '../core/settings.js';
import { ensureOutboxRange } from './outbox.js';

const MONTHS_AHEAD = 2;
/** Each parent that is partitioned by `ingested_at`, and the function that gives it its first statistics. */
const PARENTS = [
  { parent: 'events_history', keep: Keep.history, seed: 'seed_event_statistics' },
  ...REGULAR_KEEPS.flatMap((keep) => [
    { parent: `events_${nameOf(keep)}`, keep, seed: 'seed_event_statistics' },
    { parent: `event_tags_${nameOf(keep)}`, keep, seed: 'seed_tag_statistics' },
  ]),
];
/** Only instances that make partitions at the same moment wait for each other here. */
const PARTITION_LOCK = 7_447_003;

interface Month {
  readonly suffix: string;
  readonly from: number;
  readonly to: number;
}

export function monthsFrom(now: number, count: number): Month[] {
  const start = new Date(now);
  return Array.from({ length: count }, (_, ahead) => {
    const from = Date.UTC(start.getUTCFullYear(), start.getUTCMonth() + ahead, 1);
    const to = Date.UTC(start.getUTCFullYear(), start.getUTCMonth() + ahead + 1, 1);
    return { suffix: new Date(from).toISOString().slice(0, 7).replace('-', '_'), from, to };
  });
}

function monthsBetween(from: number, to: number): number {
  const [start, end] = [new Date(from), new Date(to)];
  return (end.getUTCFullYear() - start.getUTCFullYear()) * 12 + end.getUTCMonth() - start.getUTCMonth();
}

function nameOf(keep: Keep): string {
  return Object.keys(Keep).find((name) => Keep[name as keyof typeof Keep] === keep) ?? '';
}

/** What is kept for ever is never dropped, so one partition holds it all. */
const ALL_TIME: Month = { suffix: 'all', from: 0, to: Number.MAX_SAFE_INTEGER };

interface Partition extends Month {
  readonly parent: string;
  readonly keep: number;
  readonly seed: string;
  readonly name: string;
}

/** Makes the partitions of this month and the next ones that are missing, of each bucket in use. Returns their names. */
export async function ensurePartitions(client: Client, now: number): Promise<string[]> {
  await ensureOutboxRange(client);
  const wanted = await wantedPartitions(client, now);
  const missing = await missingOf(client, wanted);
  if (missing.length === 0) return [];
  return makeMissing(client, wanted);
}

/** The names of those that should be there and are not. */
export async function missingPartitions(client: ClientBase, now: number): Promise<string[]> {
  const missing = await missingOf(client, await wantedPartitions(client, now));
  return missing.map((partition) => partition.name);
}

/**
 * Makes those of the past that rows are to move to: a changed rule moves them to a bucket that was not in use in their month, or
 * whose month was empty and is dropped.
 */
export async function ensurePastPartitions(
  client: Client,
  now: number,
  places: readonly Pick<RowRef, 'keep' | 'ingestedAt'>[],
): Promise<string[]> {
  const wanted = await wantedPartitions(client, now, await oldestMonth(client));
  return makeMissing(
    client,
    wanted.filter(({ keep, from, to }) =>
      places.some((place) => place.keep === keep && place.ingestedAt >= from && place.ingestedAt < to),
    ),
  );
}

async function oldestMonth(client: ClientBase): Promise<number | undefined> {
  const { rows } = await client.query<{ year: number; month: number }>(
    `SELECT split_part(s.suffix, '_', 1)::int AS year, split_part(s.suffix, '_', 2)::int AS month
     FROM (SELECT substring(c.relname from '^events_days\\d+_(\\d{4}_\\d{2})$') AS suffix
       FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid) s
     WHERE s.suffix IS NOT NULL ORDER BY s.suffix LIMIT 1`,
  );
  return rows[0] === undefined ? undefined : Date.UTC(rows[0].year, rows[0].month - 1, 1);
}

async function wantedPartitions(client: ClientBase, now: number, from = now): Promise<Partition[]> {
  const inUse = await keepsInUse(client);
  const months = monthsFrom(from, monthsBetween(from, now) + MONTHS_AHEAD + 1);
  return PARENTS.filter(({ keep }) => inUse.has(keep)).flatMap((parent) =>
    (parent.keep === Keep.forever ? [ALL_TIME] : months).map((month) => ({
      ...parent,
      ...month,
      name: `${parent.parent}_${month.suffix}`,
    })),
  );
}

async function makeMissing(client: Client, wanted: readonly Partition[]): Promise<string[]> {
  await client.query('BEGIN');
  try {
    await client.query('SELECT pg_advisory_xact_lock($1)', [PARTITION_LOCK]);
    // Another instance may have made them while this one waited for the lock.
    const stillMissing = await missingOf(client, wanted);
    for (const partition of stillMissing) await attachPartition(client, partition);
    await client.query('COMMIT');
    return stillMissing.map((partition) => partition.name);
  } catch (error) {
    await client.query('ROLLBACK').catch(() => undefined);
    throw error;
  }
}

/** The buckets that events can go to, by the rules as they are: the default's, each community's, each topic's. */
async function keepsInUse(client: ClientBase): Promise<Set<Keep>> {
  const { rows } = await client.query<{ days: number }>(
    `SELECT value::int AS days FROM community_settings WHERE key = 'retention.regularDays'
     UNION SELECT (ingest_policy ->> 'retentionDays')::int FROM node_subscriptions WHERE ingest_policy ? 'retentionDays'`,
  );
  const fromDefault = stepOf(settingDefinitions['retention.regularDays'].default);
  return new Set<Keep>([Keep.history, fromDefault, ...rows.map((row) => stepOf(row.days))]);
}

async function missingOf(client: ClientBase, wanted: readonly Partition[]): Promise<Partition[]> {
  const { rows } = await client.query<{ name: string }>(
    'SELECT c.relname AS name FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE c.relname = ANY ($1)',
    [wanted.map((partition) => partition.name)],
  );
  const present = new Set(rows.map((row) => row.name));
  return wanted.filter((partition) => !present.has(partition.name));
}

async function attachPartition(client: Client, partition: Partition): Promise<void> {
  const { parent, name, keep, seed, from, to } = partition;
  await client.query(
    `CREATE TABLE ${name} (LIKE ${parent} INCLUDING ALL) WITH (autovacuum_analyze_threshold = 5000)`,
  );
  await client.query(`SELECT ${seed}($1, $2, $3)`, [name, keep, from]);
  await client.query(`ALTER TABLE ${parent} ATTACH PARTITION ${name} FOR VALUES FROM (${from}) TO (${to})`);
}
