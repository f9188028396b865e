/**
 * Have rows of erased members come back? Every public key in the stores is hashed and compared with the
 * hashes of erased members. When one matches, every store counts what is from before the erasure. Newer rows
 * of theirs are welcome.
 */
import type { Client } from 'pg';
import type { SubjectKey } from '../keys/subject-key.js';
import { peopleIn } from './people.sql.js';
import type { Deleter } from './stores/deleter.js';
import type { DeletionRegistry } from './stores/deletion-registry.js';

/** An erased member: the keyed hash in hex, and `until`. */
export interface ErasedSubject {
  readonly community: number;
  readonly subject: string;
  /** Seconds. */
  readonly until: number;
  /** Milliseconds. */
  readonly erasedAt: number;
  readonly vanishes: boolean;
}

export interface FoundAgain extends ErasedSubject {
  readonly pubkey: string;
}

export interface LookOptions {
  readonly client: Client;
  readonly subjectKey: SubjectKey;
  readonly registry: DeletionRegistry;
  readonly signal: AbortSignal;
  /** Called when a store fails; the others are still checked. Without it the error is thrown. */
  readonly onFailure?: (error: unknown) => void;
}

/** Erased members whose keys are here again, each once. */
export async function findErased(
  { client, subjectKey, registry, signal, onFailure }: LookOptions,
  erased: readonly ErasedSubject[],
): Promise<FoundAgain[]> {
  const found = new Map<string, FoundAgain>();
  const others = new Set(registry.people());
  for (const community of new Set(erased.map((one) => one.community))) {
    const here = erased.filter((one) => one.community === community);
    const wanted = new Map(here.map((one) => [one.subject, one]));
    for await (const pubkeys of everybody(client, others, community, onFailure)) {
      signal.throwIfAborted();
      for (const pubkey of pubkeys) {
        const match = wanted.get(subjectKey.hash(community, pubkey).toString('hex'));
        if (match !== undefined) found.set(match.subject, { ...match, pubkey });
      }
    }
  }
  return [...found.values()];
}

async function* everybody(
  client: Client,
  others: Set<NonNullable<Deleter['people']>>,
  community: number,
  onFailure: LookOptions['onFailure'],
): AsyncGenerator<readonly string[]> {
  yield* peopleIn(client, community);
  for (const people of others)
    try {
      yield* people(community);
    } catch (error) {
      if (onFailure === undefined) throw error;
      // Not again for each community.
      others.delete(people);
      onFailure(error);
    }
}

export interface Leftover extends FoundAgain {
  readonly store: string;
  readonly count: number;
}

/** Their rows from before the erasure, by store; and stores that did not answer. */
export async function countLeftovers(
  registry: DeletionRegistry,
  found: readonly FoundAgain[],
): Promise<{ leftovers: Leftover[]; failed: ReadonlyMap<string, string> }> {
  const leftovers: Leftover[] = [];
  const failures = new Map<string, string>();
  for (const one of found) {
    const { community, pubkey, until, erasedAt, vanishes } = one;
    const { succeeded, failed } = await registry.countAll({
      type: 'member',
      community,
      pubkey,
      until,
      erasedAt,
      vanishes,
    });
    for (const [store, error] of failed) failures.set(store, error);
    for (const [store, count] of succeeded) if (count > 0) leftovers.push({ ...one, store, count });
  }
  return { leftovers, failed: failures };
}
