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
import { KIND_DELETION } from './core/classify.js';
import type { Decision } from './core/decide.js';
import type { Announced } from './core/hidden.js';
import { isOutageCode } from './core/outage.js';
import {
  factKey,
  type Plan,
  planBatch,
  planHiding,
  planMarks,
  type StoredEvent,
  type Submission,
  type VanishMark,
} from './core/plan.js';
import { type Outcome, outcomeOf, type Refusal, refusal } from './core/reply.js';
import { ages, eventSince, type Retention, type TopicSubscription } from './core/retention.js';
import type { Settings } from './core/settings.js';
import { topicsOf } from './core/topic.js';
import { isNoAnswer, NoAnswer } from './in-time.js';
import { LaneQueue } from './lane-queue.js';
import type { Log } from './log.js';
import type { Metrics } from './metrics.js';
import type { Database } from './postgres/database.js';
import { writePlan } from './store/batch.js';
import { readFacts } from './store/facts.js';
import { readHead } from './store/outbox.js';
import { ensurePartitions } from './store/partitions.js';
import { dropRemoved, type EventRef, type RemovedEvent, readRemoved } from './store/restore.js';
import type { TagHash } from './store/tag-hash.js';
import { type SubjectKey, SubjectKeyMissing } from './subject-key.js';

export const LANE_LOCK = 7_447_001;
const BATCH_EVENTS_MAX = 500;
const BATCH_BYTES_MAX = 4 * 1_048_576;
/** What a target of a deletion adds to the weight of its request: its event is read, too. */
const TARGET_BYTES = 2_048;
/** One stalled holder of the lock would stop every instance: the server ends its session after these. */
const LOCK_TIMEOUT_MS = 10_000;
const STATEMENT_TIMEOUT_MS = 20_000;
const IDLE_TIMEOUT_MS = 10_000;
/** Enough for PostgreSQL to recover from a crash; then clients are told. */
const TRYING_MS_MAX = 30_000;
const ATTEMPTS_MAX = 20;
const JOBS_WAITING_MAX = 16;
const STATEMENT_TOO_LONG = '57014';
const RETRY_MS_MAX = 2_000;
/** Two instances find each other within a poll or two. */
const KEY_WAIT_MS = 3_000;
/** SQLSTATE of a statement behind one that failed. */
const FAILED_TRANSACTION = '25P02';
/** SQLSTATE of a row that no partition takes; a check constraint gives the same. */
const NO_PARTITION = '23514';

export interface LaneOptions {
  readonly database: Database;
  readonly tagHash: TagHash;
  readonly metrics: Metrics;
  readonly log: Log;
  /** Milliseconds; the only clock of the lane. */
  readonly now: () => number;
  readonly settingsOf: (community: number) => Settings;
  readonly topicsOf?: (community: number) => ReadonlyMap<string, TopicSubscription>;
  /** Seconds: what was signed up to then is of an erased community that had this one's name. */
  readonly refusedUntilOf?: (community: number) => number | undefined;
  readonly keptSinceOf?: (community: number) => number;
  readonly subjectKey?: SubjectKey;
  /** After the commit, before the clients are told. */
  readonly onCommit?: (plan: Plan) => void;
}

export interface Lane {
  readonly depth: number;
  submit(submission: Submission): Promise<Outcome | Refusal>;
  /** Short work under the lane's lock, in its turn between two batches: takes rows out of the view and announces it. */
  hide(work: HidingWork): Promise<number>;
  /** Puts back what a moderator removed, where nothing else keeps it away by now; what became of each, in their order. */
  restore(work: RestoringWork | readonly EventRef[]): Promise<Restored[]>;
  /** Hides everything of some people at once, at read, and whatever else is to hold from the same moment on. */
  mark(work: MarkingWork): Promise<void>;
  /** Takes nothing more, finishes what waits. */
  close(): Promise<void>;
}

/** `stored`: it is served again. Else why not; `unknown`: nothing that was removed is there, or not any more. */
export type Restored = Decision | 'unknown';

/** Under the lane's lock, in its transaction: which, and what is to be remembered of what became of each. */
export interface RestoringWork {
  select(client: Client, now: number): Promise<readonly EventRef[]>;
  note(client: Client, restored: readonly Restored[], now: number): Promise<void>;
}

/** Under the lane's lock, in its transaction: nothing is hidden where no mark is given. */
export type MarkingWork = (client: Client, now: number) => Promise<readonly VanishMark[]>;

