/** One store, and how everything of a subject is counted in it and deleted from it. */
import type { Subject } from '../core/erasure.js';

/**
 * Called after each batch with how many rows went in it. It may reject: the erasure is to stop here, and the deleter lets the
 * rejection through. Whatever was deleted stays deleted; the next call goes on with the rest.
 */
export type Progress = (deleted: number) => Promise<void>;

/** Rows that stay for a time because a rule of the community says so. */
export interface Kept {
  readonly rows: number;
  /** In milliseconds: the last of them goes then. */
  readonly until: number;
  readonly why: string;
}

export interface Deleter {
  /** `postgres:members`, `redis:sessions`, `dynamodb:audit_logs`, `files:keys`. */
  readonly name: string;
  /** Tables, prefixes of keys or folders that it answers for. */
  readonly holds: readonly string[];
  /** What of the subject is there. Rejects when the store does not answer: unknown is not zero. */
  count(subject: Subject): Promise<number>;
  /** In batches, until nothing of the subject is left that is not kept. Doing it again is harmless. Returns how many rows went. */
  delete(subject: Subject, progress: Progress): Promise<number>;
  /** Whose keys are there at all, in portions; where the store has its own way of naming people. */
  people?(community: number): AsyncIterable<readonly string[]>;
  /** What `count` leaves out, and for how long. */
  kept?(subject: Subject): Promise<Kept | undefined>;
}

/** One batch after another until one finds nothing. */
export async function inBatches(batch: () => Promise<number>, progress: Progress): Promise<number> {
  let deleted = 0;
  for (;;) {
    const taken = await batch();
    if (taken === 0) return deleted;
    deleted += taken;
    await progress(taken);
  }
}
