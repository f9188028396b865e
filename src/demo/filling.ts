/**
 * What the steps that fill a community with the demo share: where to, the story, and the count of new things.
 */
import type { Pool } from 'pg';
import { type Denial, ERRORS, type ErrorCode, isDenial } from '../api/rules-errors.js';
import type { Community } from '../communities/communities.js';
import type { Admission } from '../events/admission.js';
import type { EventStore } from '../events/store.js';
import type { TopicNaming } from '../topics/rules-id.js';
import type { DemoKey } from './keys.js';
import type { Story } from './rules.js';
import type { Neighbour } from './rules-drafts.js';
import type { Part } from './rules-people.js';

export interface Filling {
  readonly pool: Pool;
  readonly store: EventStore;
  readonly admission: Pick<Admission, 'admit'>;
  /** As it is now. */
  readonly community: () => Community;
  /** Reads the community again after a change that events depend on. */
  readonly refresh: () => Promise<void>;
  readonly naming: TopicNaming;
  /** The keys of MINATO_ADMIN_PUBKEYS. */
  readonly fixed: readonly string[];
  readonly story: Story;
  readonly keys: readonly DemoKey[];
  readonly tally: Tally;
  /** Milliseconds. */
  readonly now: () => number;
  readonly signal: AbortSignal;
}

/** What a run has made and what was there already, by sort. */
export class Tally {
  readonly made = new Map<string, number>();
  readonly found = new Map<string, number>();

  constructor(private readonly onStep: (done: number, about: string) => void) {}

  note(sort: string, isNew: boolean): void {
    const counts = isNew ? this.made : this.found;
    counts.set(sort, (counts.get(sort) ?? 0) + 1);
    this.onStep(total(this.made) + total(this.found), sort);
  }

  get total(): number {
    return total(this.made);
  }
}

const total = (counts: ReadonlyMap<string, number>) =>
  [...counts.values()].reduce((sum, one) => sum + one, 0);

/** The operator stopped the command. What is done stays; the next run continues. */
export class Interrupted extends Error {}

export function checkInterrupt({ signal }: Pick<Filling, 'signal'>): void {
  if (signal.aborted) throw new Interrupted('interrupted');
}

/**
 * The result. Undefined for a refusal that is no problem here, because somebody was faster; another refusal
 * ends the run.
 */
export function unless<T>(result: T | Denial, allowed: readonly ErrorCode[]): T | undefined {
  if (!isDenial(result)) return result;
  if (allowed.includes(result.denied)) return undefined;
  throw new Error(`${ERRORS[result.denied].message} ${JSON.stringify(result.details ?? {})}`);
}

export const partOf = ({ people }: Story, part: Part): Neighbour => people.find((one) => one.part === part)!;
