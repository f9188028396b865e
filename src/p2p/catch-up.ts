/**
 * Fills gaps from the relays of known nodes: after joining a topic, after having been away, when messages
 * were lost, and now and then without a reason that is known here. Gossip has no history, so this is what
 * makes nodes converge. The addresses come only from tickets that the operator has joined, never from
 * messages. I14: one fill at a time, each topic at most every half minute, each fill with a deadline, and the
 * list of waiting topics is bounded by the joined ones.
 */
import { setTimeout as delay } from 'node:timers/promises';
import type { Communities } from '../communities/communities.js';
import { takesLate } from '../events/rules/lateness.js';
import type { Log } from '../node/log.js';
import type { Metrics } from '../node/metrics.js';
import { type JoinedTopic, keyOf } from './rules.js';
import type { CatchUpState } from './rules-state.js';
import type { Ticket } from './rules-ticket.js';

const AGAIN_MS = 30_000;
const RETRY_MS_MAX = 300_000;
const FILL_MS_MAX = 600_000;
const WAITING_MAX = 10_000;
const PAUSE_MS = 100;
/** A topic is compared with the known nodes this often; while one of them is not a neighbour, more often. */
const COMPARE_MS = 300_000;
const COMPARE_APART_MS = 60_000;
/** All these comparisons together take a fiftieth of the time. */
const COMPARE_REST = 50;

export interface FillRequest extends JoinedTopic {
  readonly url: string;
  readonly direction: 'both';
  /** Seconds: nothing older. */
  readonly since?: number;
  readonly signal: AbortSignal;
}

/**
 * Takes over what a peer has and this node lacks, through admission and the lane, at low priority; and offers
 * what the peer lacks, because the peer may not know this node.
 */
export type Fill = (request: FillRequest) => Promise<unknown>;

/** `joined`: the topic has just been joined. `gap`: events may have been missed. */
export type Reason = 'joined' | 'gap';

export interface CatchUpOptions {
  /** Undefined where this build has no engine for it. */
  readonly fill: Fill | undefined;
  readonly communities: Communities;
  readonly tickets: () => readonly Ticket[];
  readonly metrics: Metrics;
  readonly log: Log;
  readonly now: () => number;
  /** For pauses: the wall clock may jump back, and a pause would last until it is there again. */
  readonly steadyMs?: () => number;
  readonly signal: AbortSignal;
}

/** A joined topic, and whether each known node is a neighbour in it. */
export interface Compared {
  readonly joined: readonly JoinedTopic[];
  readonly isApart: boolean;
}

interface Task extends JoinedTopic {
  reason: Reason;
  notBefore: number;
  failures: number;
}

export class CatchUp {
  private readonly tasks = new Map<string, Task>();
  /** When each topic was last filled. */
  private readonly filled = new Map<string, number>();
  /** When the relay at each address last answered a fill. */
  private readonly answered = new Map<string, number>();
  private comparedUntilMs = Number.NEGATIVE_INFINITY;
  private readonly counts = { done: 0, failed: 0, lastError: null as string | null };
  private readonly steadyMs: () => number;
  readonly running: Promise<void>;

  constructor(private readonly options: CatchUpOptions) {
    this.steadyMs = options.steadyMs ?? (() => performance.now());
    this.running = options.fill === undefined ? Promise.resolve() : this.run(options.fill);
  }

  get state(): CatchUpState {
    return { available: this.options.fill !== undefined, waiting: this.tasks.size, ...this.counts };
  }

  want(topics: readonly JoinedTopic[], reason: Reason): void {
    if (this.options.fill === undefined) return;
    for (const { community, topic } of topics) {
      const key = keyOf({ community, topic });
      const known = this.tasks.get(key);
      if (known !== undefined) {
        if (reason === 'gap') known.reason = 'gap';
        continue;
      }
      if (this.tasks.size >= WAITING_MAX) return;
      this.tasks.set(key, { community, topic, reason, notBefore: this.earliest(key), failures: 0 });
    }
  }

  /** A known node is a neighbour again: what failed while it was away is tried again soon. */
  wantNow(topics: readonly JoinedTopic[]): void {
    this.want(topics, 'gap');
    for (const topic of topics) {
      const key = keyOf(topic);
      const task = this.tasks.get(key);
      if (task === undefined) continue;
      task.failures = 0;
      task.notBefore = Math.min(task.notBefore, this.earliest(key));
    }
  }

