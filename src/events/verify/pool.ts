/**
 * Checks events' ids and signatures off the event loop, in worker threads.
 *
 *   verify ─► waiting ─► (≤ 64 jobs per message, ≤ 2 messages in flight per thread) ─► worker.ts ─► verdicts
 *                ▲                                                                       │
 *                └────────────────────── jobs of a thread that died ◄────────────────────┘
 *
 * Waiting jobs are taken fairly by sender and by weight: many or large events of one sender delay only that
 * sender (I18). I2: only a thread's explicit code resolves a job that waits, and 0 is not a code; every
 * failure rejects.
 * I14: messages, retries and restarts are bounded here. The caller bounds the waiting queue: it sees
 * `pending` and stops reading sockets, because it knows more about who should wait.
 */
import assert from 'node:assert';
import { availableParallelism } from 'node:os';
import { Worker } from 'node:worker_threads';
import { NoAnswer } from '../../limits/in-time.js';
import { FairQueue } from '../../limits/rules-fair-queue.js';
import { checkEvent } from './event-check.js';
import { loadSchnorr, type Schnorr, type SchnorrBackend } from './schnorr.js';

export interface VerifyJob {
  /** As `serializeEvent` writes it, for an event with a checked shape. */
  readonly payload: string;
  /** The line that it waits in, the widest part first; undefined for events of the operator. */
  readonly from?: readonly string[] | undefined;
}

export type Verdict = 'valid' | 'wrong-id' | 'wrong-signature';

/**
 * A thread answers with indexes of this list. 0 is no verdict, so an answer that was not filled in decides
 * nothing.
 */
export const VERDICTS: readonly (Verdict | undefined)[] = [undefined, 'valid', 'wrong-id', 'wrong-signature'];

export interface Verifier {
  readonly backend: SchnorrBackend;
  readonly workers: number;
  /** Jobs without a verdict yet. */
  readonly pending: number;
  verify(job: VerifyJob): Promise<Verdict>;
  /** Ends the threads; jobs without a verdict are rejected. */
  close(): Promise<void>;
}

export interface VerifierOptions {
  /** Default: all cores but one. */
  readonly workers?: number;
  /** Default: native where it works, else WASM. */
  readonly backend?: SchnorrBackend;
  /**
   * While nothing waits, a small event is checked at once, without a thread: for one event in flight the two
   * messages take 0.44 ms and the check 0.06 ms. Only with the native build.
   */
  readonly checksAtOnce?: boolean;
  /** The longest wait for a thread; ten seconds by default. */
  readonly answerMsMax?: number;
}

/** Resolves when every thread is ready. */
export async function startVerifier(options: VerifierOptions = {}): Promise<Verifier> {
  const workers = options.workers ?? Math.max(1, availableParallelism() - 1);
  const pool = await new Promise<VerifierPool>((resolve, reject) => {
    const starting: VerifierPool = new VerifierPool({ ...options, workers }, (failure) =>
      failure ? reject(failure) : resolve(starting),
    );
  });
  if (options.checksAtOnce && pool.backend === 'native') pool.checkAtOnceWith(await loadSchnorr('native'));
  return pool;
}

const BATCH_JOBS_MAX = 64;
/** The main thread copies each message. */
const BATCH_BYTES_MAX = 524_288;
/** Two, so that a thread never waits for the main thread between messages. */
const BATCHES_PER_THREAD_MAX = 2;
/** A check at once takes as long as its event is large. */
const AT_ONCE_BYTES_MAX = 8_192;
/** Threads had work in this time: then the event loop has other work than to check events. */
const CALM_MS = 10;
const START_MS_MAX = 60_000;
/** A message takes milliseconds. */
const ANSWER_MS_MAX = 10_000;
const DEATHS_PER_JOB_MAX = 2;
/** Deaths of threads without an answer in between. After that many, a new thread would not help. */
const DEATHS_IN_A_ROW_MAX = 8;

/**
 * In tests the sources use the built worker, because a thread does not go through the test runner's
 * transform.
 */
const WORKER_FILE = new URL(
  import.meta.url.endsWith('.ts') ? '../../../dist/events/verify/worker.js' : './worker.js',
  import.meta.url,
);

