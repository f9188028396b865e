/**
 * The deletion registry: one deleter per store, and nothing is forgotten (I12). What can be erased is erased: where one store fails,
 * the others go on, and the failure is told by the name of its store.
 */
import { performance } from 'node:perf_hooks';
import type { Subject } from '../core/erasure.js';
import { isNoAnswer } from '../in-time.js';
import type { Deleter, Kept } from './deleter.js';

/** How long a store outside that did not answer is taken to be away. */
const SILENT_MS = 30_000;

/** By the name of the store; a store is in one of the two. */
export interface Collected<T> {
  readonly succeeded: ReadonlyMap<string, T>;
  readonly failed: ReadonlyMap<string, string>;
}

/** Thrown by `progress`: the erasure is to stop here and go on later. It is no failure of a store. */
export class Interrupted extends Error {}

export class DeletionRegistry {
  private readonly deleters = new Map<string, Deleter>();
  /** Stores outside that did not answer, by what they are called. */
  private readonly silent = new Map<string, { readonly failure: Failure; readonly untilMs: number }>();

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
    const left = new Set(this.registeredNames().filter((name) => !skip.has(name)));
    return this.collect(async (deleter) => {
      const deleted = await deleter.delete(subject, (taken) => progress(deleter.name, taken, false));
      await progress(deleter.name, 0, true);
      return deleted;
    }, left);
  }

  /**
   * In their order. Nothing waits for a store outside: it is begun in its place, behind those of the same
   * kind, and its answer is waited for at the end (I15).
   */
  private async collect<T>(
    ask: (deleter: Deleter) => Promise<T>,
    only?: ReadonlySet<string>,
  ): Promise<Collected<T>> {
    const ends = new Map<string, T | Failure>();
    const outside = new Map<string, Promise<void>>();
    const asked = [...this.deleters.values()].filter(({ name }) => only?.has(name) ?? true);
    const end = async (deleter: Deleter): Promise<void> => {
      ends.set(deleter.name, await this.askOne(ask, deleter));
    };
    const inOrder = async (): Promise<void> => {
      for (const deleter of asked) {
        const peer = peerOf(deleter);
        if (peer === undefined) await end(deleter);
        else {
          const behind = (outside.get(peer) ?? Promise.resolve()).then(() => end(deleter));
          behind.catch(() => undefined);
          outside.set(peer, behind);
        }
      }
    };
    const [own] = await Promise.allSettled([inOrder()]);
    // Also after an interruption: nothing of this erasure goes on behind its back.
    for (const settled of [own, ...(await Promise.allSettled(outside.values()))])
      if (settled.status === 'rejected') throw settled.reason;
    return collected(asked, ends);
  }

  /**
   * One that did not answer a moment ago is not waited for again, by this erasure or by the others of the
   * same run.
   */
  private async askOne<T>(ask: (deleter: Deleter) => Promise<T>, deleter: Deleter): Promise<T | Failure> {
    const peer = peerOf(deleter);
    const silent = peer === undefined ? undefined : this.silent.get(peer);
    if (silent !== undefined && performance.now() < silent.untilMs) return silent.failure;
    try {
      return await ask(deleter);
    } catch (error) {
      if (error instanceof Interrupted) throw error;
      const failure = new Failure(error instanceof Error ? error.message : String(error));
      if (peer !== undefined && isNoAnswer(error))
        this.silent.set(peer, { failure, untilMs: performance.now() + SILENT_MS });
      return failure;
    }
  }
}

class Failure {
  constructor(readonly words: string) {}
}

function collected<T>(asked: readonly Deleter[], ends: ReadonlyMap<string, T | Failure>): Collected<T> {
  const succeeded = new Map<string, T>();
  const failed = new Map<string, string>();
  for (const { name } of asked) {
    const end = ends.get(name);
    if (end instanceof Failure) failed.set(name, end.words);
    else if (ends.has(name)) succeeded.set(name, end as T);
  }
  return { succeeded, failed };
}

/**
 * `redis` of `redis:sessions`; undefined where it is the database that the erasure itself stands in, or this
 * machine.
 */
function peerOf({ name }: Deleter): string | undefined {
  const [peer = ''] = name.split(':');
  return ['postgres', 'files'].includes(peer) ? undefined : peer;
}
