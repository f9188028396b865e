/**
 * What the relay and the API ask before they do something for a client. The buckets are shared by all instances; so that a busy
 * client does not cost a question for each of its events, tokens are taken from them in portions and spent here. A burst that is
 * small is exact to the last token, a large one too: what is held here counts as long as the shared bucket has room for it.
 *
 * When the shared store does not answer, this process goes on with buckets of its own until it does.
 */
import { LRUCache } from 'lru-cache';
import { inTime } from '../in-time.js';
import type { Log } from '../log.js';
import { ALLOWED, LocalBuckets, type Verdict } from './local-buckets.js';
import type { SharedLimits } from './shared.js';

export type { Verdict } from './local-buckets.js';

/** Keys that are remembered; what one that is forgotten held here is lost to it, never counted twice. */
const KEYS_MAX = 20_000;
/** A full bucket is taken in so many portions. */
const PORTIONS = 20;
const ANSWER_MS_MAX = 1_000;
/** How often a store that failed is tried again. */
const PROBE_MS = 1_000;

interface Ask {
  readonly perSecond: number;
  readonly burst: number;
  readonly nowMs: number;
}

interface Waiter extends Ask {
  readonly resolve: (verdict: Verdict) => void;
}

/** What is known of one bucket since the last answer. */
interface Lease extends Ask {
  held: number;
  /** What the shared bucket had left then. */
  readonly left: number;
  /** Nothing is to be had there before. */
  readonly emptyUntilMs: number;
}

interface Account {
  lease: Lease | undefined;
  /** In their order, while a question is under way. */
  readonly waiting: Waiter[];
}

export interface RatesOptions {
  readonly shared: SharedLimits;
  readonly log: Log;
  readonly keysMax?: number;
}

export class Rates {
  private readonly shared: SharedLimits;
  private readonly log: Log;
  private readonly accounts: LRUCache<string, Account>;
  private readonly local: LocalBuckets;
  private probe: NodeJS.Timeout | undefined;
  private closed = false;

  constructor({ shared, log, keysMax = KEYS_MAX }: RatesOptions) {
    this.shared = shared;
    this.log = log;
    this.accounts = new LRUCache({ max: keysMax });
    this.local = new LocalBuckets(keysMax);
  }

  /** Keys that are held in memory. */
  get size(): number {
    return this.accounts.size + this.local.size;
  }

  /** One token. At once when it can be said here, and never a rejection. A rate of 0 means no limit. */
  take(key: string, perSecond: number, burst: number, nowMs: number): Verdict | Promise<Verdict> {
    if (perSecond === 0) return ALLOWED;
    const ask = { perSecond, burst, nowMs };
    const account = this.accountOf(key);
    // Nobody overtakes those who wait.
    if (account.waiting.length > 0) return this.wait(account, ask);
    if (this.isFailing) return this.local.take(key, perSecond, burst, nowMs);
    const verdict = spend(account.lease, ask);
    if (verdict !== undefined) return verdict;
    const waiting = this.wait(account, ask);
    void this.question(key, account);
    return waiting;
  }

  /** A token that was taken for nothing. Only of what is held here: the shared bucket is not asked for it. */
  giveBack(key: string): void {
    const lease = this.accounts.get(key)?.lease;
    if (lease !== undefined && lease.held + lease.left + 1 <= lease.burst) lease.held += 1;
  }

  /** One token of each key, in turn, until one refuses; then those before it have theirs back. */
  takeAll(
    keys: readonly string[],
    perSecond: number,
    burst: number,
    nowMs: number,
  ): Verdict | Promise<Verdict> {
    const [key, ...others] = keys;
    if (key === undefined) return ALLOWED;
    const settle = (rest: Verdict): Verdict => {
      if (!rest.allowed) this.giveBack(key);
      return rest;
    };
    const goOn = (verdict: Verdict): Verdict | Promise<Verdict> => {
      if (!verdict.allowed) return verdict;
      const rest = this.takeAll(others, perSecond, burst, nowMs);
      return rest instanceof Promise ? rest.then(settle) : settle(rest);
    };
    const verdict = this.take(key, perSecond, burst, nowMs);
    return verdict instanceof Promise ? verdict.then(goOn) : goOn(verdict);
  }