/** A bounded batch of rows that a job takes out of the view. */
export interface HidingWork {
  readonly hidden: Announced;
  readonly purge: boolean;
  select(client: Client, now: number): Promise<(StoredEvent & { readonly community: number })[]>;
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
  /**
   * The first error that the server gave in this transaction. What was sent behind that statement fails as
   * well (25P02), and the answer that reaches us first need not be the first that came.
   */
  let cause: { readonly code?: string } | undefined;
  let running: Promise<void> | undefined;
  let closing = false;
  /** The last batch was given up: while nothing works, the next ones try once and are told at once. */
  let hopeless = false;

  /** For one transaction; a session that failed is dropped. */
  const openSession = async (): Promise<Client> => {
    cause = undefined;
    if (session !== undefined) return session;
    const opened = await connectSession(database);
    opened.connection.on('errorMessage', (error: { readonly code?: string }) => {
      cause ??= error;
    });
    session = opened;
    return opened;
  };

  /** Our own refusal to go on, as without the key of erased members, is no error of the server. */
  const causeOf = (error: unknown): { readonly code?: string } => cause ?? (error as { code?: string });

  const jobs: { readonly run: () => Promise<void>; readonly giveUp: (why: unknown) => void }[] = [];

  /** Those that wait behind one that the database did not answer would each wait as long again (I15). */
  const giveUpJobs = (why: unknown): void => {
    if (isNoAnswer(why)) for (const { giveUp } of jobs.splice(0)) giveUp(why);
  };

  const drain = async (): Promise<void> => {
    while (queue.size > 0 || jobs.length > 0) {
      const items = queue.take(BATCH_EVENTS_MAX, BATCH_BYTES_MAX);
      if (items.length > 0) {
        await commit({ items, attempt: 1, deadline: Date.now() + TRYING_MS_MAX, commitSent: false });
      }
      metrics.laneDepth.set(queue.size);
      await jobs.shift()?.run();
    }
    running = undefined;
  };

  const start = (): void => {
    running ??= Promise.resolve().then(drain);
  };

  /**
   * A job that fails is its caller's to try again; the session is dropped, so nothing of it stays. Only a range of the outbox
   * that ended is made here, as for a batch: a sweep may use up more numbers than were made ahead.
   */
  const hide = async (work: HidingWork, attempt = 1): Promise<number> => {
    try {
      const plan = await transactHiding(await openSession(), work, options);
      metrics.hidden.inc({ reason: work.hidden }, plan.hidden.length);
      if (plan.outbox.length > 0) options.onCommit?.(plan);
      return plan.hidden.length;
    } catch (error) {
      const { code } = causeOf(error);
      await dropSession();
      if (code === NO_PARTITION && attempt === 1) {
        await makePartitions();
        return hide(work, 2);
      }
      throw error;
    }
  };

  const restore = async (work: RestoringWork, attempt = 1): Promise<Restored[]> => {
    try {
      const { plan, restored } = await transactRestore(await openSession(), work, options);
      if (plan.outbox.length > 0) options.onCommit?.(plan);
      return restored;
    } catch (error) {
      const { code } = causeOf(error);
      await dropSession();
      if (code === NO_PARTITION && attempt === 1) {
        await makePartitions();
        return restore(work, 2);
      }
      const lacksKey = error instanceof SubjectKeyMissing && attempt === 1;
      if (lacksKey && (await options.subjectKey?.awaited(error.print, KEY_WAIT_MS))) return restore(work, 2);
      throw error;
    }
  };

  const mark = async (work: MarkingWork): Promise<void> => {
    try {
      const opened = await openSession();
      const now = options.now();
      await opened.query(BEGIN_LOCKED);
      const marks = await work(opened, now);
      const plan = planMarks(marks, await readHead(opened));
      await writeAndCommit(opened, plan, now, options, { isUnknown: false, isDurable: true });
      options.onCommit?.(plan);
    } catch (error) {
      await dropSession();
      throw error;
    }
  };

  const commit = async (batch: Batch): Promise<void> => {
    const done = metrics.laneCommit.startTimer();
    const { items, commitSent } = batch;
    const fate: Fate = { isUnknown: commitSent };
    try {
      const plan = await transact(await openSession(), items, options, fate);
      hopeless = false;
      done();
      metrics.laneBatch.observe(items.length);
      options.onCommit?.(plan);
      items.forEach((item, place) => {
        const decision = plan.decisions[place]!;
        // After a COMMIT of unknown fate the next try may find what it committed: that is stored, not a duplicate.
        const outcome = outcomeOf(decision, upTo(plan.erasedUntil?.get(item.submission)));
        item.settle(commitSent && decision === 'duplicate' ? 'stored' : outcome);
      });
    } catch (error) {
      if (fate.isUnknown) hopeless = false;
      await recover({ ...batch, commitSent: fate.isUnknown }, error);
    }
  };

