/**
 * The partitions of `events` and `event_tags`, created ahead of time. Attaching takes no lock that blocks
 * readers or the lane, so it runs outside the lane, on any instance, any number of times.
 */
import type { Client } from 'pg';
import { settingDefinitions } from '../../communities/rules-settings.js';
import { ensureOutboxRange } from '../../outbox/outbox.sql.js';
import type { Db } from '../../postgres/values.js';
import { Keep, REGULAR_KEEPS, stepOf } from '../rules/keep.js';

const MONTHS_AHEAD = 2;
/** Each parent that is partitioned by `ingested_at`, and the function that writes its first statistics. */
const PARENTS = [
  { parent: 'events_history', keep: Keep.history, seed: 'seed_event_statistics' },
  ...REGULAR_KEEPS.flatMap((keep) => [
    { parent: `events_${nameOf(keep)}`, keep, seed: 'seed_event_statistics' },
    { parent: `event_tags_${nameOf(keep)}`, keep, seed: 'seed_tag_statistics' },
  ]),
];
/** Only instances that create partitions at the same moment wait for each other. */
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

function nameOf(keep: Keep): string {
  return Object.keys(Keep).find((name) => Keep[name as keyof typeof Keep] === keep) ?? '';
}

/** Events that are kept for ever are never dropped, so one partition holds them all. */
const ALL_TIME: Month = { suffix: 'all', from: 0, to: Number.MAX_SAFE_INTEGER };

interface Partition extends Month {
  readonly parent: string;
  readonly keep: number;
  readonly seed: string;
  readonly name: string;
}

/**
 * Creates the missing partitions of this month and the next ones, for each bucket in use. Returns their
 * names.
 */
export async function ensurePartitions(client: Client, now: number): Promise<string[]> {
  await ensureOutboxRange(client);
  const wanted = await wantedPartitions(client, now);
  const missing = await missingOf(client, wanted);
  if (missing.length === 0) return [];
  return makeMissing(client, wanted);
}

/** The names of the partitions that are missing. */
export async function missingPartitions(client: Db, now: number): Promise<string[]> {
  const missing = await missingOf(client, await wantedPartitions(client, now));
  return missing.map((partition) => partition.name);
}

/**
 * Creates the partitions of single old rows: a changed rule moves them to a bucket that was not in use in
 * their month, or that was empty and is dropped.
 */
export async function ensurePartitionsOf(client: Client, rows: readonly PlacedRow[]): Promise<string[]> {
  return makeMissing(client, partitionsOfRows(rows));
}

interface PlacedRow {
  readonly keep: Keep;
  readonly ingestedAt: number;
}

/** The partitions of these rows, and of their tags, each once. */
export function partitionsOfRows(rows: readonly PlacedRow[]): Partition[] {
  const wanted = rows.flatMap(({ keep, ingestedAt }) =>
    partitionsOf(new Set([keep]), monthsFrom(ingestedAt, 1)),
  );
  return [...new Map(wanted.map((one) => [one.name, one])).values()];
}

async function wantedPartitions(client: Db, now: number): Promise<Partition[]> {
  return partitionsOf(await keepsInUse(client), monthsFrom(now, MONTHS_AHEAD + 1));
}

function partitionsOf(keeps: ReadonlySet<Keep>, months: readonly Month[]): Partition[] {
  return PARENTS.filter(({ keep }) => keeps.has(keep)).flatMap((parent) =>
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
    // Another instance may have created them while this one waited for the lock.
    const stillMissing = await missingOf(client, wanted);
    for (const partition of stillMissing) await attachPartition(client, partition);
    await client.query('COMMIT');
    return stillMissing.map((partition) => partition.name);
  } catch (error) {
    await client.query('ROLLBACK').catch(() => undefined);
    throw error;
  }
}

/**
 * The buckets that events can be stored in, by the current rules: the default's, each community's, each
 * topic's.
 */
async function keepsInUse(client: Db): Promise<Set<Keep>> {
  const { rows } = await client.query<{ days: number }>(
    `SELECT value::int AS days FROM community_settings WHERE key = 'retention.regularDays'
     UNION SELECT (ingest_policy ->> 'retentionDays')::int FROM node_subscriptions
     WHERE ingest_policy ? 'retentionDays'`,
  );
  const fromDefault = stepOf(settingDefinitions['retention.regularDays'].default);
  return new Set<Keep>([Keep.history, fromDefault, ...rows.map((row) => stepOf(row.days))]);
}

async function missingOf(client: Db, wanted: readonly Partition[]): Promise<Partition[]> {
  const { rows } = await client.query<{ name: string }>(
    `SELECT c.relname AS name FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
     WHERE c.relname = ANY ($1)`,
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
