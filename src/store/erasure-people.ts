/**
 * Whose keys are in the store at all, for a look whether anything of the erased has come back: their own keys are not kept, so every
 * key that is here is hashed and compared. An index of the column is walked from key to key, however many rows each has.
 */
import type { Client } from 'pg';
import { bytes, type Db } from './config-change.js';

/** Columns that name a person by their key; of each an index begins with community and column. */
const WALKED = [
  ['events', 'pubkey', 'hidden IS NULL'],
  ['events', 'pubkey', 'hidden IS NOT NULL'],
  ['event_dedupe', 'author', 'first_seen_at >= 0'],
  ['event_heads', 'pubkey', 'created_at >= 0'],
  ['deletion_tombstones', 'author', 'requested_at >= 0'],
  ['deletion_quotas', 'author'],
  ['events_outbox', 'author', 'ingested_at >= 0'],
  ['post_search_documents', 'author'],
  ['consumer_dead_letters', 'author'],
  ['trust_contacts', 'author'],
  ['trust_contacts', 'named'],
  ['trust_reports', 'reporter'],
  ['trust_reports', 'subject'],
  ['trust_authors', 'pubkey'],
  ['trust_scores', 'subject'],
  ['trust_due', 'subject'],
  ['labels', 'target_pubkey'],
  ['reports', 'pubkey'],
  ['reports', 'target_pubkey', 'target_pubkey IS NOT NULL'],
  ['moderation_cases', 'target_pubkey'],
  ['moderation_actions', 'target_pubkey'],
  ['moderation_actions', 'actor', 'actor IS NOT NULL'],
  ['moderation_rates', 'pubkey'],
  ['members', 'pubkey'],
  ['topic_subscription_requests', 'pubkey'],
  ['topic_subscription_requests', 'reviewed_by', 'reviewed_by IS NOT NULL'],
  ['topic_subscriptions', 'pubkey'],
  ['consents', 'pubkey'],
  ['usage_counters', 'pubkey'],
  ['usage_requests', 'pubkey'],
  ['plan_events', 'pubkey'],
  ['revoked_tokens', 'pubkey'],
  ['operators', 'pubkey'],
  ['blocked_authors', 'pubkey'],
  ['personal_data_requests', 'pubkey'],
  ['vanish_marks', 'pubkey'],
  ['operator_sessions', 'pubkey'],
  ['csrf_tokens', 'pubkey'],
] as const satisfies readonly (readonly [table: string, column: string, where?: string])[];

/** Small tables without such an index. */
const READ = [
  ['history_deletions', 'author'],
  ['invites', 'created_by'],
  ['invites', 'used_by'],
  ['moderation_batches', 'actor'],
  ['moderation_batches', 'undone_by'],
  ['operators', 'added_by'],
  ['outbox_followers', 'registered_by'],
] as const;

const PAGE_KEYS = 1_000;

/** As table.column, for the test that compares them with the schema. */
export const PEOPLE_COLUMNS: readonly string[] = [
  ...new Set([...WALKED, ...READ].map(([table, column]) => `${table}.${column}`)),
];

/** Keys that are in a community; one may come several times. */
export async function* peopleIn(client: Client, community: number): AsyncGenerator<string[]> {
  for (const [table, column, where] of WALKED)
    yield* walk(client, community, { table, column, where: where ?? 'true' });
  const { rows: audited } = await client.query<{ key: string }>(
    `SELECT DISTINCT m[1] AS key FROM audit_log a, regexp_matches(concat_ws(' ', encode(a.actor, 'hex'), a.target, a.details),
       '[0-9a-f]{64}', 'g') AS m WHERE a.community = $1`,
    [community],
  );
  yield audited.map(({ key }) => key);
  for (const [table, column] of READ) {
    const { rows } = await client.query<{ key: string }>(
      `SELECT DISTINCT encode(${column}, 'hex') AS key FROM ${table} WHERE community = $1 AND ${column} IS NOT NULL`,
      [community],
    );
    yield rows.map(({ key }) => key);
  }
}

interface Walked {
  readonly table: string;
  readonly column: string;
  readonly where: string;
}

async function* walk(
  client: Client,
  community: number,
  { table, column, where }: Walked,
): AsyncGenerator<string[]> {
  const next = (after: string) =>
    `SELECT t.${column} FROM ${table} t WHERE t.community = $1 AND ${where} AND t.${column} > ${after} ORDER BY t.${column} LIMIT 1`;
  const text = `WITH RECURSIVE k (key) AS ((${next('$2')}) UNION ALL SELECT (${next('k.key')}) FROM k WHERE k.key IS NOT NULL)
    SELECT encode(key, 'hex') AS key FROM k WHERE key IS NOT NULL LIMIT ${PAGE_KEYS}`;
  for (let after = ''; ; ) {
    const { rows } = await client.query<{ key: string }>(text, [community, bytes(after)]);
    const keys = rows.map(({ key }) => key);
    yield keys;
    if (keys.length < PAGE_KEYS) return;
    after = keys.at(-1)!;
  }
}

// ── Alarms ────────────────────────────────────────────────────────────────────────────────────────────────────────

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
    `INSERT INTO erasure_alarms AS a (community, at, seen_at, found, store, subject) VALUES ($1, $2, $2, $3, $4, $5)
     ON CONFLICT (community, subject, store) DO UPDATE SET seen_at = excluded.seen_at, found = excluded.found,
       at = CASE WHEN a.resolved_at IS NULL THEN a.at ELSE excluded.at END, resolved_at = NULL`,
    [alarm.community, now, alarm.found, alarm.store, bytes(alarm.subject)],
  );
}

/** What a look that began at `since` has not found again is over. */
export async function settleAlarms(db: Db, since: number, now: number): Promise<void> {
  await db.query('UPDATE erasure_alarms SET resolved_at = $2 WHERE resolved_at IS NULL AND seen_at < $1', [
    since,
    now,
  ]);
}

/** Those that stand; of every community without one. */
export async function openAlarms(db: Db, community?: number): Promise<Alarm[]> {
  const { rows } = await db.query<Alarm>(
    `SELECT a.community, c.slug, a.at, a.seen_at AS "seenAt", a.store, encode(a.subject, 'hex') AS subject, a.found
     FROM erasure_alarms a LEFT JOIN communities c ON c.id = a.community
     WHERE a.resolved_at IS NULL AND ($1::int IS NULL OR a.community = $1) ORDER BY a.at LIMIT 1000`,
    [community ?? null],
  );
  return rows;
}