  /** Every failure of a batch ends here, and nowhere else: split, try again, or tell the clients. */
  const recover = async (batch: Batch, error: unknown): Promise<void> => {
    const { items, attempt, deadline } = batch;
    const first = causeOf(error);
    const { code } = first;
    log.warn({ code, events: items.length, attempt, error: String(first) }, 'a batch failed');
    metrics.laneRetries.inc();
    await dropSession();
    if (code === NO_PARTITION && attempt === 1) {
      await makePartitions();
      return commit({ ...batch, attempt: 2 });
    }
    if (error instanceof SubjectKeyMissing) return withoutKey(batch, error);
    if (isDataError(code) || (code === STATEMENT_TOO_LONG && items.length > 1)) return split(batch);
    // Neither data nor an outage, as a plan that a migration has changed: once more on a new session, then by
    // halves as well.
    if (!isNoAnswer(error) && !isOutageCode(code))
      return attempt === 1 ? commit({ ...batch, attempt: 2 }) : split(batch);
    if (hopeless || (closing && attempt > 1) || attempt >= ATTEMPTS_MAX || Date.now() > deadline) {
      hopeless = true;
      // Whoever waits behind it would wait for the same: a queue of many batches is not tried one by one.
      for (const item of [...items, ...queue.take(Number.MAX_SAFE_INTEGER, Number.MAX_SAFE_INTEGER)])
        item.settle(refusal('error', 'failed to store event'));
      giveUpJobs(error);
      return;
    }
    await delay(Math.min(RETRY_MS_MAX, 25 * 2 ** attempt));
    return commit({ ...batch, attempt: attempt + 1 });
  };

  /** The first erasure, perhaps on another instance, made the key, which hands it over. Where it does not come, nothing is taken in. */
  const withoutKey = async (batch: Batch, error: SubjectKeyMissing): Promise<void> => {
    const comes = !closing && (await options.subjectKey?.awaited(error.print, KEY_WAIT_MS));
    if (comes && batch.attempt < ATTEMPTS_MAX) return commit({ ...batch, attempt: batch.attempt + 1 });
    log.error({ error: error.message }, 'no event is taken in');
    for (const item of batch.items) item.settle(refusal('error', 'this relay lacks the key of the erased'));
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
      await ensurePartitions(await openSession(), options.now());
    } catch (error) {
      log.error({ error: String(error) }, 'partitions could not be made');
    }
  };

  const inTurn = <T>(work: () => Promise<T>): Promise<T> =>
    new Promise((resolve, reject) => {
      if (closing || jobs.length >= JOBS_WAITING_MAX)
        return reject(new NoAnswer('the lane takes no more jobs now'));
      const fail = (error: unknown): void => {
        giveUpJobs(error);
        reject(error);
      };
      jobs.push({ run: () => work().then(resolve, fail), giveUp: reject });
      start();
    });

  return {
    get depth() {
      return queue.size;
    },
    submit: (submission) =>
      new Promise((settle) => {
        const { community } = submission;
        if (closing) return settle(refusal('error', 'the relay is shutting down'));
        if (!queue.add({ community, bytes: weightOf(submission), submission, settle })) {
          return settle(refusal('rate-limited', 'the relay is busy, try again in a moment'));
        }
        metrics.laneDepth.set(queue.size);
        start();
      }),
    hide: (work) => inTurn(() => hide(work)),
    mark: (work) => inTurn(() => mark(work)),
    restore: (work) => inTurn(() => restore('select' in work ? work : unnoted(work))),
    close: async () => {
      closing = true;
      await running;
      await dropSession();
    },
  };
}

/** Seconds, as a reply tells them; null for what no date can tell. */
function upTo(seconds: number | undefined): string | null | undefined {
  if (seconds === undefined) return undefined;
  return seconds > LAST_SECOND ? null : `${new Date(seconds * 1_000).toISOString().slice(0, -5)}Z`;
}
const LAST_SECOND = 8_640_000_000_000;

const unnoted = (refs: readonly EventRef[]): RestoringWork => ({
  select: async () => refs,
  note: async () => undefined,
});

function connectSession(database: Database): Promise<Client> {
  return database.connect({
    lockTimeoutMs: LOCK_TIMEOUT_MS,
    statementTimeoutMs: STATEMENT_TIMEOUT_MS,
    idleInTransactionTimeoutMs: IDLE_TIMEOUT_MS,
    indexWalks: true,
    pipelined: true,
  });
}

const BEGIN_LOCKED = `BEGIN ISOLATION LEVEL READ COMMITTED; SELECT pg_advisory_xact_lock(${LANE_LOCK})`;

