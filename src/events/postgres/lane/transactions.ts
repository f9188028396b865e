/**
 * The transactions of the lane: BEGIN, lock → facts → decision → rows → COMMIT. Each uses one session and
 * runs once. Retries are elsewhere (batches.ts, works.ts).
 */
import type { Client } from 'pg';
import { readHead } from '../../../outbox/outbox.sql.js';
import { errorCode, SQLSTATE } from '../../../postgres/rules-error-code.js';
import { topicsOf } from '../../../topics/rules.js';
import { decideBatch } from '../../rules/batch/batch.js';
import { factKey, type PlacedEvent, type Submission } from '../../rules/facts.js';
import type { Announced } from '../../rules/hidden.js';
import { ages, eventSince, type Retention } from '../../rules/retention.js';
import { type BatchWrites, hidingWrites, markWrites } from '../../rules/writes.js';
import type { EventRef, Marking, Ordered, Restored } from '../../store.js';
import { writeBatch } from '../batch.js';
import { readFacts } from '../facts.js';
import { dropRemoved, type RemovedEvent, readRemoved } from '../restore.js';
import type { TagHash } from '../tag-hash.js';
import { beginJudged, type JudgingOptions } from './judged.js';
import { beginLocked, commit } from './lock.js';

export interface TransactionOptions extends JudgingOptions {
  readonly tagHash: TagHash;
}

/**
 * The fate of a transaction. `isUnknown`: a COMMIT was sent and its answer did not arrive, so the events may
 * be stored.
 */
export interface Fate {
  isUnknown: boolean;
  /** The transaction also writes rows that `BatchWrites` does not list. */
  readonly isDurable?: true;
  /** Events that it, or an earlier attempt, stores out of view. */
  held?: ReadonlySet<Submission> | undefined;
}

/** The statements of a batch are sent in two groups: the facts, then the rows with the COMMIT. */
export async function transactBatch(
  session: Client,
  submissions: readonly Submission[],
  options: TransactionOptions,
  fate: Fate,
): Promise<BatchWrites> {
  const { facts, now } = await beginJudged(session, submissions, options);
  const writes = decideBatch(submissions, facts, now);
  const { held, counted } = writes;
  if (held.length + counted.length > 0) {
    fate.held = new Set([...(fate.held ?? []), ...held.map(({ submission }) => submission)]);
    await options.onArrival?.write(session, writes, now);
  }
  await writeAndCommit(session, writes, now, options, fate);
  return writes;
}

/** Selects, under the lock, rows that leave the view. */
export interface HidingWork {
  readonly hidden: Announced;
  readonly purge: boolean;
  /** `taken`: `select` has deleted the rows. */
  readonly forget?: boolean | 'taken';
  select(session: Client, now: number): Promise<readonly PlacedEvent[]>;
}

export async function transactHiding(
  session: Client,
  work: HidingWork,
  options: TransactionOptions,
): Promise<BatchWrites> {
  const now = options.now();
  const [, lastSeq, rows] = await Promise.all([
    beginLocked(session),
    readHead(session),
    work.select(session, now),
  ]);
  const writes = hidingWrites(rows, work.hidden, work.purge, lastSeq, now, work.forget);
  await writeAndCommit(session, writes, now, options, { isUnknown: false });
  return writes;
}

export async function transactRestore(
  session: Client,
  which: readonly EventRef[] | Ordered<Restored>,
  options: TransactionOptions,
): Promise<{ writes: BatchWrites; restored: Restored[] }> {
  const now = options.now();
  await beginLocked(session);
  const refs = 'due' in which ? await which.due(session, now) : which;
  const removed = await readRemoved(session, refs);
  const found = [...removed.values()];
  const submissions = found.map(({ submission }) => submission);
  const facts = await readFacts(session, submissions, { ...options, now });
  const known = new Map([...facts.known].filter(([, state]) => state !== 'removed'));
  const isPast = (one: RemovedEvent) =>
    isPastRetention(one, facts.retention!.get(one.submission.community)!, now);
  const young = found.filter((one) => !isPast(one));
  const writes = decideBatch(
    young.map(({ submission }) => submission),
    { ...facts, known },
    now,
  );
  await dropRemoved(
    session,
    young.filter((_, place) => writes.decisions[place] === 'stored'),
  );
  const keyOf = ({ submission: { community, event } }: RemovedEvent) => factKey(community, event.id);
  const outcomes = new Map<string, Restored>(found.map((one) => [keyOf(one), 'gone']));
  young.forEach((one, place) => {
    outcomes.set(keyOf(one), writes.decisions[place]!);
  });
  const restored = refs.map(({ community, id }) => outcomes.get(factKey(community, id)) ?? 'unknown');
  if ('note' in which) await which.note(session, restored, now);
  await writeAndCommit(session, writes, now, options, { isUnknown: false });
  return { writes, restored };
}

/** An event that a sweep would have purged in the meantime is not restored. */
function isPastRetention(
  { submission: { event }, row }: RemovedEvent,
  retention: Retention,
  now: number,
): boolean {
  return ages(event.kind) && row.ingestedAt < eventSince(retention, topicsOf(event), now);
}

export async function transactMarks(
  session: Client,
  work: Marking,
  options: TransactionOptions,
): Promise<BatchWrites> {
  const now = options.now();
  await beginLocked(session);
  const marks = await work(session, now);
  const writes = markWrites(marks, await readHead(session));
  await writeAndCommit(session, writes, now, options, { isUnknown: false, isDurable: true });
  return writes;
}

async function writeAndCommit(
  session: Client,
  writes: BatchWrites,
  now: number,
  { tagHash }: TransactionOptions,
  fate: Fate,
): Promise<void> {
  const wasUnknown = fate.isUnknown;
  let committed: Promise<unknown> = Promise.resolve();
  const written = writeBatch(session, writes, { now, tagHash }, () => {
    fate.isUnknown = true;
    committed = commit(session, writes, fate.isDurable);
    committed.catch(() => undefined);
  });
  try {
    await written;
    await committed;
  } catch (error) {
    // The COMMIT was answered with an error: an earlier statement had failed, or a deferred constraint did.
    const refused = await committed.then(
      () => false,
      (answer) => errorCode(answer) === SQLSTATE.failedTransaction || isDataError(errorCode(answer)),
    );
    if (refused) fate.isUnknown = wasUnknown;
    throw error;
  }
}

/**
 * PostgreSQL refused the event's own data (22: data, 23: constraint, 54: limits), so a retry would not help.
 */
export function isDataError(code: string | undefined): boolean {
  return code !== undefined && /^(22|23|54)/.test(code);
}
