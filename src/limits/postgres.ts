/**
 * The shared limits in PostgreSQL. It runs one statement at a time, for all waiting takes from buckets of the
 * same size. So a flood of new clients costs the database as little as a few busy ones.
 */
import type { Pool } from 'pg';
import { takenOf } from './answer.js';
import { inTime, isNoAnswer } from './in-time.js';
import { takeTokens, useCredential } from './limits.sql.js';
import type { SharedLimits, Taken } from './shared.js';

const BATCH_MAX = 500;
const WAITING_MAX = 10_000;
/** A client waits for the answer. */
const ANSWER_MS_MAX = 5_000;

interface Question {
  readonly key: string;
  readonly wanted: number;
  readonly perSecond: number;
  readonly burst: number;
  readonly nowMs: number;
  readonly resolve: (taken: Taken) => void;
  readonly reject: (error: unknown) => void;
}

export class PostgresLimits implements SharedLimits {
  private waiting: Question[] = [];
  private working: Promise<void> | undefined;

  constructor(private readonly pool: Pool) {}

  take(key: string, wanted: number, perSecond: number, burst: number, nowMs: number): Promise<Taken> {
    if (this.waiting.length >= WAITING_MAX)
      return Promise.reject(new Error('too many takes from rate buckets are waiting'));
    return new Promise((resolve, reject) => {
      this.waiting.push({ key, wanted, perSecond, burst, nowMs, resolve, reject });
      this.working ??= this.work();
    });
  }

  useOnce(key: string, ttlMs: number, nowMs: number): Promise<boolean> {
    const used = useCredential(this.pool, key, nowMs + ttlMs, nowMs);
    return inTime(used, ANSWER_MS_MAX, 'PostgreSQL');
  }

  /** Does not close the pool. */
  async close(): Promise<void> {
    await this.working;
  }

  private async work(): Promise<void> {
    // Takes of the same pass of the event loop share a batch.
    await Promise.resolve();
    while (this.waiting.length > 0) await this.answer(this.nextBatch());
    this.working = undefined;
  }

  /** Takes from buckets of the same size as the first, in order. A second take from a key waits. */
  private nextBatch(): Question[] {
    const { perSecond, burst } = this.waiting[0]!;
    const batch = new Map<string, Question>();
    const later: Question[] = [];
    for (const question of this.waiting) {
      const fits = question.perSecond === perSecond && question.burst === burst;
      if (fits && batch.size < BATCH_MAX && !batch.has(question.key)) batch.set(question.key, question);
      else later.push(question);
    }
    this.waiting = later;
    return [...batch.values()];
  }

  private async answer(batch: readonly Question[]): Promise<void> {
    const { perSecond, burst } = batch[0]!;
    try {
      const rows = await takeTokens(this.pool, batch, perSecond, burst);
      const taken = new Map(rows.map((row) => [row.key, row]));
      for (const { key, nowMs, resolve } of batch) resolve(takenOf(taken.get(key)!, perSecond, nowMs));
    } catch (error) {
      // After a time-out all waiting takes fail too: they have waited long enough.
      const behind = isNoAnswer(error) ? this.waiting.splice(0) : [];
      for (const { reject } of [...batch, ...behind]) reject(error);
    }
  }
}
