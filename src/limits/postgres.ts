/**
 * The shared limits in PostgreSQL. Takes and credentials have a connection each: a credential waits for the
 * disk, and a take, for which every client waits, must not wait for that.
 */
import type { Pool } from 'pg';
import { takenOf } from './answer.js';
import { Batches } from './batches.js';
import { inTime } from './in-time.js';
import { type Credential, type TokenTake, takeTokens, useCredentials } from './limits.sql.js';
import type { SharedLimits, Taken } from './shared.js';

/** A client waits for the answer. */
const ANSWER_MS_MAX = 5_000;

interface Take extends TokenTake {
  readonly perSecond: number;
  readonly burst: number;
}

export class PostgresLimits implements SharedLimits {
  private readonly takes: Batches<Take, Taken>;
  private readonly credentials: Batches<Credential, boolean>;

  constructor(pool: Pool) {
    this.takes = new Batches({
      what: 'takes from rate buckets',
      answer: (takes) => answerTakes(pool, takes),
      fits: (first, { perSecond, burst }) => first.perSecond === perSecond && first.burst === burst,
    });
    this.credentials = new Batches({
      what: 'credentials',
      answer: async (credentials) => {
        const accepted = await useCredentials(pool, credentials);
        return new Map(credentials.map(({ key }) => [key, accepted.has(key)]));
      },
    });
  }

  take(key: string, wanted: number, perSecond: number, burst: number, nowMs: number): Promise<Taken> {
    return this.takes.ask({ key, wanted, perSecond, burst, nowMs });
  }

  useOnce(key: string, ttlMs: number, nowMs: number): Promise<boolean> {
    const used = this.credentials.ask({ key, expiresAt: nowMs + ttlMs, nowMs });
    return inTime(used, ANSWER_MS_MAX, 'PostgreSQL');
  }

  /** Does not close the pool. */
  async close(): Promise<void> {
    await Promise.all([this.takes.close(), this.credentials.close()]);
  }
}

async function answerTakes(pool: Pool, takes: readonly Take[]): Promise<Map<string, Taken>> {
  const { perSecond, burst } = takes[0]!;
  const rows = await takeTokens(pool, takes, perSecond, burst);
  const times = new Map(takes.map(({ key, nowMs }) => [key, nowMs]));
  return new Map(rows.map((row) => [row.key, takenOf(row, perSecond, times.get(row.key)!)]));
}
