/**
 * The next changes of a course, applied: what is read, its effect and its number are one transaction (I8). A change that fails by
 * itself is parked and the rest goes on; an outage parks nothing (I14: every try is counted).
 */
import { setTimeout as delay, setImmediate as otherWork } from 'node:timers/promises';
import type { Client, ClientBase } from 'pg';
import type { Log } from '../log.js';
import type { Database } from '../postgres/database.js';
import { type Change, withPayloads } from '../store/changes.js';
import { BEGIN_EFFECT, countLetters, park } from '../store/consumers.js';
import type { Consumer } from './consumer.js';
import { backOffMs, isOutage, Overtaken, wordsOf } from './failures.js';

/** So many at once: their events are in memory, and the relay of the same process waits for what is made of them. */
const SLICE_ROWS = 100;
const STATEMENT_TIMEOUT_MS = 30_000;
const LOCK_TIMEOUT_MS = 3_000;
const IDLE_TIMEOUT_MS = 15_000;
const BATCH_TRIES = 3;
const SINGLE_TRIES = 5;
const RETRY_MS = 25;
const RETRY_MS_MAX = 400;
const STATEMENT_TOO_LONG = '57014';
/** One that fails at everything stops here, instead of putting everything aside. */
export const LETTERS_MAX = 1_000;

export interface Page {
  readonly changes: readonly Change[];
  /** Everything up to here is passed with this page. */
  readonly upTo: number;
  /** As many as were asked for: more may follow. */
  readonly full: boolean;
}

/** Where changes are read, and where their number is kept: the outbox, or a view that is scanned. */
export interface Course {
  readonly generation: number;
  readonly rowsMax: number;
  /** What was passed so far. */
  readonly from: number;
  read(tx: ClientBase, limit: number): Promise<Page>;
  /** In the transaction of the effect. False when it is not ours to save. */
  save(tx: ClientBase, page: Page): Promise<boolean>;
  /** It is committed. */
  passed(page: Page): void;
}

export interface BatchOptions {
  readonly consumer: Consumer;
  readonly database: Database;
  readonly log: Log;
  readonly now: () => number;
  readonly signal: AbortSignal;
}

/** What the consumer itself threw. */
class ApplyFailed extends Error {
  constructor(
    override readonly cause: unknown,
    readonly changes: readonly Change[],
  ) {
    super(wordsOf(cause));
  }
}

export class Batches {
  private client: Client | undefined;
  /** Of the full size, the divisor: what took too long is tried with less, and grows again. */
  private share = 1;
  private rowsTried = 0;
  private tooMuch = false;

  constructor(private readonly options: BatchOptions) {}

  /** The session of all its transactions; another one after it broke. */
  async session(): Promise<Client> {
    this.client ??= await this.options.database.connect({
      statementTimeoutMs: STATEMENT_TIMEOUT_MS,
      lockTimeoutMs: LOCK_TIMEOUT_MS,
      idleInTransactionTimeoutMs: IDLE_TIMEOUT_MS,
      indexWalks: true,
    });
    return this.client;
  }

  /** Ends the session, and with it whatever was under way. */
  async close(): Promise<void> {
    const broken = this.client;
    this.client = undefined;
    await broken?.end().catch(() => undefined);
  }

  /** All of it, or nothing. A session that cannot even roll back is given up. */
  async transact<T>(work: (tx: Client) => Promise<T>): Promise<T> {
    const tx = await this.session();
    try {
      await tx.query(BEGIN_EFFECT);
      const result = await work(tx);
      await tx.query('COMMIT');
      return result;
    } catch (error) {
      const lives = await tx.query('ROLLBACK').then(
        () => true,
        () => false,
      );
      if (!lives) await this.close();
      if (error instanceof ApplyFailed && this.isOutageOf(error, lives)) throw error.cause;
      throw error;
    }
  }

  /**
   * What the consumer threw because the database went away is no fault of what it was given. But what takes too long, or breaks the
   * session while it is applied, may be too much: it is tried with less, and a change that does it alone counts like any other that fails.
   */
  private isOutageOf({ cause, changes }: ApplyFailed, lives: boolean): boolean {
    if (!isOutage(cause, lives)) return false;
    const isTooMuch = !lives || (cause as { code?: string } | undefined)?.code === STATEMENT_TOO_LONG;
    if (isTooMuch && changes.length === 1) return false;
    this.tooMuch ||= isTooMuch;
    return true;
  }

