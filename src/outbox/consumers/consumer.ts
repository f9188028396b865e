/**
 * A consumer of the outbox is a name and a function that applies changes. This folder does everything else
 * for it (lease, offset, failures, rebuilds), so that no consumer can miss a deletion (I8, I9).
 */
import type { Client, ClientBase } from 'pg';
import type { Change } from '../changes.sql.js';

export interface Consumer {
  readonly name: string;
  /** What it keeps, for the operator. */
  readonly about: string;
  /**
   * The pause after a batch in which changes gather: the least time between two transactions at low load. 100
   * ms by default.
   */
  readonly gatherMs?: number;
  /**
   * Applies the changes, in order, to one generation. It runs in the transaction that saves the offset, and
   * must have no effect outside `tx`. It must be idempotent: a change may be applied again. An upsert without
   * its event is no longer effective; a later change says why. It ignores a delete of an event that it does
   * not have. A batch is passed in slices of at most 250.
   */
  apply(batch: readonly Change[], tx: ClientBase, generation: number): Promise<void>;
  /**
   * Does what follows from applied changes and cannot be done in their transaction, such as writes through
   * the lane. The holder of the lease calls it between batches, every 2.5 s without new changes, and again
   * at once while it returns true. It may be interrupted anywhere and repeated, so it must be idempotent.
   */
  followUp?(): Promise<boolean>;
  /**
   * Prepares an empty generation, deletes what an earlier try left, and stores the rules that it is built
   * with. It runs in the transaction that begins the rebuild, so that a former holder of the lease cannot
   * empty the generation later.
   */
  open?(tx: ClientBase, generation: number): Promise<void>;
  /**
   * Drops a generation that was replaced, even if only parts of it exist. Its number is never used again.
   */
  drop?(client: Client, generation: number): Promise<void>;
  /**
   * The reason why its data does not match the current rules; then it is rebuilt. Undefined if it matches.
   * Runs in a transaction of the holder of the lease.
   */
  outdated?(tx: ClientBase, generation: number): Promise<string | undefined>;
}