async function transactHiding(session: Client, work: HidingWork, options: LaneOptions): Promise<Plan> {
  const now = options.now();
  await session.query(BEGIN_LOCKED);
  const rows = await work.select(session, now);
  const plan = planHiding(rows, work.hidden, work.purge, await readHead(session), now);
  await writeAndCommit(session, plan, now, options, { isUnknown: false });
  return plan;
}

async function transactRestore(
  session: Client,
  work: RestoringWork,
  options: LaneOptions,
): Promise<{ plan: Plan; restored: Restored[] }> {
  const now = options.now();
  await session.query(BEGIN_LOCKED);
  const refs = await work.select(session, now);
  const removed = await readRemoved(session, refs);
  const found = [...removed.values()];
  const submissions = found.map(({ submission }) => submission);
  const facts = await readFacts(session, submissions, { ...options, now });
  const known = new Map([...facts.known].filter(([, state]) => state !== 'removed'));
  const isPast = (one: RemovedEvent) =>
    isPastRetention(one, facts.retention!.get(one.submission.community)!, now);
  const young = found.filter((one) => !isPast(one));
  const plan = planBatch(
    young.map(({ submission }) => submission),
    { ...facts, known },
    now,
  );
  await dropRemoved(
    session,
    young.filter((_, place) => plan.decisions[place] === 'stored'),
  );
  const keyOf = ({ submission: { community, event } }: RemovedEvent) => factKey(community, event.id);
  const outcomes = new Map<string, Restored>(found.map((one) => [keyOf(one), 'gone']));
  young.forEach((one, place) => {
    outcomes.set(keyOf(one), plan.decisions[place]!);
  });
  const restored = refs.map(({ community, id }) => outcomes.get(factKey(community, id)) ?? 'unknown');
  await work.note(session, restored, now);
  await writeAndCommit(session, plan, now, options, { isUnknown: false });
  return { plan, restored };
}

/** What a sweep would have taken meanwhile does not come back. */
function isPastRetention(
  { submission: { event }, row }: RemovedEvent,
  retention: Retention,
  now: number,
): boolean {
  return ages(event.kind) && row.ingestedAt < eventSince(retention, topicsOf(event), now);
}

/** The statements of a batch go out in two bundles: what is to be known, and what is to be written with its COMMIT. */
async function transact(
  session: Client,
  items: readonly Item[],
  options: LaneOptions,
  fate: Fate,
): Promise<Plan> {
  const submissions = items.map((item) => item.submission);
  const now = options.now();
  const [, facts] = await Promise.all([
    session.query(BEGIN_LOCKED),
    readFacts(session, submissions, { ...options, now }),
  ]);
  const plan = planBatch(submissions, facts, now);
  await writeAndCommit(session, plan, now, options, fate);
  return plan;
}

/** Whether a COMMIT was sent, and its answer did not come: then what it was for may be stored. */
interface Fate {
  isUnknown: boolean;
  /** The transaction holds more than the plan tells. */
  readonly isDurable?: true;
}

async function writeAndCommit(
  session: Client,
  plan: Plan,
  now: number,
  { tagHash }: LaneOptions,
  fate: Fate,
): Promise<void> {
  const wasUnknown = fate.isUnknown;
  let committed: Promise<unknown> = Promise.resolve();
  const written = writePlan(session, plan, { now, tagHash }, () => {
    fate.isUnknown = true;
    committed = session.query(commitOf(plan, fate));
    committed.catch(() => undefined);
  });
  try {
    await written;
    await committed;
  } catch (error) {
    // That COMMIT was answered, and refused: the transaction had failed before it, or a constraint that waits
    // for it did.
    const refused = await committed.then(
      () => false,
      ({ code }: { code?: string }) => code === FAILED_TRANSACTION || isDataError(code),
    );
    if (refused) fate.isUnknown = wasUnknown;
    throw error;
  }
}

/** Ephemeral events are not kept, so their commit need not wait for the disk. All others do, whatever the server's default. */
function commitOf(
  { outbox, rows, heads, tombstones, appliedTombstones, hidden, vanishMarks }: Plan,
  { isDurable }: Fate,
): string {
  const written = [outbox, rows, heads, tombstones, appliedTombstones, hidden, vanishMarks];
  const durable = isDurable ?? written.some(({ length }) => length > 0);
  return `SET LOCAL synchronous_commit = ${durable ? 'on' : 'off'}; COMMIT`;
}

/** A batch is bounded by it, so that one of deletions does not bring thousands of large events into memory. */
function weightOf({ event, payload }: Submission): number {
  return payload.length + (event.kind === KIND_DELETION ? event.tags.length * TARGET_BYTES : 0);
}

/** The event's own data was refused (22: data, 23: constraint, 54: limits), so trying again would not help. */
function isDataError(code: string | undefined): boolean {
  return code !== undefined && /^(22|23|54)/.test(code);
}
