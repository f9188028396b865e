/**
 * The deletion registry: one deleter per store, and nothing is forgotten (I12). What can be erased is erased: where one store fails,
 * the others go on, and the failure is told by the name of its store.
 */
import type { Subject } from '../core/erasure.js';
import type { Deleter, Kept } from './deleter.js';

/** By the name of the store; a store is in one of the two. */
export interface Collected<T> {
  readonly succeeded: ReadonlyMap<string, T>;
  readonly failed: ReadonlyMap<string, string>;
}

/** Thrown by `progress`: the erasure is to stop here and go on later. It is no failure of a store. */
export class Interrupted extends Error {}

export class DeletionRegistry {
  private readonly deleters = new Map<string, Deleter>();

  /** In the order in which they delete: children before their parents. */
  register(...deleters: readonly Deleter[]): this {
    for (const deleter of deleters) {
      if (this.deleters.has(deleter.name)) throw new Error(`two deleters are called ${deleter.name}`);
      this.deleters.set(deleter.name, deleter);
    }
    return this;
  }

  registeredNames(): string[] {
    return [...this.deleters.keys()];
  }

  /** Tables, prefixes of keys and folders that somebody answers for. */
  holds(): string[] {
    return [...this.deleters.values()].flatMap(({ holds }) => holds);
  }

  /** Those that name people in a way of their own. */
  people(): NonNullable<Deleter['people']>[] {
    return [...this.deleters.values()].flatMap((deleter) =>
      deleter.people === undefined ? [] : [(community: number) => deleter.people!(community)],
    );
  }

  /** In all of them, unless some are named. */
  countAll(subject: Subject, only?: ReadonlySet<string>): Promise<Collected<number>> {
    // A value of its own for each round: what one of them counts for all is counted anew.
    const round = { ...subject };
    return this.collect((deleter) => deleter.count(round), only);
  }

  keptAll(subject: Subject): Promise<Collected<Kept | undefined>> {
    return this.collect(async (deleter) => deleter.kept?.(subject));
  }

  /** `skip`: stores that this pass has been through already. `progress` hears of each batch, and of the end of each store. */
  deleteAll(
    subject: Subject,
    progress: (store: string, deleted: number, done: boolean) => Promise<void>,
    skip: ReadonlySet<string> = new Set(),
  ): Promise<Collected<number>> {
    return this.collect(async (deleter) => {
      if (skip.has(deleter.name)) return 0;
      const deleted = await deleter.delete(subject, (taken) => progress(deleter.name, taken, false));
      await progress(deleter.name, 0, true);
      return deleted;
    });
  }

  private async collect<T>(
    ask: (deleter: Deleter) => Promise<T>,
    only?: ReadonlySet<string>,
  ): Promise<Collected<T>> {
    const succeeded = new Map<string, T>();
    const failed = new Map<string, string>();
    for (const [name, deleter] of this.deleters) {
      if (only !== undefined && !only.has(name)) continue;
      try {
        succeeded.set(name, await ask(deleter));
      } catch (error) {
        if (error instanceof Interrupted) throw error;
        failed.set(name, error instanceof Error ? error.message : String(error));
      }
    }
    return { succeeded, failed };
  }
}
