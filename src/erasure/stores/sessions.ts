/**
 * Erases sessions of operators and rate limits of clients, in Redis and in PostgreSQL. With Redis the tables
 * are erased as well: the node may have run without Redis before.
 *
 * `until`: sessions that began by then, and rates that were last used by then. A member who sends requests
 * later, for example to see how far the erasure is, gets a new rate row. It is no remainder, and is forgotten
 * within the hour.
 */
import type { Pool } from 'pg';
import { bucketNames, LIMIT_PREFIXES, RATE_PREFIX, USED_PREFIX } from '../../limits/keys.js';
import { countBuckets, deleteBuckets } from '../../limits/limits.sql.js';
import { readSessionValue, SESSION_PREFIXES } from '../../sessions/keys.js';
import { countSessions, deleteSessions } from '../../sessions/sessions.sql.js';
import { storeBy } from '../all-tables.sql.js';
import { type Subject, untilMs } from '../rules.js';
import type { Deleter, Progress } from './deleter.js';
import type { WantedKeys } from './redis-keys.js';

const BATCH_ROWS = 500;
const ANSWER_MS_MAX = 5_000;

/** Every key that the program writes to Redis begins with one of these. */
export const REDIS_PREFIXES: readonly string[] = [...SESSION_PREFIXES, ...LIMIT_PREFIXES];

/** Prefixes that no deleter is responsible for, and why. */
export const EXEMPT_REDIS_PREFIXES: Readonly<Record<string, string>> = {
  [USED_PREFIX]: 'Used signatures and challenges. They name nobody, and expire after minutes.',
};

export interface SessionDeleterOptions {
  readonly pool: Pool;
  readonly redisUrl: string | undefined;
  /** Longest wait for one answer of Redis; five seconds by default. */
  readonly answerMsMax?: number;
}

export function sessionDeleters({
  pool,
  redisUrl,
  answerMsMax = ANSWER_MS_MAX,
}: SessionDeleterOptions): Deleter[] {
  const tables = [postgresSessions(pool), postgresRates(pool)];
  if (redisUrl === undefined) return tables;
  const place = { url: redisUrl, answerMsMax };
  return [
    inRedis(place, 'redis:sessions', SESSION_PREFIXES, wantedSessions),
    inRedis(place, 'redis:rate_limits', [RATE_PREFIX], wantedRates),
    ...tables,
  ];
}

/** Requests after the fence start a new rate row, which is no remainder. */
const usedUpTo = (subject: Subject) =>
  subject.type === 'member' && subject.until === undefined
    ? (subject.fencedAt ?? Number.MAX_SAFE_INTEGER)
    : upToOf(subject);
const upToOf = (subject: Subject) => (subject.type === 'member' ? untilMs(subject) : Number.MAX_SAFE_INTEGER);

// ── PostgreSQL ─────────────────────────────────────────────────────────────────────────────────────────────

function postgresSessions(pool: Pool): Deleter {
  return {
    ...storeBy('sessions'),
    count: (subject) => countSessions(pool, subject),
    delete: (subject, progress) => whileFull((limit) => deleteSessions(pool, subject, limit), progress),
  };
}

function postgresRates(pool: Pool): Deleter {
  const bucketsOf = (subject: Subject) => ({ ...bucketNames(subject), upTo: usedUpTo(subject) });
  return {
    ...storeBy('rates'),
    count: (subject) => countBuckets(pool, bucketsOf(subject)),
    delete: (subject, progress) =>
      whileFull((limit) => deleteBuckets(pool, bucketsOf(subject), limit), progress),
  };
}

/** A batch that is not full is the last: rows that are added meanwhile must not keep it running. */
async function whileFull(batch: (limit: number) => Promise<number>, progress: Progress): Promise<number> {
  for (let deleted = 0; ; ) {
    const taken = await batch(BATCH_ROWS);
    deleted += taken;
    if (taken > 0) await progress(taken);
    if (taken < BATCH_ROWS) return deleted;
  }
}

// ── Redis ──────────────────────────────────────────────────────────────────────────────────────────────────

function inRedis(
  place: { readonly url: string; readonly answerMsMax: number },
  name: string,
  holds: readonly string[],
  wantedOf: (subject: Subject) => WantedKeys,
): Deleter {
  // A node without Redis does not load its client.
  const redis = () => import('./redis-keys.js');
  return {
    name,
    holds,
    count: async (subject) => (await redis()).countKeys(place, wantedOf(subject)),
    delete: async (subject, progress) => (await redis()).deleteKeys(place, wantedOf(subject), progress),
    people: async function* (community) {
      const { namesOf } = await redis();
      for (const pattern of wantedOf({ type: 'community', community }).patterns)
        for await (const names of namesOf(place, pattern)) yield names.flatMap(keysIn);
    },
  };
}

function wantedSessions(subject: Subject): WantedKeys {
  const name =
    subject.type === 'member' ? `${subject.community}:${subject.pubkey}:` : `${subject.community}:`;
  return {
    patterns: SESSION_PREFIXES.map((prefix) => `${escapeGlob(prefix + name)}*`),
    upTo: upToOf(subject),
    timesOf: async (client, keys) =>
      (await client.mGet(keys)).map((value) =>
        // A value that cannot be read counts as old.
        value === null ? undefined : (readSessionValue(value)?.createdAt ?? 0),
      ),
  };
}

function wantedRates(subject: Subject): WantedKeys {
  const { start, end } = bucketNames(subject);
  return {
    patterns: [`${escapeGlob(RATE_PREFIX + start)}*${escapeGlob(end)}`],
    upTo: usedUpTo(subject),
    timesOf: async (client, keys) => {
      const times = await Promise.all(keys.map((key) => client.hGet(key, 'at')));
      return times.map((at) => (at == null ? undefined : Number(at)));
    },
  };
}

/** Public keys in the name of a key. */
const keysIn = (name: string) => name.split(':').filter((part) => /^[0-9a-f]{64}$/.test(part));

function escapeGlob(text: string): string {
  return text.replace(/[\\*?[\]^-]/g, '\\$&');
}
