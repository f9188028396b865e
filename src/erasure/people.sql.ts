/**
 * All public keys in the tables, for the check whether rows of erased members have come back. Their keys are
 * not kept, so every key is hashed and compared. An index is walked from key to key, however many rows each
 * key has.
 */
import type { Client } from 'pg';
import { walksOf } from '../postgres/table.js';
import { bytes, type Db } from '../postgres/values.js';
import { TABLES } from './all-tables.sql.js';

const PAGE_KEYS = 1_000;

/** All keys in a community, by the declarations of the tables; a key may come several times. */
export async function* peopleIn(client: Client, community: number): AsyncGenerator<string[]> {
  const readAll = async (key: string, from: string): Promise<string[]> => {
    const { rows } = await client.query<{ key: string }>(
      `SELECT DISTINCT ${key} AS key FROM ${from} WHERE t.community = $1 AND ${key} IS NOT NULL`,
      [community],
    );
    return rows.map((row) => row.key);
  };
  for (const { name: table, people, keysIn } of TABLES) {
    for (const [column, how] of Object.entries(people)) {
      for (const { where = 'true' } of walksOf(how)) yield* walk(client, community, { table, column, where });
      if (how === 'small') yield await readAll(`encode(t.${column}, 'hex')`, `${table} t`);
    }
    if (keysIn !== undefined)
      yield await readAll('m[1]', `${table} t, regexp_matches(${keysIn}, '[0-9a-f]{64}', 'g') AS m`);
  }
}

export interface Walked {
  readonly table: string;
  readonly column: string;
  readonly where: string;
}

/** The next keys of community $1 after key $2. */
export function walkSql({ table, column, where }: Walked): string {
  const next = (after: string) =>
    `SELECT t.${column} FROM ${table} t WHERE t.community = $1 AND ${where} AND t.${column} > ${after}
      ORDER BY t.${column} LIMIT 1`;
  return `WITH RECURSIVE k (key) AS ((${next('$2')}) UNION ALL SELECT (${next('k.key')}) FROM k
    WHERE k.key IS NOT NULL)
    SELECT encode(key, 'hex') AS key FROM k WHERE key IS NOT NULL LIMIT ${PAGE_KEYS}`;
}

async function* walk(client: Client, community: number, walked: Walked): AsyncGenerator<string[]> {
  const text = walkSql(walked);
  for (let after = ''; ; ) {
    const { rows } = await client.query<{ key: string }>(text, [community, bytes(after)]);
    const keys = rows.map(({ key }) => key);
    yield keys;
    if (keys.length < PAGE_KEYS) return;
    after = keys.at(-1)!;
  }
}

// ── Alarms ─────────────────────────────────────────────────────────────────────────────────────────────────

export interface Alarm {
  readonly community: number;
  readonly slug: string | null;
  /** Milliseconds: when it was first found, and when last. */
  readonly at: number;
  readonly seenAt: number;
  readonly store: string;
  readonly subject: string;
  readonly found: number;
}

export async function raiseAlarm(
  db: Db,
  alarm: Pick<Alarm, 'community' | 'store' | 'subject' | 'found'>,
  now: number,
): Promise<void> {
  await db.query(
    `INSERT INTO erasure_alarms AS a (community, at, seen_at, found, store, subject)
      VALUES ($1, $2, $2, $3, $4, $5)
     ON CONFLICT (community, subject, store) DO UPDATE SET seen_at = excluded.seen_at, found = excluded.found,
       at = CASE WHEN a.resolved_at IS NULL THEN a.at ELSE excluded.at END, resolved_at = NULL`,
    [alarm.community, now, alarm.found, alarm.store, bytes(alarm.subject)],
  );
}

/** Resolves alarms that a check which began at `since` has not found again. */
export async function settleAlarms(db: Db, since: number, now: number): Promise<void> {
  await db.query('UPDATE erasure_alarms SET resolved_at = $2 WHERE resolved_at IS NULL AND seen_at < $1', [
    since,
    now,
  ]);
}

/** Open alarms; of all communities by default. */
export async function openAlarms(db: Db, community?: number): Promise<Alarm[]> {
  const { rows } = await db.query<Alarm>(
    `SELECT a.community, c.slug, a.at, a.seen_at AS "seenAt", a.store, encode(a.subject, 'hex') AS subject,
      a.found
     FROM erasure_alarms a LEFT JOIN communities c ON c.id = a.community
     WHERE a.resolved_at IS NULL AND ($1::int IS NULL OR a.community = $1) ORDER BY a.at LIMIT 1000`,
    [community ?? null],
  );
  return rows;
}
