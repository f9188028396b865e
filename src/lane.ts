/**
 * The lane: the one write path. Events from sockets, import and jobs wait in one bounded queue, and are written in
 * groups, one durable transaction each, under one advisory lock. So there is one commit for many events (I1), no race
 * between two writers on any instance (I3, I4), and outbox order is commit order (I8).
 *
 *   submit → queue → batch → BEGIN, lock → facts → plan → rows → COMMIT → OK
 *
 * The lock is a statement of its own before any read: under READ COMMITTED each statement sees what was committed
 * before it began, and one that waited for the lock inside itself would have taken its snapshot too early.
 */
import { setTimeout as delay } from 'node:timers/promises';
import type { Client } from 'pg';
import { type Plan, planBatch, type Submission } from './core/plan.js';
import { type Outcome, type Refusal, refusal } from './core/reply.js';
import { LaneQueue } from './lane-queue.js';
import type { Log } from './log.js';
import type { Metrics } from './metrics.js';
import type { Database } from './postgres/database.js';
import { readFacts, writePlan } from './store/batch.js';
import { ensurePartitions } from './store/partitions.js';
import type { TagHash } from './store/tag-hash.js';

export const LANE_LOCK = 7_447_001;
const BATCH_EVENTS_MAX = 500;
const BATCH_BYTES_MAX = 4 * 1_048_576;
/** One stalled holder of the lock would stop every instance: the server ends its session after these. */
const LOCK_TIMEOUT_MS = 10_000;
const STATEMENT_TIMEOUT_MS = 20_000;
const IDLE_TIMEOUT_MS = 10_000;
/** Enough for PostgreSQL to recover from a crash; then clients are told. */
const TRYING_MS_MAX = 30_000;
const ATTEMPTS_MAX = 20;
const STATEMENT_TOO_LONG = '57014';
const RETRY_MS_MAX = 2_000;
/** SQLSTATE of a row that no partition takes; a check constraint gives the same. */
const NO_PARTITION = '23514';

export interface LaneOptions {
  readonly database: Database;
  readonly tagHash: TagHash;
  readonly metrics: Metrics;
  readonly log: Log;
  /** Milliseconds; the only clock of the lane. */
  readonly now: () => number;
  /** After the commit, before the clients are told. */
  readonly onCommit?: (plan: Plan) => void;
}

export interface Lane {
  readonly depth: number;
  submit(submission: Submission): Promise<Outcome | Refusal>;
  /** Takes nothing more, finishes what waits. */
  close(): Promise<void>;
}

interface Item {
  readonly community: number;
  readonly bytes: number;
  readonly submission: Submission;
  readonly settle: (outcome: Outcome | Refusal) => void;
}

interface Batch {
  readonly items: readonly Item[];
  readonly attempt: number;
  /** Wall clock, in milliseconds: after it the clients are told. */
  readonly deadline: number;
  /** An earlier try got as far as COMMIT, so its events may be stored. */
  readonly commitSent: boolean;
}

