/**
 * Monthly partitions of `events` and `event_tags`, made ahead of time. Attaching needs no lock that stops readers or
 * the lane, so it runs outside the lane, on any instance, any number of times.
 */
import type { Client } from 'pg';

const MONTHS_AHEAD = 2;
/** Each parent that is partitioned by month of `ingested_at`. */
const MONTHLY_PARENTS = ['events_history', 'events_days30', 'event_tags_days30'] as const;
/** Only instances that make partitions at the same moment wait for each other here. */
const PARTITION_LOCK = 7_447_003;
const DUPLICATE_TABLE = '42P07';

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

/** Makes the partitions of this month and the next ones that are missing. Returns their names. */
export async function ensurePartitions(client: Client, now: number): Promise<string[]> {
  const wanted = MONTHLY_PARENTS.flatMap((parent) =>
    monthsFrom(now, MONTHS_AHEAD + 1).map((month) => ({
      parent,
      name: `${parent}_${month.suffix}`,
      ...month,
    })),
  );
  const { rows } = await client.query<{ name: string }>(
    'SELECT c.relname AS name FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE c.relname = ANY ($1)',
    [wanted.map((partition) => partition.name)],
  );
  const present = new Set(rows.map((row) => row.name));
  const missing = wanted.filter((partition) => !present.has(partition.name));
  for (const partition of missing) await attachPartition(client, partition);
  return missing.map((partition) => partition.name);
}

async function attachPartition(
  client: Client,
  partition: Month & { parent: string; name: string },
): Promise<void> {
  const { parent, name, from, to } = partition;
  await client.query('BEGIN');
  try {
    await client.query('SELECT pg_advisory_xact_lock($1)', [PARTITION_LOCK]);
    await client.query(`CREATE TABLE ${name} (LIKE ${parent} INCLUDING ALL)`);
    await client.query(`ALTER TABLE ${parent} ATTACH PARTITION ${name} FOR VALUES FROM (${from}) TO (${to})`);
    await client.query('COMMIT');
  } catch (error) {
    await client.query('ROLLBACK');
    // Another instance made it while this one waited for the lock.
    if ((error as { code?: string }).code !== DUPLICATE_TABLE) throw error;
  }
}