const OPERATOR: readonly string[] = [''];
const ALL = Number.POSITIVE_INFINITY;

interface Task {
  readonly job: VerifyJob;
  readonly bytes: number;
  readonly resolve: (verdict: Verdict) => void;
  readonly reject: (reason: Error) => void;
  /** Threads that died while they worked on this task. */
  deaths: number;
}

interface Thread {
  readonly worker: Worker;
  /**
   * Runs while an answer is expected. A thread that does not answer in time is ended, as if it had died
   * (I15).
   */
  deadline: NodeJS.Timeout;
  isReady: boolean;
  /** Sent and not answered, oldest first; the thread works on the first one. */
  readonly batches: Task[][];
}

class VerifierPool implements Verifier {
  backend: SchnorrBackend = 'wasm';
  readonly workers: number;
  readonly #prefer: SchnorrBackend | undefined;
  readonly #answerMsMax: number;
  readonly #onStart: (failure?: Error) => void;
  readonly #threads = new Set<Thread>();
  readonly #waiting = new FairQueue<Task>();
  /** Tasks of threads that died. Each is sent alone, so that a second death shows which task causes it. */
  readonly #suspects: Task[] = [];
  #isScheduled = false;
  #deathsInARow = 0;
  #atOnce: Schnorr | undefined;
  /** In this pass of the event loop an event was checked at once. */
  #hasChecked = false;
  #dispatchedMs = Number.NEGATIVE_INFINITY;
  #stopped: Error | undefined;

  constructor(
    { workers, backend, answerMsMax = ANSWER_MS_MAX }: VerifierOptions & { readonly workers: number },
    onStart: (failure?: Error) => void,
  ) {
    this.workers = workers;
    this.#prefer = backend;
    this.#answerMsMax = answerMsMax;
    this.#onStart = onStart;
    for (let started = 0; started < workers; started++) this.#startThread();
  }

  get pending(): number {
    let count = this.#waiting.size + this.#suspects.length;
    for (const thread of this.#threads) for (const batch of thread.batches) count += batch.length;
    return count;
  }

  checkAtOnceWith(schnorr: Schnorr): void {
    if (schnorr.backend === 'native') this.#atOnce = schnorr;
  }

  verify(job: VerifyJob): Promise<Verdict> {
    const atOnce = this.#checkAtOnce(job);
    if (atOnce !== undefined) return Promise.resolve(atOnce);
    return new Promise((resolve, reject) => {
      if (this.#stopped) return reject(this.#stopped);
      this.#wait({ job, bytes: job.payload.length, resolve, reject, deaths: 0 });
      this.#schedule();
    });
  }

  async close(): Promise<void> {
    await this.#stop(new Error('the verifier is closed'));
  }

  /** At most one event in a pass of the event loop. None while threads are busy: it would pass theirs. */
  #checkAtOnce({ payload }: VerifyJob): Verdict | undefined {
    if (this.#atOnce === undefined || this.#stopped || this.#hasChecked) return undefined;
    if (payload.length > AT_ONCE_BYTES_MAX || this.pending > 0) return undefined;
    if (performance.now() - this.#dispatchedMs < CALM_MS) return undefined;
    this.#hasChecked = true;
    setImmediate(() => {
      this.#hasChecked = false;
    });
    return checkEvent(this.#atOnce, payload);
  }

  /**
   * Jobs of one event loop iteration are sent together: a message costs the main thread 7 µs, a job in it 0.4
   * µs. A microtask instead would save a single job 8 µs of 125, and send one message per socket that was
   * read.
   */
  #schedule(): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    setImmediate(() => {
      this.#isScheduled = false;
      this.#dispatch();
    });
  }

  #dispatch(): void {
    const share = Math.min(BATCH_JOBS_MAX, Math.ceil(this.#waiting.size / this.workers));
    for (let thread = this.#idlest(); thread; thread = this.#idlest()) {
      const suspect = this.#suspects.shift();
      const batch = suspect ? [suspect] : this.#takeWaiting(share);
      if (batch.length === 0) return;
      if (thread.batches.length === 0) thread.deadline.refresh();
      this.#dispatchedMs = performance.now();
      thread.batches.push(batch);
      thread.worker.postMessage(batch.map(({ job }) => job.payload));
    }
  }

  #wait(task: Task): void {
    this.#waiting.add(task, task.job.from ?? OPERATOR);
  }

  #takeWaiting(tasksMax: number, bytesMax = BATCH_BYTES_MAX): Task[] {
    const taken: Task[] = [];
    let bytes = 0;
    while (this.#waiting.size > 0 && taken.length < tasksMax && bytes < bytesMax) {
      const task = this.#waiting.take();
      bytes += task.bytes;
      taken.push(task);
    }
    return taken;
  }

