/**
 * One consumer on this instance: waits for its turn, then follows the outbox and, where asked, builds it anew; one round after another
 * (I8, I9). NOTIFY is only a wake-up; polling is the truth. I14: every wait, batch and retry has its bound.
 */
import { randomUUID } from 'node:crypto';
import { performance } from 'node:perf_hooks';
import { setTimeout as delay } from 'node:timers/promises';
import type { Log } from '../log.js';
import type { Metrics } from '../metrics.js';
import type { Database } from '../postgres/database.js';
import {
  askRebuild,
  forgetFailure,
  holdTurn,
  leaveTurn,
  readRebuild,
  readTurn,
  recordFailure,
  registerConsumer,
  type Turn,
} from '../store/consumers.js';
import { OutboxBehind } from '../store/outbox.js';
import { Batches } from './batches.js';
import type { Consumer } from './consumer.js';
import { backOffMs, Overtaken, wordsOf } from './failures.js';
import { type Follower, liveCourse, retryLetters } from './follow.js';
import { restAfter } from './pace.js';
import { rebuildStep } from './rebuild.js';
import { awaitTurn, keepTurn } from './turn.js';

const POLL_MS = 1_000;
/** After all that was there: small commits in a row do not make a transaction each. */
const GATHER_MS = 100;
const BACK_OFF_MS = 100;
const BACK_OFF_MS_MAX = 30_000;
const UPKEEP_MS = 10_000;
const RATE_WINDOW_MS = 10_000;

export interface ConsumeOptions {
  readonly consumer: Consumer;
  readonly database: Database;
  readonly metrics: Metrics;
  readonly log: Log;
  readonly now: () => number;
  /** How often it is looked whether the rules are still those of today. */
  readonly upkeepMs?: number | undefined;
}

export class Consuming {
  private readonly stopping = new AbortController();
  private readonly batches: Batches;
  private readonly follower: Follower;
  private readonly name: string;
  /** Of this process, for this consumer. */
  private readonly holder = randomUUID();
  private readonly running: Promise<void>;
  private turnLost = false;
  private wanted = true;
  private hurried = false;
  private awake: (() => void) | undefined;
  private failures = 0;
  /** Something may stand in the database that is over by now. */
  private mayBeFailing = true;
  /** The generation that cannot be followed any more. */
  private behind: number | undefined;
  /** The one before this generation is gone. */
  private tidied: number | undefined;
  /** How long what it has not read yet has been waiting. */
  private behindMs = 0;
  private nextUpkeep = 0;
  private nextFollowUp = 0;
  private followUpFailures = 0;

  constructor(private readonly options: ConsumeOptions) {
    const { consumer, metrics, now } = options;
    this.name = consumer.name;
    this.batches = new Batches({ ...options, signal: this.stopping.signal });
    const onPassed = (rows: number) => metrics.consumerRows.inc({ consumer: consumer.name }, rows);
    this.follower = { consumer: this.name, holder: this.holder, now, rate: rateOf(), onPassed };
    this.running = this.run();
  }

  wake(): void {
    this.wanted = true;
    this.awake?.();
  }

