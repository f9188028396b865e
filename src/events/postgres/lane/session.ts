/**
 * The one session of a lane, for its transactions one after another. A failed session is dropped, which rolls
 * back and frees the lock. When a row has no partition, the missing partitions are created and the
 * transaction runs once more; this retry exists only here.
 */
import type { Client } from 'pg';
import type { Log } from '../../../node/log.js';
import type { Database } from '../../../postgres/database.js';
import { errorCode, SQLSTATE } from '../../../postgres/rules-error-code.js';
import type { Keep } from '../../rules/keep.js';
import { ensurePartitions, ensurePartitionsOf } from '../partitions.js';

/**
 * A stalled holder of the lock would stop every instance: the server ends its session after these times
 * (I15).
 */
const LOCK_TIMEOUT_MS = 10_000;
const STATEMENT_TIMEOUT_MS = 20_000;
const IDLE_TIMEOUT_MS = 10_000;
/** With the wait for the lock. Clients wait for at most 30 s, so another instance can go on before that. */
const TRANSACTION_MS_MAX = 20_000;

/** The bucket and time of a row to write. */
export interface RowPlace {
  readonly keep: Keep;
  readonly ingestedAt: number;
}

export interface SessionOptions {
  readonly database: Database;
  readonly log: Log;
  readonly now: () => number;
  /**
   * Called with the number of the server process of a new session, and with undefined after a session has
   * ended: a COMMIT that it sent may have been carried out.
   */
  readonly onSession?: ((processId: number | undefined) => void) | undefined;
}

export class LaneSession {
  private session: Client | undefined;
  /**
   * The first error of the server in this transaction. Pipelined statements after it fail as well (25P02),
   * and the error that the caller gets first need not be the first one.
   */
  private cause: unknown;

  constructor(private readonly options: SessionOptions) {}

  /**
   * Runs one transaction. A failed transaction leaves no session behind. `places`, called after the failure,
   * returns old rows that the transaction was to move: their partitions may be missing as well.
   */
  async run<T>(work: (session: Client) => Promise<T>, places?: () => readonly RowPlace[]): Promise<T> {
    try {
      return await this.attempt(work);
    } catch (error) {
      const first = this.causeOf(error);
      const code = errorCode(first);
      if (code !== SQLSTATE.checkViolation) throw error;
      this.options.log.warn(
        { code, error: String(first) },
        'a row has no partition, creating the missing ones',
      );
      await this.makePartitions(places?.() ?? []);
      return this.attempt(work);
    }
  }

  /** An error of our own, such as a missing key of erased members, is not an error of the server. */
  causeOf(error: unknown): unknown {
    return this.cause ?? error;
  }

  /** The session may be in the middle of a transaction. Ending it rolls back and frees the lock. */
  async drop(): Promise<void> {
    const broken = this.session;
    this.session = undefined;
    this.options.onSession?.(undefined);
    await broken?.end().catch(() => undefined);
  }

  private async attempt<T>(work: (session: Client) => Promise<T>): Promise<T> {
    try {
      return await work(await this.open());
    } catch (error) {
      await this.drop();
      throw error;
    }
  }

  private async open(): Promise<Client> {
    this.cause = undefined;
    if (this.session !== undefined) return this.session;
    const opened = await this.options.database.connect({
      lockTimeoutMs: LOCK_TIMEOUT_MS,
      statementTimeoutMs: STATEMENT_TIMEOUT_MS,
      idleInTransactionTimeoutMs: IDLE_TIMEOUT_MS,
      indexWalks: true,
      durable: true,
      pipelined: { transactionMsMax: TRANSACTION_MS_MAX },
    });
    opened.connection.on('errorMessage', (error: unknown) => {
      this.cause ??= error;
    });
    this.session = opened;
    this.options.onSession?.(
      (opened as Client & { readonly processID?: number | null }).processID ?? undefined,
    );
    return opened;
  }

  /**
   * The partition of this month may be missing because the node slept or its clock was changed. Or a range of
   * the outbox has ended.
   */
  private async makePartitions(places: readonly RowPlace[]): Promise<void> {
    try {
      const session = await this.open();
      await ensurePartitions(session, this.options.now());
      if (places.length > 0) await ensurePartitionsOf(session, places);
    } catch (error) {
      this.options.log.error({ error: String(error) }, 'partitions could not be created');
    }
  }
}
