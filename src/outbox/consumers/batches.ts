/**
 * Applies the next changes of a course. Reading, effect and offset are one transaction (I8). A change that
 * fails alone becomes a dead letter and the rest continues. An outage parks nothing. I14: every retry is
 * counted.
 */
import { setTimeout as delay, setImmediate as otherWork } from 'node:timers/promises';
import type { Client, ClientBase } from 'pg';
import type { Log } from '../../node/log.js';
import type { Database } from '../../postgres/database.js';
import { errorCode, SQLSTATE } from '../../postgres/rules-error-code.js';
import { type Change, type ChangedEvents, IN_DATABASE } from '../changes.sql.js';
import type { Consumer } from './consumer.js';
import { BEGIN_EFFECT, countLetters, park } from './consumers.sql.js';
import { backOffMs, isOutage, Overtaken, wordsOf } from './failures.js';

/** Changes that are applied at once: their events are in memory, and the relay of this process waits. */
const SLICE_ROWS = 250;
const STATEMENT_TIMEOUT_MS = 30_000;
const LOCK_TIMEOUT_MS = 3_000;
const IDLE_TIMEOUT_MS = 15_000;
const BATCH_TRIES = 3;
const SINGLE_TRIES = 5;
const RETRY_MS = 25;
const RETRY_MS_MAX = 400;
/** A consumer that fails at every change stops at this number of dead letters. */
export const LETTERS_MAX = 1_000;

export interface Page {
  readonly changes: readonly Change[];
  /** The offset after this page. */
  readonly upTo: number;
  /** It has as many changes as the limit: more may follow. */
  readonly full: boolean;
  /** True: upserts have their events, except those no longer effective. False: events are read per slice. */
  readonly isWhole: boolean;
  /** Of a scan: where it continues, if its offset does not say that, and whether it is complete. */
  readonly place?: string;
  readonly isDone?: boolean;
}

/** Where changes are read and the offset is kept: the outbox, or a scan of the effective events. */
export interface Course {
  readonly generation: number;
  readonly rowsMax: number;
  /** The offset so far. */
  readonly from: number;
  read(tx: ClientBase, limit: number): Promise<Page>;
  /** In the transaction of the effect. False if another instance holds the lease or moved the offset. */
  save(tx: ClientBase, page: Page): Promise<boolean>;
  /** Called after the commit. */
  passed(page: Page): void;
}

export interface BatchOptions {
  /** Where the events of changes are; by default in the database. */
  readonly events?: ChangedEvents | undefined;
  readonly consumer: Consumer;
  readonly database: Database;
  readonly log: Log;
  readonly now: () => number;
  readonly signal: AbortSignal;
}

/** An error that the consumer itself threw. */
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
  /** The batch size is the full size divided by this. It grows after a batch that took too long. */
  private share = 1;
  private rowsTried = 0;
  private tooMuch = false;

  constructor(private readonly options: BatchOptions) {}

  get events(): ChangedEvents {
    return this.options.events ?? IN_DATABASE;
  }

  /** The session of all transactions; a new one after it broke. */
  async session(): Promise<Client> {
    this.client ??= await this.options.database.connect({
      statementTimeoutMs: STATEMENT_TIMEOUT_MS,
      lockTimeoutMs: LOCK_TIMEOUT_MS,
      idleInTransactionTimeoutMs: IDLE_TIMEOUT_MS,
      indexWalks: true,
    });
    return this.client;
  }

  /** Ends the session and its open transaction. */
  async close(): Promise<void> {
    const broken = this.client;
    this.client = undefined;
    await broken?.end().catch(() => undefined);
  }

  /** Runs one transaction. A session that cannot roll back is closed. */
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
   * An error of the consumer during an outage of the database is not caused by its changes. But changes that
   * take too long or break the session may be too many: then the batch gets smaller. A single change that
   * does so counts as failed.
   */
  private isOutageOf({ cause, changes }: ApplyFailed, lives: boolean): boolean {
    if (!isOutage(cause, lives)) return false;
    const isTooMuch = !lives || errorCode(cause) === SQLSTATE.queryCanceled;
    if (isTooMuch && changes.length === 1) return false;
    this.tooMuch ||= isTooMuch;
    return true;
  }

  /** Applies the next changes and saves the offset, with retries. */
  async take(course: Course): Promise<Page> {
    const limit = Math.max(1, Math.floor(course.rowsMax / this.share));
    try {
      const page = await this.takeUpTo(course, limit, BATCH_TRIES);
      this.share = Math.max(1, this.share / 2);
      return page;
    } catch (error) {
      // Half of the rows that were read, not of the limit.
      if (this.tooMuch)
        this.share = course.rowsMax / Math.max(1, Math.floor(Math.min(limit, this.rowsTried) / 2));
      this.tooMuch = false;
      throw error;
    }
  }

  async apply(
    { changes, isWhole }: Pick<Page, 'changes' | 'isWhole'>,
    tx: ClientBase,
    generation: number,
  ): Promise<void> {
    for (let at = 0; at < changes.length; at += SLICE_ROWS) {
      const slice = changes.slice(at, at + SLICE_ROWS);
      const whole = isWhole ? slice : await this.events.withPayloads(tx, slice);
      try {
        await this.options.consumer.apply(whole, tx, generation);
      } catch (error) {
        throw new ApplyFailed(error, changes);
      }
      await otherWork();
    }
  }

  /**
   * A batch that fails is retried, then halved until one change is left. That change becomes a dead letter,
   * and the others are applied.
   */
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
      await this.apply(read, tx, course.generation);
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
      // The offset may have been moved meanwhile: then this is another change, with retries of its own.
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
      'a change failed and is kept as a dead letter',
    );
    return page;
  }
}

/** The message of a failure of the consumer. Other errors, such as outages, are thrown. */
export async function failureOf(work: Promise<unknown>): Promise<string | undefined> {
  return work.then(
    () => undefined,
    (error: unknown) => {
      if (error instanceof ApplyFailed) return error.message;
      throw error;
    },
  );
}
