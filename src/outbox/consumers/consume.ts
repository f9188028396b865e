/**
 * Runs one consumer on this instance. It waits for the lease, then follows the outbox and, if requested,
 * rebuilds the consumer, round by round (I8, I9). A commit, NOTIFY and the beat of the lease only wake it up;
 * correctness depends on the slow poll. I14: every wait, batch and retry is bounded.
 */
import { randomUUID } from 'node:crypto';
import { performance } from 'node:perf_hooks';
import { setTimeout as delay } from 'node:timers/promises';
import type { Log } from '../../node/log.js';
import type { Metrics } from '../../node/metrics.js';
import type { DiskLevel } from '../../node/rules-disk.js';
import type { Database } from '../../postgres/database.js';
import type { ChangedEvents } from '../changes.sql.js';
import { OutboxBehind } from '../outbox.sql.js';
import { Batches } from './batches.js';
import type { Consumer } from './consumer.js';
import {
  askRebuild,
  type Beat,
  forgetFailure,
  holdLease,
  type Lease,
  readLease,
  readRebuild,
  recordFailure,
  registerConsumer,
  releaseLease,
} from './consumers.sql.js';
import { backOffMs, Overtaken, wordsOf } from './failures.js';
import { type Follower, liveCourse, retryLetters } from './follow.js';
import { awaitLease, type Leases } from './lease.js';
import { restAfter } from './pace.js';
import { rebuildStep } from './rebuild.js';
import type { RecentChanges } from './recent-changes.js';

/** The beat of the lease says every 2 s whether there is work. The poll is for a beat that fails. */
const POLL_MS = 10_000;
/** How often `followUp` is called while there are no new changes. */
const FOLLOW_UP_MS = 2_500;
/** The pause after the last change, so that small commits in a row share a transaction. */
const GATHER_MS = 100;
const BACK_OFF_MS = 100;
const BACK_OFF_MS_MAX = 30_000;
const UPKEEP_MS = 10_000;
const RATE_WINDOW_MS = 10_000;

export interface ConsumeOptions {
  readonly consumer: Consumer;
  readonly database: Database;
  /** Where the events of changes are; by default in the database. */
  readonly events?: ChangedEvents | undefined;
  readonly metrics: Metrics;
  readonly log: Log;
  readonly now: () => number;
  /** How full the disk of the database is; 0 by default. */
  readonly diskLevel?: (() => DiskLevel) | undefined;
  /** How often it checks whether the rules have changed. */
  readonly upkeepMs?: number | undefined;
  /** The leases of this instance. */
  readonly leases: Leases;
  /** The changes that this process has committed; without it all changes are read from the outbox. */
  readonly recent?: RecentChanges | undefined;
}

export class Consuming {
  private readonly stopping = new AbortController();
  private readonly batches: Batches;
  private readonly follower: Follower;
  private readonly name: string;
  /** Names this process as a holder of the lease. */
  private readonly holder = randomUUID();
  private readonly running: Promise<void>;
  private leaseLost = false;
  private wanted = true;
  private hurried = false;
  private awake: (() => void) | undefined;
  private failures = 0;
  /** The database may have an error that is over by now. */
  private mayBeFailing = true;
  /** The generation that is behind the floor of the outbox. */
  private behind: number | undefined;
  /** The generation before this one has been dropped. */
  private tidied: number | undefined;
  private isPaused = false;
  /** The age of the oldest change that it has not read. */
  private behindMs = 0;
  /** It has read deletes of an erasure last. */
  private isAwaited = false;
  private nextUpkeep = 0;
  private nextFollowUp = 0;
  private followUpFailures = 0;

  constructor(private readonly options: ConsumeOptions) {
    const { consumer, metrics, now, recent } = options;
    this.name = consumer.name;
    this.batches = new Batches({ ...options, signal: this.stopping.signal });
    const onPassed = (rows: number) => metrics.consumerRows.inc({ consumer: consumer.name }, rows);
    this.follower = { consumer: this.name, holder: this.holder, now, rate: rateOf(), recent, onPassed };
    this.running = this.run();
  }

  wake(): void {
    this.wanted = true;
    this.awake?.();
  }

  /** Wakes it without the pause that gathers changes. */
  hurry(): void {
    this.hurried = true;
    this.wake();
  }

  async stop(): Promise<void> {
    this.stopping.abort();
    this.wake();
    await this.running;
  }

  private get stopped(): boolean {
    return this.stopping.signal.aborted;
  }

  private get claim() {
    return { pool: this.options.database.ownPool, consumer: this.name, holder: this.holder };
  }

  private async run(): Promise<void> {
    while (!this.stopped && !(await this.attempt(() => this.register())));
    while (await awaitLease(this.claim, this.stopping.signal)) {
      this.options.log.debug({ consumer: this.name }, 'this instance holds the lease of a consumer');
      await this.work();
    }
    await this.batches.close();
  }