  #idlest(): Thread | undefined {
    let idlest: Thread | undefined;
    let fewest = BATCHES_PER_THREAD_MAX;
    for (const thread of this.#threads) {
      if (!thread.isReady || thread.batches.length >= fewest) continue;
      idlest = thread;
      fewest = thread.batches.length;
    }
    return idlest;
  }

  #startThread(): void {
    let cause: unknown;
    const giveUp = (): void => {
      if (thread.isReady && thread.batches.length === 0) return;
      cause = new NoAnswer('a verifier thread does not answer');
      void thread.worker.terminate();
    };
    const thread: Thread = {
      worker: new Worker(WORKER_FILE, { workerData: this.#prefer }),
      deadline: setTimeout(() => giveUp(), START_MS_MAX).unref(),
      isReady: false,
      batches: [],
    };
    this.#threads.add(thread);
    thread.worker
      .once('message', (backend: SchnorrBackend) => {
        clearTimeout(thread.deadline);
        thread.deadline = setTimeout(giveUp, this.#answerMsMax).unref();
        this.#onReady(thread, backend);
        thread.worker.on('message', (codes: Uint8Array) => this.#onAnswer(thread, codes));
      })
      .on('error', (error) => {
        cause = error;
      })
      .on('exit', () => this.#onDeath(thread, cause));
  }

  #onReady(thread: Thread, backend: SchnorrBackend): void {
    thread.isReady = true;
    this.backend = backend;
    if ([...this.#threads].every((each) => each.isReady)) this.#onStart();
    this.#dispatch();
  }

  #onAnswer(thread: Thread, codes: Uint8Array): void {
    if (this.#stopped) return;
    const batch = thread.batches.shift();
    thread.deadline.refresh();
    assert(batch?.length === codes.length, 'a thread answers each job of a message once');
    this.#deathsInARow = 0;
    this.#dispatch();
    for (const [at, task] of batch.entries()) {
      const verdict = VERDICTS[codes[at]!];
      if (verdict) task.resolve(verdict);
      else task.reject(new Error(`a verifier thread answered ${codes[at]}, which is no verdict`));
    }
  }

  /** All retries are here: requeues the jobs of the dead thread, and starts another thread in its place. */
  #onDeath(thread: Thread, cause: unknown): void {
    this.#threads.delete(thread);
    clearTimeout(thread.deadline);
    if (this.#stopped) return;
    const [inHand = [], ...untouched] = thread.batches;
    for (const task of inHand) {
      task.deaths++;
      if (task.deaths < DEATHS_PER_JOB_MAX) this.#suspects.push(task);
      else task.reject(new Error('verifying this event ended two threads', { cause }));
    }
    for (const task of untouched.flat()) {
      if (task.deaths > 0) this.#suspects.push(task);
      else this.#wait(task);
    }
    this.#deathsInARow++;
    if (this.#deathsInARow > DEATHS_IN_A_ROW_MAX) {
      void this.#stop(new Error('verifier threads keep dying', { cause }));
      return;
    }
    this.#startThread();
    this.#dispatch();
  }

  async #stop(reason: Error): Promise<void> {
    this.#stopped ??= reason;
    this.#onStart(this.#stopped);
    const left = [...this.#threads].flatMap((thread) => thread.batches.splice(0).flat());
    for (const task of [...left, ...this.#suspects.splice(0), ...this.#takeWaiting(ALL, ALL)])
      task.reject(reason);
    await Promise.all([...this.#threads].map((thread) => thread.worker.terminate()));
  }
}
