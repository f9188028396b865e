/**
 * Writes batches of events and settles each event exactly once (I2). Every failure of a batch ends in
 * `recover`: the batch is split or retried, or the clients get an error.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { type SubjectKey, SubjectKeyMissing } from '../../../keys/subject-key.js';
import { isNoAnswer } from '../../../limits/in-time.js';
import type { Log } from '../../../node/log.js';
import type { Metrics } from '../../../node/metrics.js';
import { errorCode, isOutageCode, SQLSTATE } from '../../../postgres/rules-error-code.js';
import type { Submission } from '../../rules/facts.js';
import { type Outcome, outcomeOf, type Refusal, refusal } from '../../rules/reply.js';
import type { BatchWrites } from '../../rules/writes.js';
import type { Queued } from './queue.js';
import type { LaneSession } from './session.js';
import { type Fate, isDataError, type TransactionOptions, transactBatch } from './transactions.js';

/** Long enough for PostgreSQL to recover from a crash. After that the clients get an error. */
const TRYING_MS_MAX = 30_000;
const ATTEMPTS_MAX = 20;
const RETRY_MS_MAX = 2_000;
/** Another instance shares the key within one or two polls. */
export const KEY_WAIT_MS = 3_000;

export interface Item extends Queued {
  readonly submission: Submission;
  readonly settle: (outcome: Outcome | Refusal) => void;
}

interface Batch {
  readonly items: readonly Item[];
  readonly attempt: number;
  /** By a clock that does not jump: after it the clients get an error. */
  readonly deadline: number;
  /** An earlier attempt sent its COMMIT, so its events may be stored. */
  readonly commitSent: boolean;
  /** Events that the earlier attempts would have stored out of view. */
  readonly held?: ReadonlySet<Submission> | undefined;
}

export interface BatchOptions extends TransactionOptions {
  readonly session: LaneSession;
  readonly metrics: Metrics;
  readonly log: Log;
  readonly subjectKey?: SubjectKey;
  readonly onCommit?: ((writes: BatchWrites) => void) | undefined;
  /** The lane accepts nothing more. */
  readonly isClosing: () => boolean;
  /**
   * Called when retries have failed: gives up everything behind the batch, and returns the events among it.
   */
  readonly giveUp: (why: unknown) => readonly Item[];
}

export class Batches {
  /** The last batch was given up. Until a batch succeeds, each batch is tried only once. */
  private hopeless = false;

  constructor(private readonly options: BatchOptions) {}

  write(items: readonly Item[]): Promise<void> {
    return this.commit({ items, attempt: 1, deadline: performance.now() + TRYING_MS_MAX, commitSent: false });
  }

  private async commit(batch: Batch): Promise<void> {
    const { session, metrics, onCommit } = this.options;
    const done = metrics.laneCommit.startTimer();
    const { items, commitSent, held } = batch;
    const submissions = items.map((item) => item.submission);
    const fate: Fate = { isUnknown: commitSent, held };
    try {
      const writes = await session.run((client) => transactBatch(client, submissions, this.options, fate));
      this.hopeless = false;
      done();
      metrics.laneBatch.observe(items.length);
      metrics.hidden.inc({ reason: 'removed' }, writes.held.length);
      onCommit?.(writes);
      items.forEach((item, place) => {
        const decision = writes.decisions[place]!;
        // After a COMMIT of unknown fate the next attempt may find what it committed: that is `stored`, not a
        // duplicate.
        const outcome = outcomeOf(decision, upTo(writes.erasedUntil?.get(item.submission)));
        const isThere = decision === 'duplicate' || (decision === 'removed' && held?.has(item.submission));
        item.settle(commitSent && isThere ? 'stored' : outcome);
      });
    } catch (error) {
      if (fate.isUnknown) this.hopeless = false;
      await this.recover({ ...batch, commitSent: fate.isUnknown, held: fate.held }, error);
    }
  }

  private async recover(batch: Batch, error: unknown): Promise<void> {
    const { session, metrics, log, isClosing, giveUp } = this.options;
    const { items, attempt, deadline } = batch;
    const first = session.causeOf(error);
    const code = errorCode(first);
    log.warn({ code, events: items.length, attempt, error: String(first) }, 'a batch failed');
    metrics.laneRetries.inc();
    if (error instanceof SubjectKeyMissing) return this.withoutKey(batch, error);
    if (isDataError(code) || (code === SQLSTATE.queryCanceled && items.length > 1)) return this.split(batch);
    // Neither bad data nor an outage, for example a prepared statement that a migration has changed: retry
    // once on a new session, then split.
    if (!isNoAnswer(error) && !isOutageCode(code))
      return attempt === 1 ? this.commit({ ...batch, attempt: 2 }) : this.split(batch);
    const isLast = this.hopeless || (isClosing() && attempt > 1) || attempt >= ATTEMPTS_MAX;
    if (isLast || performance.now() > deadline) {
      this.hopeless = true;
      // Everything behind it would wait for the same outage, so these batches are not tried one by one.
      for (const item of [...items, ...giveUp(error)]) item.settle(FAILED);
      return;
    }
    await delay(Math.min(RETRY_MS_MAX, 25 * 2 ** attempt));
    return this.commit({ ...batch, attempt: attempt + 1 });
  }

  /**
   * The first erasure, perhaps on another instance, creates the key, and that instance shares it. Without the
   * key no event is accepted.
   */
  private async withoutKey(batch: Batch, error: SubjectKeyMissing): Promise<void> {
    const { log, subjectKey, isClosing } = this.options;
    const arrives = !isClosing() && (await subjectKey?.awaited(error.fingerprint, KEY_WAIT_MS));
    if (arrives && batch.attempt < ATTEMPTS_MAX) return this.commit({ ...batch, attempt: batch.attempt + 1 });
    log.error({ error: error.message }, 'events are refused: the key of erased members is missing');
    for (const item of batch.items) item.settle(KEY_MISSING);
  }

  /**
   * Splits a batch that fails on one event's data until that event is alone. It is refused, and the others
   * are stored.
   */
  private async split(batch: Batch): Promise<void> {
    const { items } = batch;
    if (items.length === 1) {
      items[0]!.settle(FAILED);
      return;
    }
    const half = Math.ceil(items.length / 2);
    await this.commit({ ...batch, items: items.slice(0, half) });
    await this.commit({ ...batch, items: items.slice(half) });
  }
}

const FAILED = refusal('error', 'failed to store event');
const KEY_MISSING = refusal('error', 'this relay lacks the key of erased members, try again later');

/** Seconds as text for a reply; null for a time that no date can express. */
function upTo(seconds: number | undefined): string | null | undefined {
  if (seconds === undefined) return undefined;
  return seconds > LAST_SECOND ? null : `${new Date(seconds * 1_000).toISOString().slice(0, -5)}Z`;
}
const LAST_SECOND = 8_640_000_000_000;
