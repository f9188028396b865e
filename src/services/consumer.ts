/**
 * What a consumer of the outbox is: a name, and what it makes of the next changes. Everything else (its turn, its number, failures,
 * rebuilding) is done for it in this folder, so that no consumer can forget a deletion (I8, I9).
 */
import type { Client, ClientBase } from 'pg';
import type { Change } from '../store/changes.js';

export interface Consumer {
  readonly name: string;
  /** What it keeps, for the operator. */
  readonly about: string;
  /**
   * Applies the changes, in their order, to one of its generations. Runs in the transaction that saves the number, so it has no
   * effect outside `tx`; the same change may come again, and then changes nothing. An upsert without its event is no longer
   * effective: a later change says why. A delete of what it does not hold is nothing. A batch comes in slices of at most 100.
   */
  apply(batch: readonly Change[], tx: ClientBase, generation: number): Promise<void>;
  /**
   * What follows from what was applied and cannot be done in its transaction, such as what has to go through the lane. Called by the
   * one whose turn it is, between batches, also when nothing new came, and again at once while it says that more is left. It may be
   * cut off anywhere and done again, so doing it twice changes nothing.
   */
  followUp?(): Promise<boolean>;
  /**
   * Makes an empty room for a generation, whatever is left there, and remembers by which rules it is made. In the transaction from
   * which it is built, so that nobody who was taken over can empty it later.
   */
  open?(tx: ClientBase, generation: number): Promise<void>;
  /** Takes a generation away, whatever of it is there. Only of one that was replaced, whose number never comes again. */
  drop?(client: Client, generation: number): Promise<void>;
  /** Why what it holds does not follow from today's rules any more; then it is rebuilt. In a transaction of the holder. */
  outdated?(tx: ClientBase, generation: number): Promise<string | undefined>;
}
