/**
 * Matches long texts with patterns in a thread, so that no match delays the event loop (I18). The thread is
 * started with the first question. Questions wait in the line of their sender, and lines are served round
 * robin. One question is asked at a time, with a deadline (I15); a thread that does not answer is ended, and
 * the next question starts another. I16: without a reply there is an error, and the event is not stored.
 */
import { Worker } from 'node:worker_threads';
import { NoAnswer } from '../../limits/in-time.js';
import { FairQueue, type Weighed } from '../../limits/rules-fair-queue.js';
import { inTimeSlices } from '../../limits/time-slices.js';
import type { PatternQuestion, Stepwise } from '../rules-texts.js';

/** A match takes up to 37 ms. The first one also waits for the start of the thread. */
const REPLY_MS_MAX = 10_000;
/** I14: of all senders, and of one network, address or author. */
const QUESTIONS_MAX = 10_000;
export const SENDER_QUESTIONS_MAX = 250;
/** The line of jobs and of operators. */
const NODE: readonly string[] = [''];

/** In tests the sources use the built worker, because a thread does not go through the test runner. */
const WORKER_FILE = new URL(
  import.meta.url.endsWith('.ts') ? '../../../dist/moderation/patterns/worker.js' : './worker.js',
  import.meta.url,
);

interface Asked extends Weighed {
  readonly question: PatternQuestion;
  readonly resolve: (reply: boolean) => void;
  readonly reject: (reason: Error) => void;
}

export class PatternThread {
  private worker: Worker | undefined;
  private readonly waiting = new FairQueue<Asked>();
  /** The thread works on it. */
  private inHand: Asked | undefined;
  private deadline: NodeJS.Timeout | undefined;

  constructor(
    private readonly file: URL = WORKER_FILE,
    private readonly replyMsMax = REPLY_MS_MAX,
  ) {}

  /** `line`: where it waits, the widest part first, which is the community. */
  ask(question: PatternQuestion, line: readonly string[] = NODE): Promise<boolean> {
    return new Promise((resolve, reject) => {
      if (!this.hasRoom(line)) return reject(new Error('too many texts wait for the patterns of rules'));
      const bytes = question.texts.reduce((sum, text) => sum + text.length, 0);
      this.waiting.add({ question, bytes, resolve, reject }, line);
      if (this.inHand === undefined) this.send();
    });
  }

  private hasRoom([community, ...sender]: readonly string[]): boolean {
    if (this.waiting.size >= QUESTIONS_MAX) return false;
    let line = this.waiting.find(community!);
    for (const key of sender) {
      line = line?.find(key);
      if ((line?.size ?? 0) >= SENDER_QUESTIONS_MAX) return false;
    }
    return true;
  }

  private send(): void {
    clearTimeout(this.deadline);
    this.inHand = this.waiting.size > 0 ? this.waiting.take() : undefined;
    if (this.inHand === undefined) {
      // The process may end while nothing is asked.
      this.worker?.unref();
      return;
    }
    const worker = this.worker ?? this.start();
    this.worker = worker;
    worker.ref();
    worker.postMessage(this.inHand.question);
    this.deadline = setTimeout(() => {
      this.end(worker, new NoAnswer('the thread of moderation patterns does not answer'));
      void worker.terminate();
    }, this.replyMsMax);
  }

  private start(): Worker {
    const worker = new Worker(this.file);
    worker
      .on('message', (reply: boolean) => {
        if (worker !== this.worker) return;
        this.inHand?.resolve(reply);
        this.send();
      })
      .on('error', (error) => this.end(worker, error))
      .on('exit', () => this.end(worker, new Error('the thread of moderation patterns has ended')));
    return worker;
  }

  /** The question in hand fails; another thread gets the others. */
  private end(worker: Worker, why: unknown): void {
    if (worker !== this.worker) return;
    this.worker = undefined;
    this.inHand?.reject(why instanceof Error ? why : new Error(String(why)));
    this.send();
  }
}

const thread = new PatternThread();

/** Runs a computation in time slices, and its long matches in the thread. */
export function inSteps<T>(work: Stepwise<T>, line?: readonly string[]): Promise<T> {
  return inTimeSlices(work, (question) => thread.ask(question, line));
}
