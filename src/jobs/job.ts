/** What a job is: bounded work that may stop between any two batches and go on in the next run. */
import type { Client } from 'pg';
import type { DynamodbAudit } from '../audit/dynamodb.js';
import type { Communities, Community } from '../communities.js';
import type { EventClass } from '../core/classify.js';
import type { Erasing } from '../erasure/all.js';
import type { Lane } from '../lane.js';
import type { Log } from '../log.js';
import type { Metrics } from '../metrics.js';
import type { Database } from '../postgres/database.js';
import type { WouldGo } from '../store/would-go.js';

export interface Bounds {
  /** Rows of one batch: one transaction. */
  readonly rows: number;
  /** Batches of one run; what is left then is the next run's. */
  readonly batches: number;
}

export const BOUNDS: Bounds = { rows: 500, batches: 100 };

export interface JobContext {
  readonly database: Database;
  readonly lane: Lane;
  readonly communities: Communities;
  /** Milliseconds; the only clock of a job. */
  readonly now: () => number;
  /** The node is stopping: finish the batch at hand. */
  readonly signal: AbortSignal;
  readonly bounds: Bounds;
  readonly erasing: Erasing;
  /** Where the rows of the audit log are moved to; without it they stay in the database. */
  readonly audit?: DynamodbAudit | undefined;
  readonly metrics?: Metrics;
  readonly log?: Log;
  /** By command: a sweep begins at the start, not where the last run on the schedule stopped. */
  readonly fromStart?: boolean;
  /** By command: takes a line about what a run has changed, for the operator. */
  readonly say?: (line: string) => void;
}

export interface JobResult {
  readonly changed: number;
  /** Something is left to do. */
  readonly more: boolean;
}

/** What would go now: how many rows, of which class, and why. */
export interface DryRunCount {
  readonly reason: string;
  readonly class:
    | EventClass
    | 'dedupe'
    | 'quota'
    | 'limit'
    | 'usage'
    | 'token'
    | 'session'
    | 'bus'
    | 'partition'
    | 'outbox'
    | 'job'
    | 'export'
    | 'document'
    | 'erasure'
    | 'audit'
    | 'ground';
  readonly rows: number;
  /** Of events: how many of them each topic holds; one with two topics counts in both. */
  readonly topics?: readonly { readonly topic: string; readonly rows: number }[];
  /** The topics are those of so many rows only; the others were counted without being read. */
  readonly topicsFromRows?: number;
}

export interface Job {
  readonly name: string;
  /** UTC, in the five fields of cron. */
  readonly cron: string;
  /** How far back a missed time is still made up for when a node starts again, as the scheduler writes it. */
  readonly fill?: string;
  readonly about: string;
  /** Takes events, or what is left of them, out of the database: part of `minato purge`. */
  readonly purges: boolean;
  /** `client` is a session of the job's own, outside the lane. */
  run(context: JobContext, client: Client): Promise<JobResult>;
  /** Counts what a run would take after the jobs before it, and notes it for those after it. */
  dryRun(context: JobContext, client: Client, gone: WouldGo): Promise<DryRunCount[]>;
}

/** One batch after another until one finds nothing, up to the bound of a run. */
export async function inBatches(
  { bounds, signal }: Pick<JobContext, 'bounds' | 'signal'>,
  batch: () => Promise<number>,
): Promise<JobResult> {
  let changed = 0;
  for (let done = 0; done < bounds.batches && !signal.aborted; done += 1) {
    const taken = await batch();
    if (taken === 0) return { changed, more: false };
    changed += taken;
  }
  return { changed, more: true };
}

/**
 * For jobs whose time differs between communities: they share the bound of one run, and the next run begins anew. A look that
 * finds nothing does not count, or a run would never come to the last of many communities.
 */
export async function inEachCommunity(
  { communities, bounds, signal }: JobContext,
  batch: (community: Community) => Promise<number>,
): Promise<JobResult> {
  let changed = 0;
  let batches = bounds.batches;
  const counted = (community: Community) => async () => {
    const taken = await batch(community);
    if (taken > 0) batches -= 1;
    return taken;
  };
  for (const community of communities.all()) {
    const left = { ...bounds, batches };
    const result = await inBatches({ bounds: left, signal }, counted(community));
    changed += result.changed;
    if (result.more) return { changed, more: true };
  }
  return { changed, more: false };
}