export function startLane(options: LaneOptions): Lane {
  const { database, metrics, log } = options;
  const queue = new LaneQueue<Item>();
  let session: Client | undefined;
  let running: Promise<void> | undefined;
  let closing = false;
  /** The last batch was given up: while nothing works, the next ones try once and are told at once. */
  let hopeless = false;

  const drain = async (): Promise<void> => {
    while (queue.size > 0) {
      const items = queue.take(BATCH_EVENTS_MAX, BATCH_BYTES_MAX);
      await commit({ items, attempt: 1, deadline: Date.now() + TRYING_MS_MAX, commitSent: false });
      metrics.laneDepth.set(queue.size);
    }
    running = undefined;
  };

  const commit = async (batch: Batch): Promise<void> => {
    const done = metrics.laneCommit.startTimer();
    const { items, commitSent } = batch;
    let sent = commitSent;
    try {
      session ??= await connectSession(database);
      const plan = await transact(session, items, options, () => {
        hopeless = false;
        sent = true;
      });
      done();
      metrics.laneBatch.observe(items.length);
      options.onCommit?.(plan);
      items.forEach((item, place) => {
        const decision = plan.decisions[place]!;
        // After a COMMIT of unknown fate the next try may find what it committed: that is stored, not a duplicate.
        item.settle(commitSent && decision === 'duplicate' ? 'stored' : decision);
      });
    } catch (error) {
      await recover({ ...batch, commitSent: sent }, error);
    }
  };

  /** Every failure of a batch ends here, and nowhere else: split, try again, or tell the clients. */
  const recover = async (batch: Batch, error: unknown): Promise<void> => {
    const { items, attempt, deadline } = batch;
    const code = (error as { code?: string }).code;
    log.warn({ code, events: items.length, attempt, error: String(error) }, 'a batch failed');
    metrics.laneRetries.inc();
    await dropSession();
    if (code === NO_PARTITION && attempt === 1) {
      await makePartitions();
      return commit({ ...batch, attempt: 2 });
    }
    if (isDataError(code) || (code === STATEMENT_TOO_LONG && items.length > 1)) return split(batch);
    if (hopeless || (closing && attempt > 1) || attempt >= ATTEMPTS_MAX || Date.now() > deadline) {
      hopeless = true;
      for (const item of items) item.settle(refusal('error', 'failed to store event'));
      return;
    }
    await delay(Math.min(RETRY_MS_MAX, 25 * 2 ** attempt));
    return commit({ ...batch, attempt: attempt + 1 });
  };

  /** What fails on one event's data is halved until that event stands alone; it is refused, the others are stored. */
  const split = async (batch: Batch): Promise<void> => {
    const { items } = batch;
    if (items.length === 1) {
      items[0]!.settle(refusal('error', 'failed to store event'));
      return;
    }
    const half = Math.ceil(items.length / 2);
    await commit({ ...batch, items: items.slice(0, half) });
    await commit({ ...batch, items: items.slice(half) });
  };

  const dropSession = async (): Promise<void> => {
    const broken = session;
    session = undefined;
    // The session may be in the middle of a transaction: ending it rolls back and frees the lock.
    await broken?.end().catch(() => undefined);
  };

  /** This month's partition may be missing: the node slept, or its clock was set. */
  const makePartitions = async (): Promise<void> => {
    try {
      session ??= await connectSession(database);
      await ensurePartitions(session, options.now());
    } catch (error) {
      log.error({ error: String(error) }, 'partitions could not be made');
    }
  };

  return {
    get depth() {
      return queue.size;
    },
    submit: (submission) =>
      new Promise((settle) => {
        const { community, payload } = submission;
        if (closing) return settle(refusal('error', 'the relay is shutting down'));
        if (!queue.add({ community, bytes: payload.length, submission, settle })) {
          return settle(refusal('rate-limited', 'the relay is busy, try again in a moment'));
        }
        metrics.laneDepth.set(queue.size);
        running ??= Promise.resolve().then(drain);
      }),
    close: async () => {
      closing = true;
      await running;
      await dropSession();
    },
  };
}

function connectSession(database: Database): Promise<Client> {
  return database.connect({
    lockTimeoutMs: LOCK_TIMEOUT_MS,
    statementTimeoutMs: STATEMENT_TIMEOUT_MS,
    idleInTransactionTimeoutMs: IDLE_TIMEOUT_MS,
    indexWalks: true,
  });
}

async function transact(
  session: Client,
  items: readonly Item[],
  options: LaneOptions,
  /** Everything worked so far; what fails from here on has an unknown fate and must be tried again. */
  beforeCommit: () => void,
): Promise<Plan> {
  const submissions = items.map((item) => item.submission);
  const now = options.now();
  await session.query(`BEGIN ISOLATION LEVEL READ COMMITTED; SELECT pg_advisory_xact_lock(${LANE_LOCK})`);
  const plan = planBatch(submissions, await readFacts(session, submissions), now);
  await writePlan(session, plan, now, options.tagHash);
  // Ephemeral events are not kept, so their commit need not wait for the disk. All others do, whatever the server's default.
  const durable = plan.outbox.length > 0;
  beforeCommit();
  await session.query(`SET LOCAL synchronous_commit = ${durable ? 'on' : 'off'}; COMMIT`);
  return plan;
}

/** The event's own data was refused (22: data, 23: constraint, 54: limits), so trying again would not help. */
function isDataError(code: string | undefined): boolean {
  return code !== undefined && /^(22|23|54)/.test(code);
}