  /** Does not wait for more to gather. */
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
    while (await awaitTurn(this.claim, this.stopping.signal)) {
      this.options.log.debug({ consumer: this.name }, 'a consumer is worked on here');
      await this.work();
    }
    await this.batches.close();
  }

  /** Works as long as the turn is here. */
  private async work(): Promise<void> {
    this.turnLost = false;
    this.mayBeFailing = true;
    this.behind = undefined;
    this.tidied = undefined;
    const kept = keepTurn(this.claim, () => {
      this.turnLost = true;
    });
    while (!this.stopped && !this.turnLost) {
      this.wanted = false;
      let more = false;
      const startMs = performance.now();
      await this.attempt(async () => {
        more = await this.round();
      });
      const worked = { tookMs: performance.now() - startMs, behindMs: this.behindMs };
      if (more) await restAfter(worked, () => this.hurried || this.stopped || this.turnLost);
      else await this.rest();
    }
    await kept.stop();
    const { ownPool } = this.options.database;
    await leaveTurn(ownPool, this.name, this.holder).catch(() => undefined);
  }

  /** In the transaction in which it first appears, because nobody else opens a generation that was never built. */
  private async register(): Promise<void> {
    const { consumer, now } = this.options;
    await this.batches.transact(async (tx) => {
      if (await registerConsumer(tx, this.name, now())) await consumer.open?.(tx, 1);
    });
  }

  /** False when it failed; then some time has passed. */
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
    await this.tell(wordsOf(error));
    const pause = backOffMs(this.failures, BACK_OFF_MS, BACK_OFF_MS_MAX);
    await delay(pause, undefined, { signal: this.stopping.signal }).catch(() => undefined);
  }

  private async tell(error: string): Promise<void> {
    const { database, log, now } = this.options;
    log.warn({ consumer: this.name, failures: this.failures, error }, 'a consumer fails');
    this.mayBeFailing = true;
    await recordFailure(database.ownPool, this.name, error, now()).catch(() => undefined);
  }

  /** One batch of the live generation and one step of the other. True when there is more to do at once. */
  private async round(): Promise<boolean> {
    const { database } = this.options;
    const turn = await readTurn(database.ownPool, this.name);
    if (turn?.holder !== this.holder) {
      this.turnLost = true;
      return false;
    }
    if (turn.paused) return false;
    if (this.behind !== turn.generation) this.behind = undefined;
    await this.upkeep(turn);
    const { liveSeq, more: unread } = await this.follow(turn);
    const more = (await this.followUp()) || unread;
    const rebuild = await readRebuild(database.ownPool, this.name);
    if (rebuild === undefined || !(await this.tidy(turn))) return more;
    await rebuildStep({ ...this.options, batches: this.batches, holder: this.holder }, rebuild, liveSeq);
    return true;
  }

  private async follow(turn: Turn): Promise<Followed> {
    const { generation } = turn;
    // With nothing whole yet there is nothing to follow with.
    if (generation === 0 || this.behind === generation) return { liveSeq: undefined, more: false };
    const course = liveCourse(this.follower, turn);
    try {
      const page = await this.batches.take(course);
      const last = page.changes.at(-1);
      this.behindMs = page.full && last !== undefined ? this.options.now() - last.ingestedAt : 0;
      const more = await retryLetters(this.batches, this.follower, generation);
      return { liveSeq: course.from, more: page.full || more };
    } catch (error) {
      if (!(error instanceof OutboxBehind)) throw error;
      await this.fallBehind(error, generation);
      return { liveSeq: undefined, more: true };
    }
  }

  /** A failure of what follows does not hold up the following itself. */
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
      await this.tell(wordsOf(error));
      return false;
    }
  }

  /** Never skips: what it has stays readable as it is until the rebuilt one takes its place. */
  private async fallBehind(error: OutboxBehind, generation: number): Promise<void> {
    const { database, log, now } = this.options;
    log.error({ consumer: this.name, after: error.after, floor: error.floor }, error.message);
    await recordFailure(database.ownPool, this.name, error.message, now());
    await askRebuild(database.ownPool, this.name, 'it was further behind than the outbox reaches', now());
    this.behind = generation;
  }

  /** Now and then: are its rules still those of today, and is the generation before this one gone? */
  private async upkeep(turn: Turn): Promise<void> {
    if (performance.now() < this.nextUpkeep) return;
    this.nextUpkeep = performance.now() + (this.options.upkeepMs ?? UPKEEP_MS);
    const { consumer, database, log, now } = this.options;
    if (turn.generation === 0) return;
    await this.tidy(turn);
    if (consumer.outdated === undefined) return;
    const reason = await this.batches.transact(async (tx) => {
      if (!(await holdTurn(tx, this.name, this.holder))) throw new Overtaken();
      return consumer.outdated?.(tx, turn.generation);
    });
    if (reason === undefined) return;
    if (await askRebuild(database.ownPool, this.name, reason, now()))
      log.info({ consumer: this.name, reason }, 'a consumer is outdated');
  }

  /**
   * Takes away the generation that this one has replaced. None is begun before that, so a crash leaves one behind at most, and it is
   * known which.
   */
  private async tidy({ generation }: Turn): Promise<boolean> {
    const { consumer, log } = this.options;
    if (generation <= 1 || this.tidied === generation) return true;
    try {
      await consumer.drop?.(await this.batches.session(), generation - 1);
      this.tidied = generation;
      return true;
    } catch (error) {
      log.warn({ consumer: this.name, error: wordsOf(error) }, 'an old generation is still there');
      await this.batches.close();
      return false;
    }
  }

  private async rest(): Promise<void> {
    if (!this.hurried) await this.sleep(GATHER_MS, () => this.hurried || this.stopped);
    this.hurried = false;
    await this.sleep(POLL_MS - GATHER_MS, () => this.wanted || this.stopped);
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
  /** How far the live generation has come; empty when it is not followed. */
  readonly liveSeq: number | undefined;
  readonly more: boolean;
}

/** Rows per second over the last moments. */
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
