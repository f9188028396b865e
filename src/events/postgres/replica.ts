/**
 * Reads stored events from a streaming replica (DATABASE_READ_URL) where that makes no difference to anybody.
 * The last offset of the outbox is a row of the database and changes with every change of what is served
 * (I8). So a replica that has an offset has everything up to it. A read first asks the primary for its last
 * offset, which all reads of a moment share, and uses a session of the replica only once that has it: own
 * writes are seen, and nothing deleted is served (I5, I6, I10).
 *
 * A replica that is behind gets a short time to catch up. Then, or if it fails or hangs, the primary is asked
 * (I15), and the replica is left alone until a probe finds it well again.
 */
import { setTimeout as delay } from 'node:timers/promises';
import type pg from 'pg';
import type { ClientBase, Pool } from 'pg';
import { inTime } from '../../limits/in-time.js';
import { OutboxBehind, readHead } from '../../outbox/outbox.sql.js';
import { checkVersion, type Database, openDatabase } from '../../postgres/database.js';
import { errorCode, SQLSTATE } from '../../postgres/rules-error-code.js';
import type { QueryClass } from '../rules/query-cost.js';

/** A session, and the replica's first answer in it. */
const REACH_MS_MAX = 1_000;
/** How long a read waits for a replica that is behind. */
const CATCH_UP_MS_MAX = 100;
const CATCH_UP_LOOK_MS = 5;
/** How often a replica that is not used is looked at. */
const PROBE_MS = 1_000;
/** It is used again when it is this close. */
const NEAR_OFFSETS = 1_000;

export type ReplicaOutcome = 'served' | 'behind' | 'failed' | 'resting';

export interface ReplicaOptions {
  readonly url: string;
  readonly primary: Database;
  readonly log: { info(text: string): void; warn(about: object, text: string): void };
  readonly onRead: (outcome: ReplicaOutcome) => void;
  /** Whether it is used, and how many offsets it was behind when it was last asked. */
  readonly onState: (isUsed: boolean, behind: number) => void;
}

class Behind extends Error {}

/** What the primary would say too: it would take as long, and no longer has changes that are trimmed here. */
const isAnswer = (error: unknown): boolean =>
  errorCode(error) === SQLSTATE.queryCanceled || error instanceof OutboxBehind;

export class Replica {
  private readonly database: Database;
  /** The last offset of the primary, asked now. Reads use the primary as long as there is none. */
  private position: (() => Promise<number>) | undefined;
  private isUsed = true;
  private behind = 0;
  private readonly stopping = new AbortController();
  private probing: Promise<void> | undefined;

  private constructor(private readonly options: ReplicaOptions) {
    this.database = openDatabase({ url: options.url }, { silenceMs: REACH_MS_MAX });
  }

  /** Throws if it is a replica of another database. One that cannot be reached is used later. */
  static async open(options: ReplicaOptions): Promise<Replica> {
    const replica = new Replica(options);
    try {
      await replica.check();
    } catch (error) {
      if (error instanceof WrongReplica) {
        await replica.close();
        throw error;
      }
      replica.rest(error);
    }
    return replica;
  }

  follow(position: () => Promise<number>): void {
    this.position = position;
  }

  /** Runs the work on the replica if that has everything, otherwise on the primary. */
  async read<T>(as: QueryClass, work: (db: Pool | ClientBase) => Promise<T>): Promise<T> {
    const { primary, onRead } = this.options;
    const onPrimary = () => work(primary.queryPools[as]);
    // Without an answer of the primary nobody knows what the replica lacks.
    const wanted = this.isUsed ? await this.position?.().catch(() => undefined) : undefined;
    if (wanted === undefined) {
      onRead('resting');
      return onPrimary();
    }
    try {
      const read = await this.inSession(this.database.queryPools[as], wanted, work);
      onRead('served');
      return read;
    } catch (error) {
      if (isAnswer(error)) throw error;
      onRead(error instanceof Behind ? 'behind' : 'failed');
      this.rest(error);
      return onPrimary();
    }
  }

  async close(): Promise<void> {
    this.stopping.abort();
    await this.probing;
    this.database.cut();
    await this.database.close();
  }