  /** The shared store is its owner's. */
  close(): void {
    this.closed = true;
    clearTimeout(this.probe);
  }

  private get isFailing(): boolean {
    return this.probe !== undefined;
  }

  private accountOf(key: string): Account {
    const known = this.accounts.get(key);
    if (known !== undefined) return known;
    const account: Account = { lease: undefined, waiting: [] };
    this.accounts.set(key, account);
    return account;
  }

  private wait(account: Account, ask: Ask): Promise<Verdict> {
    return new Promise((resolve) => account.waiting.push({ ...ask, resolve }));
  }

  /** Asks until nobody waits any more; each answer serves the first at least. */
  private async question(key: string, account: Account): Promise<void> {
    const { waiting } = account;
    while (waiting.length > 0) {
      const { perSecond, burst, nowMs } = waiting[0]!;
      const wanted = Math.max(1, Math.floor(burst / PORTIONS), waiting.length);
      try {
        const taken = await this.answered(this.shared.take(key, wanted, perSecond, burst, nowMs));
        const emptyUntilMs = nowMs + taken.retryAfterMs;
        account.lease = { perSecond, burst, nowMs, held: taken.granted, left: taken.left, emptyUntilMs };
        serve(account.lease, waiting);
      } catch (error) {
        this.fail(error, key, { perSecond, burst, nowMs });
        for (const { resolve, ...ask } of waiting.splice(0)) {
          resolve(this.local.take(key, ask.perSecond, ask.burst, ask.nowMs));
        }
      }
    }
  }

  private answered<T>(answer: Promise<T>): Promise<T> {
    return inTime(answer, ANSWER_MS_MAX, 'the store of shared rates');
  }

  private fail(error: unknown, key: string, ask: Ask): void {
    if (this.isFailing || this.closed) return;
    this.log.warn({ error: String(error) }, 'rate limits hold in this process only: the shared ones fail');
    this.probeLater(key, ask);
  }

  private probeLater(key: string, { perSecond, burst, nowMs }: Ask): void {
    const probe = async (): Promise<void> => {
      try {
        await this.answered(this.shared.take(key, 0, perSecond, burst, nowMs));
      } catch {
        if (!this.closed) this.probeLater(key, { perSecond, burst, nowMs });
        return;
      }
      if (this.closed) return;
      this.probe = undefined;
      this.local.clear();
      this.log.info('rate limits hold across instances again');
    };
    this.probe = setTimeout(() => void probe(), PROBE_MS).unref();
  }
}

/** Undefined when only the shared bucket can tell. */
function spend(lease: Lease | undefined, { perSecond, burst, nowMs }: Ask): Verdict | undefined {
  if (lease === undefined || lease.perSecond !== perSecond || lease.burst !== burst) return undefined;
  const passedMs = nowMs - lease.nowMs;
  // The shared bucket fills up without knowing what is held here; together they must never hold more than the burst.
  const room = burst - lease.left - (Math.max(0, passedMs) * perSecond) / 1_000;
  lease.held = Math.min(lease.held, room);
  if (lease.held >= 1) {
    lease.held -= 1;
    return ALLOWED;
  }
  // A clock that went back would make the wait as long as the step.
  if (passedMs < 0 || nowMs >= lease.emptyUntilMs) return undefined;
  return { allowed: false, retryAfterMs: lease.emptyUntilMs - nowMs };
}

function serve(lease: Lease, waiting: Waiter[]): void {
  const first = waiting.shift()!;
  if (lease.held > 0) {
    lease.held -= 1;
    first.resolve(ALLOWED);
  } else first.resolve({ allowed: false, retryAfterMs: lease.emptyUntilMs - lease.nowMs });
  for (let next = waiting[0]; next !== undefined; next = waiting[0]) {
    const verdict = spend(lease, next);
    if (verdict === undefined) return;
    waiting.shift();
    next.resolve(verdict);
  }
}