  /** Works while this process holds the lease. */
  private async work(): Promise<void> {
    this.leaseLost = false;
    this.mayBeFailing = true;
    this.behind = undefined;
    this.tidied = undefined;
    const onBeat = (beat: Beat | undefined): void => this.onBeat(beat);
    const kept = this.options.leases.keep({ consumer: this.name, holder: this.holder, onBeat });
    while (!this.stopped && !this.leaseLost) {
      this.wanted = false;
      let more = false;
      const startMs = performance.now();
      await this.attempt(async () => {
        more = await this.round();
      });
      const { behindMs, isAwaited } = this;
      const worked = { tookMs: performance.now() - startMs, behindMs, isAwaited };
      if (more) await restAfter(worked, () => this.hurried || this.stopped || this.leaseLost);
      else await this.rest();
    }
    await kept.release();
    const { ownPool } = this.options.database;
    await releaseLease(ownPool, this.name, this.holder).catch(() => undefined);
  }

  private onBeat(beat: Beat | undefined): void {
    if (beat === undefined) {
      this.leaseLost = true;
      this.wake();
      return;
    }
    const { lastSeq, head, paused, rebuilds, retries } = beat;
    if (paused) return;
    if (this.isPaused || lastSeq < head || rebuilds || retries) this.wake();
    else this.options.recent?.passed(this.name, lastSeq);
  }

  /** Opens the first generation in the transaction that registers the consumer: nothing else opens it. */
  private async register(): Promise<void> {
    const { consumer, now } = this.options;
    await this.batches.transact(async (tx) => {
      if (await registerConsumer(tx, this.name, now())) await consumer.open?.(tx, 1);
    });
  }

  /** False after a failure and its back-off. */
  private async attempt(work: () => Promise<void>): Promise<boolean> {
    try {
      await work();
      if (this.mayBeFailing && this.behind === undefined && this.followUpFailures === 0) {
        await forgetFailure(this.options.database.ownPool, this.name);
        this.mayBeFailing = false;
      }
      this.failures = 0;
      return true;
    } catch (error) {
      if (!(error instanceof Overtaken) && !this.stopped) await this.onFailure(error);
      return false;
    }
  }

  private async onFailure(error: unknown): Promise<void> {
    this.failures += 1;
    await this.reportFailure(wordsOf(error));
    const pause = backOffMs(this.failures, BACK_OFF_MS, BACK_OFF_MS_MAX);
    await delay(pause, undefined, { signal: this.stopping.signal }).catch(() => undefined);
  }

  private async reportFailure(error: string): Promise<void> {
    const { database, log, now } = this.options;
    log.warn({ consumer: this.name, failures: this.failures, error }, 'a consumer fails');
    this.mayBeFailing = true;
    await recordFailure(database.ownPool, this.name, error, now()).catch(() => undefined);
  }

  /** One batch of the live generation and one step of a rebuild. True if there is more to do at once. */
  private async round(): Promise<boolean> {
    const { database } = this.options;
    const lease = await readLease(database.ownPool, this.name);
    if (lease?.holder !== this.holder) {
      this.leaseLost = true;
      return false;
    }
    this.isPaused = lease.paused;
    if (lease.paused) return false;
    if (this.behind !== lease.generation) this.behind = undefined;
    const outdated = await this.upkeep(lease);
    const { liveSeq, more: unread } = await this.follow(lease);
    const more = (await this.followUp()) || unread;
    const asked = lease.rebuilds || outdated || this.behind !== undefined;
    const rebuild = asked ? await readRebuild(database.ownPool, this.name) : undefined;
    if (rebuild === undefined || this.waitsForDisk() || !(await this.tidy(lease))) return more;
    await rebuildStep({ ...this.options, batches: this.batches, holder: this.holder }, rebuild, liveSeq);
    return true;
  }

  /**
   * A rebuild writes everything a second time, so it waits until the disk has space. Following the outbox
   * writes little and continues.
   */
  private waitsForDisk(): boolean {
    return (this.options.diskLevel?.() ?? 0) >= 2;
  }

  private async follow(lease: Lease): Promise<Followed> {
    const { generation } = lease;
    // Generation 0: none is complete yet.
    if (generation === 0 || this.behind === generation) return { liveSeq: undefined, more: false };
    const course = liveCourse(this.follower, lease, this.isAwaited);
    try {
      const page = await this.batches.take(course);
      const last = page.changes.at(-1);
      const isPressing = this.options.recent?.isPressing(course.from) ?? false;
      const waitedMs = last === undefined ? 0 : this.options.now() - last.ingestedAt;
      this.isAwaited = last?.reason === 'erasure' || last?.reason === 'vanish';
      this.behindMs = isPressing ? Number.POSITIVE_INFINITY : page.full ? waitedMs : 0;
      const more = lease.retries && (await retryLetters(this.batches, this.follower, generation));
      return { liveSeq: course.from, more: page.full || more };
    } catch (error) {
      if (!(error instanceof OutboxBehind)) throw error;
      await this.fallBehind(error, generation);
      return { liveSeq: undefined, more: true };
    }
  }

