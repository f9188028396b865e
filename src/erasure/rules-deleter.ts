/** One store, and how everything of a subject is counted in it and deleted from it. */
import type { Subject } from './rules.js';

/**
 * Called after each batch with the number of rows that it deleted. `beside`: rows of other stores that the
 * same batch deleted. It may reject: the erasure is to stop here, and the deleter lets the rejection through.
 * Whatever was deleted stays deleted; the next call continues with the rest.
 */
export type Progress = (deleted: number, beside?: Readonly<Record<string, number>>) => Promise<void>;

/** Rows that stay for some time because of a setting of the community. */
export interface Kept {
  readonly rows: number;
  /** In milliseconds: when the last of them is deleted. */
  readonly until: number;
  readonly why: string;
}

export interface Deleter {
  /** `postgres:members`, `redis:sessions`, `dynamodb:audit_logs`, `files:keys`. */
  readonly name: string;
  /** Tables, key prefixes or folders that it is responsible for. */
  readonly holds: readonly string[];
  /** Others depend on it: the stores after it wait for it, although it is outside PostgreSQL. */
  readonly isAwaited?: boolean;
  /** How many rows of the subject are there. Rejects when the store does not answer: unknown is not 0. */
  count(subject: Subject): Promise<number>;
  /**
   * Deletes in batches until nothing of the subject is left except what is kept. It may be repeated. Returns
   * the number of deleted rows.
   */
  delete(subject: Subject, progress: Progress): Promise<number>;
  /** All public keys in the store, in portions; for stores that are not declared tables. */
  people?(community: number): AsyncIterable<readonly string[]>;
  /** Rows that `count` leaves out, and until when they are kept. */
  kept?(subject: Subject): Promise<Kept | undefined>;
}