  /** Applies the next changes and passes them, whatever it takes. */
  async take(course: Course): Promise<Page> {
    const limit = Math.max(1, Math.floor(course.rowsMax / this.share));
    try {
      const page = await this.takeUpTo(course, limit, BATCH_TRIES);
      this.share = Math.max(1, this.share / 2);
      return page;
    } catch (error) {
      // With half of what there was, not of what there might have been.
      if (this.tooMuch)
        this.share = course.rowsMax / Math.max(1, Math.floor(Math.min(limit, this.rowsTried) / 2));
      this.tooMuch = false;
      throw error;
    }
  }

  async apply(changes: readonly Change[], tx: ClientBase, generation: number): Promise<void> {
    for (let at = 0; at < changes.length; at += SLICE_ROWS) {
      const slice = changes.slice(at, at + SLICE_ROWS);
      const unread = slice.some(({ op, payload }) => op === 'upsert' && payload === undefined);
      const whole = unread ? await withPayloads(tx, slice) : slice;
      try {
        await this.options.consumer.apply(whole, tx, generation);
      } catch (error) {
        throw new ApplyFailed(error, changes);
      }
      await otherWork();
    }
  }

  /** What fails is tried again, then halved until a change stands alone; that one is parked, the others are applied. */
  private async takeUpTo(course: Course, limit: number, tries: number): Promise<Page> {
    const { signal } = this.options;
    for (let attempt = 1; ; attempt += 1) {
      try {
        return await this.takeOnce(course, limit);
      } catch (error) {
        if (!(error instanceof ApplyFailed) || signal.aborted) throw error;
        const { changes } = error;
        const triesOfThese = changes.length === 1 ? SINGLE_TRIES : tries;
        if (attempt >= triesOfThese) {
          if (changes.length === 1) return this.parkNext(course, changes[0]!, error, attempt);
          const half = Math.ceil(changes.length / 2);
          await this.takeUpTo(course, half, 1);
          return this.takeUpTo(course, changes.length - half, 1);
        }
        await delay(backOffMs(attempt, RETRY_MS, RETRY_MS_MAX), undefined, { signal });
      }
    }
  }

  private async takeOnce(course: Course, limit: number): Promise<Page> {
    const page = await this.transact(async (tx) => {
      const read = await course.read(tx, limit);
      this.rowsTried = read.changes.length;
      if (read.changes.length === 0 && read.upTo === course.from) return read;
      await this.apply(read.changes, tx, course.generation);
      if (!(await course.save(tx, read))) throw new Overtaken();
      return read;
    });
    course.passed(page);
    return page;
  }

  private async parkNext(course: Course, failed: Change, error: Error, attempts: number): Promise<Page> {
    const { consumer, log, now } = this.options;
    const { generation } = course;
    const page = await this.transact(async (tx) => {
      const read = await course.read(tx, 1);
      // The number may have been moved meanwhile: then it is another change, and has its own tries.
      if (read.changes[0]?.seq !== failed.seq) throw new Overtaken();
      if ((await countLetters(tx, consumer.name, generation, LETTERS_MAX)) >= LETTERS_MAX)
        throw new Error(`${LETTERS_MAX} changes failed already; the last: ${error.message}`);
      await park(tx, consumer.name, generation, failed, { attempts, error: error.message, now: now() });
      if (!(await course.save(tx, read))) throw new Overtaken();
      return read;
    });
    course.passed(page);
    const { seq, kind } = failed;
    log.warn(
      { consumer: consumer.name, seq, kind, error: error.message },
      'a change failed and is put aside',
    );
    return page;
  }
}

/** The words of the consumer's own failure. Whatever is nobody's fault is thrown. */
export async function failureOf(work: Promise<unknown>): Promise<string | undefined> {
  return work.then(
    () => undefined,
    (error: unknown) => {
      if (error instanceof ApplyFailed) return error.message;
      throw error;
    },
  );
}