  /** A failure of `followUp` does not stop the consumer from following the outbox. */
  private async followUp(): Promise<boolean> {
    const { consumer } = this.options;
    if (consumer.followUp === undefined || performance.now() < this.nextFollowUp) return false;
    try {
      const more = await consumer.followUp();
      this.followUpFailures = 0;
      return more;
    } catch (error) {
      this.followUpFailures += 1;
      this.nextFollowUp = performance.now() + backOffMs(this.followUpFailures, BACK_OFF_MS, BACK_OFF_MS_MAX);
      await this.reportFailure(wordsOf(error));
      return false;
    }
  }

  /** Never skips rows: what it has stays readable until the rebuilt generation replaces it. */
  private async fallBehind(error: OutboxBehind, generation: number): Promise<void> {
    const { database, log, now } = this.options;
    log.error({ consumer: this.name, after: error.after, floor: error.floor }, error.message);
    await recordFailure(database.ownPool, this.name, error.message, now());
    await askRebuild(database.ownPool, this.name, 'it was further behind than the outbox reaches', now());
    this.behind = generation;
  }

  /**
   * Checks from time to time whether its rules have changed, and drops the generation before this one. True
   * if it requests a rebuild.
   */
  private async upkeep(lease: Lease): Promise<boolean> {
    if (performance.now() < this.nextUpkeep) return false;
    this.nextUpkeep = performance.now() + (this.options.upkeepMs ?? UPKEEP_MS);
    const { consumer, database, log, now } = this.options;
    if (lease.generation === 0) return false;
    await this.tidy(lease);
    if (consumer.outdated === undefined) return false;
    const reason = await this.batches.transact(async (tx) => {
      if (!(await holdLease(tx, this.name, this.holder))) throw new Overtaken();
      return consumer.outdated?.(tx, lease.generation);
    });
    if (reason === undefined) return false;
    if (await askRebuild(database.ownPool, this.name, reason, now()))
      log.info({ consumer: this.name, reason }, 'a consumer is outdated');
    return true;
  }

  /**
   * Drops the generation that this one has replaced. No rebuild begins before that, so a crash leaves at most
   * one old generation, and its number is known.
   */
  private async tidy({ generation }: Lease): Promise<boolean> {
    const { consumer, log } = this.options;
    if (generation <= 1 || this.tidied === generation) return true;
    try {
      await consumer.drop?.(await this.batches.session(), generation - 1);
      this.tidied = generation;
      return true;
    } catch (error) {
      log.warn(
        { consumer: this.name, error: wordsOf(error) },
        'an old generation could not be dropped; it is tried again',
      );
      await this.batches.close();
      return false;
    }
  }

  private async rest(): Promise<void> {
    const gatherMs = this.options.consumer.gatherMs ?? GATHER_MS;
    if (!this.hurried) await this.sleep(gatherMs, () => this.hurried || this.stopped || this.leaseLost);
    this.hurried = false;
    const until = performance.now() + Math.min(POLL_MS, this.options.upkeepMs ?? POLL_MS);
    const isOver = () => this.wanted || this.stopped || this.leaseLost || performance.now() >= until;
    while (!isOver()) {
      await this.sleep(Math.min(FOLLOW_UP_MS, until - performance.now()), () => this.wanted || this.stopped);
      if (this.isPaused || isOver() || this.options.consumer.followUp === undefined) continue;
      await this.attempt(async () => {
        this.wanted ||= await this.followUp();
      });
    }
  }

  private async sleep(ms: number, enough: () => boolean): Promise<void> {
    const until = performance.now() + ms;
    while (!enough() && performance.now() < until) {
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, until - performance.now());
        this.awake = () => {
          clearTimeout(timer);
          resolve();
        };
      });
    }
  }
}

interface Followed {
  /** The offset of the live generation; undefined if it is not followed. */
  readonly liveSeq: number | undefined;
  readonly more: boolean;
}

/** Rows per second over the last ten seconds. */
function rateOf(): (rows: number) => number {
  let since = performance.now();
  let rows = 0;
  let before = 0;
  return (more) => {
    const passed = performance.now() - since;
    rows += more;
    if (passed < RATE_WINDOW_MS) return Math.max(before, (rows * 1_000) / Math.max(passed, 1_000));
    before = (rows * 1_000) / passed;
    since = performance.now();
    rows = 0;
    return before;
  };
}
