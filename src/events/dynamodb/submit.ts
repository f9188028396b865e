/**
 * Stores events: facts → decide → transaction, one event at a time, many at once. Any number of instances
 * write at the same time. A conflict is retried with new facts, a bounded number of times; then, and while
 * DynamoDB throttles or does not answer, the client gets `error:` (I2).
 */
import { setTimeout as delay } from 'node:timers/promises';
import type { Pool } from 'pg';
import { isDenial } from '../../api/rules-errors.js';
import { type SubjectKey, SubjectKeyMissing } from '../../keys/subject-key.js';
import { isNoAnswer } from '../../limits/in-time.js';
import type { JudgedBatch, OnArrival } from '../../moderation/arrival/on-arrival.js';
import type { Log } from '../../node/log.js';
import { BEGIN_BRIEFLY, inTransaction } from '../../postgres/transaction.js';
import { writeVanishMarks } from '../postgres/batch.js';
import type { TagHash } from '../postgres/tag-hash.js';
import { decideBatch } from '../rules/batch/batch.js';
import { KIND_DELETION, KIND_VANISH } from '../rules/classify.js';
import type { Submission } from '../rules/facts.js';
import { type Outcome, outcomeOf, type Refusal, refusal } from '../rules/reply.js';
import type { BatchWrites, VanishMark } from '../rules/writes.js';
import { Conflict, type Dynamodb, DynamodbFailure } from './client.js';
import {
  type Attempts,
  type CommitOf,
  commitHead,
  commitRow,
  hasRoom,
  OWNERS_MAX,
  tidyingOf,
} from './commit.js';
import { submitDeletion } from './deletion.js';
import { type FactOptions, type Read, readFacts } from './facts.js';
import { PAYLOAD_BYTES_MAX } from './items.js';
import type { KnownPeople } from './known-people.js';
import { writeMark } from './marks.js';
import type { RecentWrites } from './read/recent-writes.js';

/** Attempts after conflicts with other writers, with random delays up to this. */
const CONFLICTS_MAX = 12;
const CONFLICT_MS_MAX = 400;
/** Attempts after DynamoDB has failed or has not answered. */
const FAILURES_MAX = 3;

export interface SubmitOptions extends FactOptions {
  readonly db: Dynamodb;
  /** The control plane. */
  readonly pool: Pool;
  readonly subjectKey?: SubjectKey | undefined;
  readonly onArrival?: OnArrival | undefined;
  readonly tagHash: TagHash;
  readonly now: () => number;
  readonly log: Log;
  readonly recent: RecentWrites;
  readonly people: KnownPeople;
  /** Sends an ephemeral event to all instances. False when they have it already. */
  readonly broadcast: (submission: Submission, now: number) => Promise<boolean>;
  readonly onGone?: ((community: number, id: string) => void) | undefined;
  readonly onMark?: (() => void) | undefined;
  /** Counts removals that failed and are left to a job. */
  readonly onRemovalsLeft?: ((count: number) => void) | undefined;
}

export const FAILED = refusal('error', 'failed to store event');
const CONTENDED = refusal('error', 'too many writers changed the same event, try again');
const KEY_MISSING = refusal('error', 'this relay lacks the key of erased members, try again later');
/** Another instance shares the key within one or two polls. */
const KEY_WAIT_MS = 3_000;
const TOO_LARGE = refusal('invalid', `too large: this relay stores at most ${PAYLOAD_BYTES_MAX} bytes`);
const TOO_MANY_OWNERS = refusal('invalid', `a gift wrap may have at most ${OWNERS_MAX - 1} recipients here`);

/** How long an event is tried. */
export interface Trying {
  /** By a clock that does not jump: no attempt begins after it. */
  readonly deadline: number;
  /** Nothing else gets an answer either, so one attempt without one is enough. */
  readonly isHopeless: () => boolean;
  /** Called when the event was decided, or met a conflict: there are answers. */
  readonly onDecided: () => void;
  /** Called when an attempt failed. */
  readonly onFailure: (error: unknown) => void;
}

export interface Submitted {
  readonly outcome: Outcome | Refusal;
  /** Deletes entries that nothing needs any more. It does not fail, and the client need not wait for it. */
  readonly tidy?: (() => Promise<void>) | undefined;
}

/** Throws the last NoAnswer when nothing has answered. The event may be stored nevertheless. */
export async function submitOne(
  options: SubmitOptions,
  submission: Submission,
  { deadline, isHopeless, onDecided, onFailure }: Trying,
): Promise<Submitted> {
  if (Buffer.byteLength(submission.payload) > PAYLOAD_BYTES_MAX) return { outcome: TOO_LARGE };
  if (!hasRoom(submission.event)) return { outcome: TOO_MANY_OWNERS };
  const attempts: Attempts = { written: [], after: [] };
  let failures = 0;
  for (let attempt = 1; attempt <= CONFLICTS_MAX; attempt += 1) {
    try {
      const { outcome } = await attemptOne(options, submission, attempts);
      onDecided();
      // After a lost answer the next attempt may find what the first one stored: that is not a duplicate.
      const isOurs = attempts.isUnknown && outcome === 'duplicate';
      return {
        outcome: isOurs ? 'stored' : outcome,
        tidy: tidyingOf(options.db, submission, attempts, outcome),
      };
    } catch (error) {
      if (error instanceof SubjectKeyMissing && attempt > 1) return { outcome: KEY_MISSING };
      if (error instanceof SubjectKeyMissing) {
        if (!(await options.subjectKey?.awaited(error.fingerprint, KEY_WAIT_MS)))
          return { outcome: KEY_MISSING };
      } else if (error instanceof Conflict) {
        onDecided();
      } else {
        if (!(error instanceof DynamodbFailure) && !isNoAnswer(error)) throw error;
        failures += 1;
        onFailure(error);
        const isLast = failures >= FAILURES_MAX || performance.now() >= deadline;
        if (isNoAnswer(error) && (isLast || isHopeless())) throw error;
        if (isLast) return { outcome: FAILED };
      }
      if (performance.now() >= deadline) return { outcome: FAILED };
      await delay(Math.random() * Math.min(CONFLICT_MS_MAX, 10 * 2 ** attempt));
    }
  }
  return { outcome: CONTENDED };
}