  /** The whole read in one session: behind one address there may be several replicas. */
  private async inSession<T>(
    pool: Pool,
    wanted: number,
    work: (session: pg.PoolClient) => Promise<T>,
  ): Promise<T> {
    // The pool has the same deadline for it.
    const session = await pool.connect();
    let failure: Error | undefined;
    try {
      await this.untilAt(session, wanted);
      return await work(session);
    } catch (error) {
      failure = error as Error;
      throw error;
    } finally {
      const isWell = failure instanceof Behind || failure instanceof OutboxBehind;
      session.release(isWell ? undefined : failure);
    }
  }

  private async untilAt(session: ClientBase, wanted: number): Promise<void> {
    const until = performance.now() + CATCH_UP_MS_MAX;
    for (;;) {
      const head = await inTime(readHead(session), REACH_MS_MAX, 'the replica');
      this.note(wanted - head);
      if (head >= wanted) return;
      if (performance.now() >= until) throw new Behind(`the replica is ${wanted - head} changes behind`);
      await delay(CATCH_UP_LOOK_MS);
    }
  }

  private note(behind: number): void {
    this.behind = Math.max(0, behind);
    this.options.onState(this.isUsed, this.behind);
  }

  private rest(error: unknown): void {
    if (!this.isUsed || this.stopping.signal.aborted) return;
    this.isUsed = false;
    this.options.onState(false, this.behind);
    this.options.log.warn(
      { error: (error as Error).message },
      'the replica is not used: stored events are read from the primary',
    );
    this.probing = this.probe();
  }

  private async probe(): Promise<void> {
    const { signal } = this.stopping;
    while (!signal.aborted) {
      await delay(PROBE_MS, undefined, { signal }).catch(() => undefined);
      if (signal.aborted) return;
      try {
        await this.check();
        const wanted = await readHead(this.options.primary.ownPool);
        const head = await inTime(readHead(this.database.ownPool), REACH_MS_MAX, 'the replica');
        this.note(wanted - head);
        if (wanted - head > NEAR_OFFSETS || !(await this.keepsUp(wanted))) continue;
        this.isUsed = true;
        this.note(0);
        this.options.log.info('the replica is used again');
        return;
      } catch {
        // It is looked at again.
      }
    }
  }

  /** It has reached this offset by the next look: one whose replay is paused has not. */
  private async keepsUp(wanted: number): Promise<boolean> {
    await delay(CATCH_UP_MS_MAX);
    return (await inTime(readHead(this.database.ownPool), REACH_MS_MAX, 'the replica')) >= wanted;
  }

  private async check(): Promise<void> {
    await inTime(checkVersion(this.database.ownPool), REACH_MS_MAX, 'the replica');
    const here = await inTime(seedOf(this.database.ownPool), REACH_MS_MAX, 'the replica');
    // Made at the first start of a node, so another database has another one.
    if (here !== undefined && here !== (await seedOf(this.options.primary.ownPool)))
      throw new WrongReplica(WRONG);
  }
}

export class WrongReplica extends Error {}

const WRONG =
  'DATABASE_READ_URL is not a replica of DATABASE_URL: it is another database of Minato. ' +
  'Correct it, or unset it to read everything from DATABASE_URL.';

async function seedOf(db: ClientBase | Pool): Promise<string | undefined> {
  const { rows } = await db.query<{ value: string }>(
    "SELECT value FROM node_state WHERE key = 'tag_hash_seed'",
  );
  return rows[0]?.value;
}

/** How far a replica is, for `minato doctor`. */
export interface ReplicaState {
  readonly isReplica: boolean;
  readonly isSame: boolean;
  readonly behind: number;
  readonly isPaused: boolean;
}

export async function readReplicaState(primary: ClientBase, replica: ClientBase): Promise<ReplicaState> {
  const { rows } = await replica.query<{ isReplica: boolean; isPaused: boolean }>(
    `SELECT pg_is_in_recovery() AS "isReplica",
       CASE WHEN pg_is_in_recovery() THEN pg_is_wal_replay_paused() ELSE false END AS "isPaused"`,
  );
  const isSame = (await seedOf(primary)) === (await seedOf(replica));
  const wanted = await readHead(primary);
  await delay(CATCH_UP_MS_MAX);
  const behind = Math.max(0, wanted - (await readHead(replica)));
  return { ...rows[0]!, isSame, behind };
}
