/**
 * The deletion registry: one deleter per store, so that none is missed (I12). When one store fails, the
 * others continue, and the failure is reported under the name of its store.
 */
import { performance } from 'node:perf_hooks';
import { isNoAnswer } from '../../limits/in-time.js';
import type { Subject } from '../rules.js';
import type { Deleter, Kept } from './deleter.js';

/** How long a store outside PostgreSQL that did not answer is not asked again. */
const SILENT_MS = 30_000;

/** By the name of the store; each store is in one of the two. */
export interface Collected<T> {
  readonly succeeded: ReadonlyMap<string, T>;
  readonly failed: ReadonlyMap<string, string>;
}

/** Thrown by `progress`: the erasure stops here and continues later. It is no failure of a store. */
export class Interrupted extends Error {}

export class DeletionRegistry {
  private readonly deleters = new Map<string, Deleter>();
  /** Stores outside PostgreSQL that did not answer, by their kind (`redis`, `dynamodb`). */
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

  /** Tables, key prefixes and folders that a deleter is responsible for. */
  holds(): string[] {
    return [...this.deleters.values()].flatMap(({ holds }) => holds);
  }

  /** The lists of public keys that deleters provide themselves. */
  people(): NonNullable<Deleter['people']>[] {
    return [...this.deleters.values()].flatMap((deleter) =>
      deleter.people === undefined ? [] : [(community: number) => deleter.people!(community)],
    );
  }

  /** In all stores by default, or in the named ones. */
  countAll(subject: Subject, only?: ReadonlySet<string>): Promise<Collected<number>> {
    // A new object for each round: deleters share one count per subject object, and this round counts again.
    const round = { ...subject };
    return this.collect((deleter) => deleter.count(round), only);
  }

  keptAll(subject: Subject): Promise<Collected<Kept | undefined>> {
    return this.collect(async (deleter) => deleter.kept?.(subject));
  }

  /** `skip`: stores that are left out. `progress` is called after each batch and at the end of each store. */
  deleteAll(
    subject: Subject,
    progress: (
      store: string,
      deleted: number,
      done: boolean,
      beside?: Readonly<Record<string, number>>,
    ) => Promise<void>,
    skip: ReadonlySet<string> = new Set(),
  ): Promise<Collected<number>> {
    const left = new Set(this.registeredNames().filter((name) => !skip.has(name)));
    return this.collect(async (deleter) => {
      const deleted = await deleter.delete(subject, (taken, beside) =>
        progress(deleter.name, taken, false, beside),
      );
      await progress(deleter.name, 0, true);
      return deleted;
    }, left);
  }

  /**
   * In the order of registration. A store outside PostgreSQL is started in its place, after those of the same
   * kind, and its answer is awaited at the end, so that it holds up no other store (I15). The tables of
   * events are awaited in their place: what follows from events is deleted after them.
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
        if (peer === undefined || deleter.isAwaited) await end(deleter);
        else {
          const behind = (outside.get(peer) ?? Promise.resolve()).then(() => end(deleter));
          behind.catch(() => undefined);
          outside.set(peer, behind);
        }
      }
    };
    const [own] = await Promise.allSettled([inOrder()]);
    // Also after an interruption: nothing of this erasure continues in the background.
    for (const settled of [own, ...(await Promise.allSettled(outside.values()))])
      if (settled.status === 'rejected') throw settled.reason;
    return collected(asked, ends);
  }

  /**
   * A store that did not answer a moment ago is not asked again by this erasure or by others of the same run.
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