async function attemptOne(
  options: SubmitOptions,
  submission: Submission,
  attempts: Attempts,
): Promise<{ readonly outcome: Outcome | Refusal }> {
  const { db, now: clock, recent, people } = options;
  const { community, event } = submission;
  const judged = await options.onArrival?.judge([submission]);
  const now = clock();
  const read = await judgedFacts(options, await readFacts(db, submission, options, now), judged, now);
  if (event.kind === KIND_DELETION) return submitDeletion(options, { submission, read, now, attempts });
  const writes = decideBatch([submission], read.facts, now);
  const decision = writes.decisions[0]!;
  const settings = options.settingsOf(community);
  const commit = { writes, read, settings, now };
  if (decision === 'broadcast') {
    const isNew = await options.broadcast(submission, now);
    if (isNew) await writeRulings(options, commit);
    return { outcome: isNew ? 'broadcast' : 'duplicate' };
  }
  if (decision === 'deleted' && writes.heads.length > 0) await commitHead(db, { ...commit, attempts });
  const [row] = writes.rows;
  if (row !== undefined) {
    // Marks hide first: whatever is stored after them is refused, whatever was stored before is hidden.
    if (event.kind === KIND_VANISH) await writeMarksOf(options, writes.vanishMarks);
    await commitRow(db, { ...commit, row, attempts, people });
    for (const { id } of writes.hidden) options.onGone?.(community, id);
    if (row.hidden === undefined) recent.add(row, now);
  }
  await writeRulings(options, commit);
  return { outcome: replyOf(writes, submission) };
}

/** The control plane has a copy, because its own tables hide what they hold of a vanished member. */
async function writeMarksOf(
  { db, pool, tagHash, onMark }: SubmitOptions,
  marks: readonly VanishMark[],
): Promise<void> {
  for (const mark of marks) await writeMark(db, mark);
  await inTransaction(pool, BEGIN_BRIEFLY, async (tx) => {
    await writeVanishMarks(tx, { vanishMarks: marks }, tagHash);
    return true;
  });
  onMark?.();
}

// ── Moderation rules on arrival (I16) ──────────────────────────────────────────────────────────────────────

/**
 * The facts with what the rules say. If the rules have changed since the event was judged, it is judged
 * again. There is no lock here: the rules are those in force when the facts were read.
 */
export async function judgedFacts(
  { onArrival, pool }: SubmitOptions,
  read: Read,
  judged: JudgedBatch | undefined,
  now: number,
): Promise<Read> {
  if (onArrival === undefined || judged === undefined) return read;
  if (judged.version !== (read.facts.rulesVersion ?? 0)) {
    await onArrival.refresh();
    throw new Conflict([]);
  }
  if (judged.judgements.size === 0) return read;
  const arrival = await inTransaction(pool, BEGIN_BRIEFLY, async (tx) => ({
    facts: await onArrival.readFacts(tx, judged, now),
  }));
  if (isDenial(arrival)) throw new Error('the facts of rules were denied');
  return { ...read, facts: { ...read.facts, arrival: arrival.facts } };
}

/**
 * Stores a held event out of view, then its case. If the case cannot be written, the client gets an error and
 * the event stays out of view.
 */
export async function writeRulings(
  { onArrival, pool, db, people }: SubmitOptions,
  { writes, read, settings, now }: CommitOf,
): Promise<void> {
  if (writes.held.length + writes.counted.length === 0) return;
  const [held] = writes.held;
  const hold = async (): Promise<void> => {
    if (held === undefined) return;
    const { submission, keep, bound } = held;
    const row = {
      submission,
      keep,
      bound,
      seq: 0,
      ingestedAt: now,
      hidden: 'removed',
      purge: false,
    } as const;
    await commitRow(db, { writes: { ...writes, hidden: [], heads: [] }, read, settings, now, row, people });
  };
  await inTransaction(pool, BEGIN_BRIEFLY, async (tx) => {
    await onArrival?.write(tx, writes, now, hold);
    return true;
  });
}

export function replyOf(writes: BatchWrites, submission: Submission): Outcome | Refusal {
  return outcomeOf(writes.decisions[0]!, upTo(writes.erasedUntil?.get(submission)));
}

/** Seconds as text for a reply; null for a time that no date can express. */
function upTo(seconds: number | undefined): string | null | undefined {
  if (seconds === undefined) return undefined;
  return seconds > LAST_SECOND ? null : `${new Date(seconds * 1_000).toISOString().slice(0, -5)}Z`;
}
const LAST_SECOND = 8_640_000_000_000;
