/** A job is bounded work (I14) that may stop between any two batches and continue in the next run. */
import type { Client } from 'pg';
import type { DynamodbAudit } from '../audit/dynamodb.js';
import type { Communities, Community } from '../communities/communities.js';
import type { Erasing } from '../erasure/stores/registry.js';
import type { DryRunState } from '../events/postgres/dry-run.js';
import type { EventClass } from '../events/rules/classify.js';
import type { EventStore } from '../events/store.js';
import type { EventStoreName } from '../node/config.js';
import type { Log } from '../node/log.js';
import type { Metrics } from '../node/metrics.js';
import type { DiskLevel } from '../node/rules-disk.js';
import type { ChangedEvents } from '../outbox/changes.sql.js';
import type { Database } from '../postgres/database.js';

export interface Bounds {
  /** Rows of one batch: one transaction. */
  readonly rows: number;
  /** Batches of one run; the next run does the rest. */
  readonly batches: number;
}

export const BOUNDS: Bounds = { rows: 500, batches: 100 };

export interface JobContext {
  readonly database: Database;
  readonly store: EventStore;
  /** The events of changes, where they are not in the database. */
  readonly changed?: ChangedEvents;
  readonly communities: Communities;
  /** Milliseconds; the only clock of a job. */
  readonly now: () => number;
  /** Aborted when the node stops: the job finishes its current batch. */
  readonly signal: AbortSignal;
  readonly bounds: Bounds;
  readonly erasing: Erasing;
  /** The store to which audit rows are moved; without it they stay in the database. */
  readonly audit?: DynamodbAudit | undefined;
  /** How full the disk of the database is; 0 by default. */
  readonly diskLevel?: () => DiskLevel;
  readonly metrics?: Metrics;
  readonly log?: Log;
  /** For commands: a sweep begins at the start, not at the position of the last scheduled run. */
  readonly fromStart?: boolean;
  /** For commands: prints a line about what the run has changed. */
  readonly say?: (line: string) => void;
}

export interface JobResult {
  readonly changed: number;
  /** Something is left to do. */
  readonly more: boolean;
}

/** What a job would delete or change now: how many rows, of which class, and why. */
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
    | 'ground'
    | 'sample';
  readonly rows: number;
  /** For events: how many of them each topic has. An event with two topics counts in both. */
  readonly topics?: readonly { readonly topic: string; readonly rows: number }[];
  /** `topics` covers only this many rows; the others were counted without being read. */
  readonly topicsFromRows?: number;
}

export interface Job {
  readonly name: string;
  /** UTC, in the five fields of cron. */
  readonly cron: string;
  /** After a restart, a missed run is made up for if it is at most this old; in the scheduler's notation. */
  readonly fill?: string;
  readonly about: string;
  /** It deletes events or what belongs to them: part of `minato purge`. */
  readonly purges: boolean;
  /** Stores of events where it has nothing to do, each with the reason. */
  readonly notIn?: { readonly [store in EventStoreName]?: string };
  /** `client` is a session for jobs, outside the lane. */
  run(context: JobContext, client: Client): Promise<JobResult>;
  /** Counts what a run would change after the jobs before it, and records that for the jobs after it. */
  dryRun(context: JobContext, client: Client, gone: DryRunState): Promise<DryRunCount[]>;
}

/** Runs batches until one finds nothing, up to the limit of a run. */
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
 * For jobs whose cut-off time differs between communities. All communities share the batches of one run, and
 * the next run begins with the first community again. A batch that finds nothing is not counted: otherwise a
 * run would never reach the last of many communities.
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
