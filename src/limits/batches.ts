/**
 * Questions to the database that many clients ask at once. One statement runs at a time, for all questions
 * that wait and fit together. So a flood of new clients costs the database as little as a few busy ones.
 */
import { isNoAnswer } from './in-time.js';

const BATCH_MAX = 500;
const WAITING_MAX = 10_000;

interface Waiting<Q, A> {
  readonly question: Q;
  readonly resolve: (answer: A) => void;
  readonly reject: (error: unknown) => void;
}

export interface BatchOptions<Q, A> {
  /** For the error when too many wait. */
  readonly what: string;
  /** Answers questions with different keys, by key, in one statement. */
  readonly answer: (questions: readonly Q[]) => Promise<ReadonlyMap<string, A>>;
  /** Whether a question can be answered together with the first one. */
  readonly fits?: (first: Q, other: Q) => boolean;
}

export class Batches<Q extends { readonly key: string }, A> {
  private waiting: Waiting<Q, A>[] = [];
  private working: Promise<void> | undefined;

  constructor(private readonly options: BatchOptions<Q, A>) {}

  ask(question: Q): Promise<A> {
    if (this.waiting.length >= WAITING_MAX)
      return Promise.reject(new Error(`too many ${this.options.what} are waiting`));
    return new Promise((resolve, reject) => {
      this.waiting.push({ question, resolve, reject });
      this.working ??= this.work();
    });
  }

  async close(): Promise<void> {
    await this.working;
  }

  private async work(): Promise<void> {
    // Questions of the same pass of the event loop share a batch.
    await Promise.resolve();
    while (this.waiting.length > 0) await this.answer(this.nextBatch());
    this.working = undefined;
  }

  /** The questions that fit the first, in order. A second question about a key waits. */
  private nextBatch(): Waiting<Q, A>[] {
    const { fits = () => true } = this.options;
    const first = this.waiting[0]!.question;
    const batch = new Map<string, Waiting<Q, A>>();
    const later: Waiting<Q, A>[] = [];
    for (const one of this.waiting) {
      const { key } = one.question;
      if (batch.size < BATCH_MAX && !batch.has(key) && fits(first, one.question)) batch.set(key, one);
      else later.push(one);
    }
    this.waiting = later;
    return [...batch.values()];
  }

  private async answer(batch: readonly Waiting<Q, A>[]): Promise<void> {
    try {
      const answers = await this.options.answer(batch.map(({ question }) => question));
      for (const { question, resolve } of batch) resolve(answers.get(question.key)!);
    } catch (error) {
      // After a time-out all that wait fail too: they have waited long enough.
      const behind = isNoAnswer(error) ? this.waiting.splice(0) : [];
      for (const { reject } of [...batch, ...behind]) reject(error);
    }
  }
}
