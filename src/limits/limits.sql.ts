/**
 * Token buckets and used credentials that all instances share. Each operation is one statement: the row lock
 * makes it exact under concurrency.
 */
import type { ClientBase, Pool } from 'pg';

/**
 * The clocks of instances differ a little. The latest time wins, so that no interval refills a bucket twice.
 * A larger step back is a corrected clock: then the bucket takes the earlier time, otherwise it would not
 * refill until the clock reaches the old time.
 */
export const CLOCK_APART_MS_MAX = 60_000;
/** Rounding errors of fractions must not cost a whole token. */
export const ROUNDING = 1e-6;
/** A dry run counts up to this. */
const COUNT_MAX = 100_000;

export interface TokenTake {
  readonly key: string;
  readonly wanted: number;
  readonly nowMs: number;
}

export interface TokensTaken {
  readonly key: string;
  readonly granted: number;
  /** The tokens that are left in the bucket. */
  readonly tokens: number;
  /** The time of the bucket. */
  readonly at: number;
}

const REFILLED = `least($4::float8, b.tokens + greatest(0, excluded.at - b.at) * $5::float8 / 1000)`;
const GRANTED = `least(excluded.granted, floor(${REFILLED} + ${ROUNDING}))`;

/** Takes whole tokens from several buckets of the same size, as many as each has. Each key occurs once. */
export async function takeTokens(
  db: Pool,
  takes: readonly TokenTake[],
  perSecond: number,
  burst: number,
): Promise<TokensTaken[]> {
  const { rows } = await db.query<TokensTaken>({
    name: 'take-tokens',
    // In the order of the keys, so that two instances never deadlock.
    text: `INSERT INTO rate_buckets AS b (key, tokens, granted, at)
      SELECT key, $4::float8 - least(wanted, floor($4::float8)), least(wanted, floor($4::float8)), at
      FROM unnest($1::text[], $2::int[], $3::bigint[]) AS asked (key, wanted, at) ORDER BY key
      ON CONFLICT (key) DO UPDATE SET
        tokens = greatest(0, ${REFILLED} - ${GRANTED}),
        granted = ${GRANTED},
        at = CASE WHEN b.at - excluded.at > ${CLOCK_APART_MS_MAX}
          THEN excluded.at ELSE greatest(b.at, excluded.at) END
      RETURNING key, granted, tokens, at`,
    values: [
      takes.map(({ key }) => key),
      takes.map(({ wanted }) => wanted),
      takes.map(({ nowMs }) => nowMs),
      burst,
      perSecond,
    ],
  });
  return rows;
}

export interface Credential {
  readonly key: string;
  readonly expiresAt: number;
  readonly nowMs: number;
}

/**
 * The keys that are used for the first time. An expired credential is accepted again here: the caller refuses
 * it for its age. Each key occurs once. Of different clocks the earliest counts.
 */
export async function useCredentials(db: Pool, credentials: readonly Credential[]): Promise<Set<string>> {
  const { rows } = await db.query<{ key: string }>({
    name: 'use-credentials',
    // In the order of the keys, so that two instances never deadlock.
    text: `INSERT INTO used_credentials AS used (key, expires_at)
      SELECT key, expires_at FROM unnest($1::text[], $2::bigint[]) AS shown (key, expires_at) ORDER BY key
      ON CONFLICT (key) DO UPDATE SET expires_at = excluded.expires_at WHERE used.expires_at < $3
      RETURNING key`,
    values: [
      credentials.map(({ key }) => key),
      credentials.map(({ expiresAt }) => expiresAt),
      Math.min(...credentials.map(({ nowMs }) => nowMs)),
    ],
  });
  return new Set(rows.map(({ key }) => key));
}

/** Buckets whose names have this start and end, and that were last used at `upTo` or before. */
export interface Buckets {
  readonly start: string;
  readonly end: string;
  readonly upTo: number;
}

const IN_SELECTION = 'starts_with(key, $1) AND right(key, length($2)) = $2 AND at <= $3';

export async function countBuckets(db: Pool, { start, end, upTo }: Buckets): Promise<number> {
  const { rows } = await db.query<{ rows: number }>(
    `SELECT count(*) AS rows FROM rate_buckets WHERE ${IN_SELECTION}`,
    [start, end, upTo],
  );
  return rows[0]!.rows;
}

export async function deleteBuckets(db: Pool, { start, end, upTo }: Buckets, limit: number): Promise<number> {
  // In the same order as takeTokens, so that the two never deadlock.
  const { rowCount } = await db.query(
    `DELETE FROM rate_buckets WHERE key IN
       (SELECT key FROM rate_buckets WHERE ${IN_SELECTION} ORDER BY key LIMIT $4 FOR UPDATE)`,
    [start, end, upTo, limit],
  );
  return rowCount ?? 0;
}

export async function countPastLimits(
  client: ClientBase,
  usedBefore: number,
  expiredBefore: number,
): Promise<{ buckets: number; credentials: number }> {
  const { rows } = await client.query<{ buckets: number; credentials: number }>(
    `SELECT
       (SELECT count(*) FROM (SELECT 1 FROM rate_buckets WHERE at < $1 LIMIT ${COUNT_MAX}) b)
         AS buckets,
       (SELECT count(*) FROM (SELECT 1 FROM used_credentials WHERE expires_at < $2 LIMIT ${COUNT_MAX}) c)
         AS credentials`,
    [usedBefore, expiredBefore],
  );
  return rows[0]!;
}