  /**
   * Compares one of these topics, if it is time: a link that iroh takes for up, or never tries again, would
   * otherwise leave two nodes apart for ever.
   */
  compare(topics: Iterable<Compared>): void {
    const now = this.steadyMs();
    if (this.tasks.size > 0 || now < this.comparedUntilMs || this.options.tickets().length === 0) return;
    for (const { joined, isApart } of topics) {
      const since = now - (isApart ? COMPARE_APART_MS : COMPARE_MS);
      const due = joined.find((topic) => (this.filled.get(keyOf(topic)) ?? since) <= since);
      if (due === undefined) continue;
      this.want([due], 'gap');
      return;
    }
  }

  /** The relay at one of these addresses has answered since then. */
  hasAnswered(urls: readonly string[], sinceMs: number): boolean {
    return urls.some((url) => (this.answered.get(url) ?? Number.NEGATIVE_INFINITY) >= sinceMs);
  }

  /** Forgets topics that are no longer joined. */
  keep(isJoined: (topic: JoinedTopic) => boolean): void {
    for (const [key, task] of this.tasks) if (!isJoined(task)) this.tasks.delete(key);
    if (this.filled.size > WAITING_MAX) this.filled.clear();
  }

  private earliest(key: string): number {
    return (this.filled.get(key) ?? Number.NEGATIVE_INFINITY) + AGAIN_MS;
  }

  private async run(fill: Fill): Promise<void> {
    const { signal } = this.options;
    while (!signal.aborted) {
      const due = [...this.tasks].find(([, { notBefore }]) => notBefore <= this.steadyMs());
      if (due === undefined) await delay(PAUSE_MS, undefined, { signal }).catch(() => undefined);
      else await this.carryOut(fill, ...due);
    }
  }

  private async carryOut(fill: Fill, key: string, task: Task): Promise<void> {
    const { log, metrics, signal } = this.options;
    const { community, topic, reason } = task;
    this.tasks.delete(key);
    const begunMs = this.steadyMs();
    const problem = await this.fillFromAll(fill, task);
    const endedMs = this.steadyMs();
    this.filled.set(key, endedMs);
    this.comparedUntilMs = endedMs + (endedMs - begunMs) * COMPARE_REST;
    if (signal.aborted) return;
    metrics.gossipCatchUps.inc({ outcome: problem === undefined ? 'done' : 'failed' });
    if (problem === undefined) {
      this.counts.done += 1;
      return;
    }
    this.counts.failed += 1;
    this.counts.lastError = problem.slice(0, 300);
    const waitMs = Math.min(RETRY_MS_MAX, AGAIN_MS * 2 ** task.failures);
    log.warn({ topic, error: problem, waitMs }, 'gossip: a topic could not be filled from a peer');
    if (!this.tasks.has(key))
      this.tasks.set(key, {
        community,
        topic,
        reason,
        notBefore: this.steadyMs() + waitMs,
        failures: task.failures + 1,
      });
  }

  /** From every known node, since each may have what the others lack. One that answers is enough. */
  private async fillFromAll(fill: Fill, { community, topic, reason }: Task): Promise<string | undefined> {
    const since = this.since({ community, topic }, reason);
    if (since === 'none') return undefined;
    const tickets = this.options.tickets().filter(({ urls }) => urls.length > 0);
    let problem: string | undefined;
    let isFilled = tickets.length === 0;
    for (const { urls } of tickets) {
      for (const url of urls) {
        const signal = AbortSignal.any([this.options.signal, AbortSignal.timeout(FILL_MS_MAX)]);
        if (signal.aborted) return undefined;
        const request = { community, topic, url, direction: 'both', signal } as const;
        const error = await fill(since === undefined ? request : { ...request, since }).then(
          () => undefined,
          (reason: unknown) => (reason instanceof Error ? reason.message : String(reason)),
        );
        if (error === undefined) {
          isFilled = true;
          this.answered.set(url, this.steadyMs());
          break;
        }
        problem = `${url}: ${error}`;
      }
    }
    return isFilled ? undefined : problem;
  }

  /** Without backfill a topic takes no history, and after a gap only what it would still have taken. */
  private since({ community: id, topic }: JoinedTopic, reason: Reason): number | undefined | 'none' {
    const community = this.options.communities.get(id);
    const policy = community?.topics.get(topic)?.policy;
    if (community === undefined || policy === undefined) return 'none';
    if (takesLate(policy)) return undefined;
    if (reason === 'joined') return 'none';
    const seconds = policy.maxDelaySeconds ?? community.settings['capacity.backfillSeconds'];
    return Math.floor(this.options.now() / 1_000) - seconds;
  }
}
