/**
 * The lane: the one write path. Events from sockets, import and jobs wait in one bounded queue, and are
 * written in groups, one durable transaction each, under one advisory lock. So there is one commit for many
 * events (I1), no race between two writers on any instance (I3, I4), and outbox order is commit order (I8).
 *
 *   submit → queue (queue.ts) → batch (batches.ts) → transaction (transactions.ts) → OK
 *   hide, sweep, restore, mark → between two batches (works.ts)
 */
import type { SubjectKey } from '../../../keys/subject-key.js';
import { isNoAnswer, NoAnswer } from '../../../limits/in-time.js';
import type { Log } from '../../../node/log.js';
import type { Metrics } from '../../../node/metrics.js';
import type { Database } from '../../../postgres/database.js';
import { KIND_DELETION } from '../../rules/classify.js';
import type { Submission } from '../../rules/facts.js';
import { BUSY, refusal } from '../../rules/reply.js';
import type { BatchWrites } from '../../rules/writes.js';
import type { EventWrites } from '../../store.js';
import type { TagHash } from '../tag-hash.js';
import { Batches, type Item } from './batches.js';
import type { JudgingOptions } from './judged.js';
import { LaneQueue } from './queue.js';
import { LaneSession, type SessionOptions } from './session.js';
import { Works } from './works.js';

const BATCH_EVENTS_MAX = 500;
/** 500 ordinary events have half of it. */
const BATCH_BYTES_MAX = 1_048_576;
/**
 * Writing one tag row takes about 8 µs. A batch of 143,000 tags blocked everybody for more than a second. A
 * batch of this many takes about as long as 500 ordinary events.
 */
const BATCH_TAGS_MAX = 2_000;
/** What each target adds to the size of a deletion request, because the target's event is read too. */
const TARGET_BYTES = 2_048;
const JOBS_WAITING_MAX = 16;

export interface LaneOptions extends Omit<JudgingOptions, 'subjectKey'> {
  readonly database: Database;
  readonly tagHash: TagHash;
  readonly metrics: Metrics;
  readonly log: Log;
  readonly subjectKey?: SubjectKey;
  /** Called after the commit and before the clients get their replies. */
  readonly onCommit?: ((writes: BatchWrites) => void) | undefined;
  readonly onSession?: SessionOptions['onSession'];
}

export interface Lane extends Pick<EventWrites, 'depth' | 'submit' | 'hide' | 'sweep' | 'restore' | 'mark'> {
  readonly deletePage: Works['deletePage'];
  /** Accepts nothing more and finishes what waits. */
  close(): Promise<void>;
}

interface Waiting {
  readonly run: () => Promise<void>;
  readonly giveUp: (why: unknown) => void;
}

export function startLane(options: LaneOptions): Lane {
  const { metrics } = options;
  const queue = new LaneQueue<Item>();
  const jobs: Waiting[] = [];
  const session = new LaneSession(options);
  let running: Promise<void> | undefined;
  /** Starts the lane again when heavy events have rested. */
  let resting: NodeJS.Timeout | undefined;
  let closing = false;

  /**
   * When the database does not answer one job, the jobs behind it would each wait as long (I15). So they fail
   * too.
   */
  const giveUpJobs = (why: unknown): void => {
    if (isNoAnswer(why)) for (const { giveUp } of jobs.splice(0)) giveUp(why);
  };

  const batches = new Batches({
    ...options,
    session,
    isClosing: () => closing,
    giveUp: (why) => {
      giveUpJobs(why);
      return queue.takeAll();
    },
  });
  const works = new Works({ ...options, session });

  const drain = async (): Promise<void> => {
    while (queue.size > 0 || jobs.length > 0) {
      if (closing) queue.endRest();
      const items = queue.take(BATCH_EVENTS_MAX, BATCH_BYTES_MAX, BATCH_TAGS_MAX);
      if (items.length > 0) {
        const begunMs = performance.now();
        await batches.write(items);
        queue.noteWritten(performance.now() - begunMs);
      } else if (jobs.length === 0) {
        resting = setTimeout(start, queue.restMs);
        break;
      }
      metrics.laneDepth.set(queue.size);
      await jobs.shift()?.run();
    }
    running = undefined;
  };

  const start = (): void => {
    clearTimeout(resting);
    running ??= Promise.resolve().then(drain);
  };

  /** Runs work between two batches, in the order of arrival. */
  const betweenBatches = <T>(work: () => Promise<T>): Promise<T> =>
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
    submit: (submission, from) =>
      new Promise((settle) => {
        const { community, event } = submission;
        if (closing) return settle(refusal('error', 'the relay is shutting down'));
        const [bytes, tags] = [bytesOf(submission), event.tags.length];
        if (!queue.add({ community, from, bytes, tags, submission, settle })) return settle(BUSY);
        metrics.laneDepth.set(queue.size);
        metrics.figures.noteLane(queue.size);
        start();
      }),
    hide: (hiding) => betweenBatches(() => works.hide(hiding)),
    sweep: (step) => betweenBatches(() => works.sweep(step)),
    deletePage: (...page) => betweenBatches(() => works.deletePage(...page)),
    restore: (which) => betweenBatches(() => works.restore(which)),
    mark: (work) => betweenBatches(() => works.mark(work)),
    close: async () => {
      closing = true;
      if (queue.size > 0) start();
      await running;
      await session.drop();
    },
  };
}

/** The size that bounds a batch: a batch of deletions must not read thousands of large events into memory. */
function bytesOf({ event, payload }: Submission): number {
  return payload.length + (event.kind === KIND_DELETION ? event.tags.length * TARGET_BYTES : 0);
}
