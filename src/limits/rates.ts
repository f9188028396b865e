/**
 * The rate limits of clients. The relay and the API take tokens here before they work for a client. All
 * instances share the buckets. This process takes tokens from a shared bucket in portions and spends them
 * locally, so that a busy client does not cost a query per event. Small and large bursts are exact to the
 * last token: local tokens are valid only while the shared bucket has room for them.
 *
 * While the shared store does not answer, this process uses local buckets.
 */
import { LRUCache } from 'lru-cache';
import type { Log } from '../node/log.js';
import { inTime } from './in-time.js';
import { ALLOWED, LocalBuckets, type Verdict } from './local-buckets.js';
import type { SharedLimits } from './shared.js';

export type { Verdict } from './local-buckets.js';

/** Keys in memory. The local tokens of a key that is dropped are lost to it, never counted twice. */
const KEYS_MAX = 20_000;
/** A portion is this part of a full bucket. */
const PORTIONS = 20;
const ANSWER_MS_MAX = 1_000;
/** The pause between two tries of a store that has failed. */
const PROBE_MS = 1_000;

interface Ask {
  readonly perSecond: number;
  readonly burst: number;
  readonly nowMs: number;
  readonly wanted: number;
}

interface Waiter extends Ask {
  readonly resolve: (verdict: Verdict) => void;
}

/** The state of one bucket at the last answer of the shared store. */
interface Lease extends Omit<Ask, 'wanted'> {
  held: number;
  /** The tokens that were left in the shared bucket. */
  readonly left: number;
  /** The time until the shared bucket has a whole token. */
  readonly retryAfterMs: number;
}

interface Account {
  lease: Lease | undefined;
  /** In order of arrival, while a query is running. */
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

  /** The number of keys in memory. */
  get size(): number {
    return this.accounts.size + this.local.size;
  }

  /**
   * Takes `weight` tokens: all of them or none. A weight above the burst counts as the burst, otherwise such
   * a request would never be allowed. Answers at once if the local state is enough, and never rejects. A rate
   * of 0 means no limit.
   */
  take(key: string, perSecond: number, burst: number, nowMs: number, weight = 1): Verdict | Promise<Verdict> {
    if (perSecond === 0) return ALLOWED;
    const wanted = withinBurst(weight, burst);
    const ask = { perSecond, burst, nowMs, wanted };
    const account = this.accountOf(key);
    // Requests of a key are answered in order.
    if (account.waiting.length > 0) return this.wait(account, ask);
    if (this.isFailing) return this.local.take(key, perSecond, burst, nowMs, wanted);
    const verdict = spend(account.lease, ask);
    if (verdict !== undefined) return verdict;
    const waiting = this.wait(account, ask);
    void this.question(key, account);
    return waiting;
  }

  /** Returns tokens that were not used, to the local state only; the shared bucket does not change. */
  giveBack(key: string, weight = 1): void {
    const lease = this.accounts.get(key)?.lease;
    if (lease === undefined) return;
    const given = withinBurst(weight, lease.burst);
    if (lease.held + lease.left + given <= lease.burst) lease.held += given;
  }

  /** Takes the same number of tokens from each key. If one refuses, the keys before it get theirs back. */
  takeAll(
    keys: readonly string[],
    perSecond: number,
    burst: number,
    nowMs: number,
    weight = 1,
  ): Verdict | Promise<Verdict> {
    const [key, ...others] = keys;
    if (key === undefined) return ALLOWED;
    const settle = (rest: Verdict): Verdict => {
      if (!rest.allowed) this.giveBack(key, weight);
      return rest;
    };
    const goOn = (verdict: Verdict): Verdict | Promise<Verdict> => {
      if (!verdict.allowed) return verdict;
      const rest = this.takeAll(others, perSecond, burst, nowMs, weight);
      return rest instanceof Promise ? rest.then(settle) : settle(rest);
    };
    const verdict = this.take(key, perSecond, burst, nowMs, weight);
    return verdict instanceof Promise ? verdict.then(goOn) : goOn(verdict);
  }

  /** Does not close the shared store. */
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

  /** Queries the shared store until nobody waits. Each answer serves at least the first waiter. */
  private async question(key: string, account: Account): Promise<void> {
    const { waiting } = account;
    while (waiting.length > 0) {
      const first = waiting[0]!;
      const { perSecond, burst, nowMs } = first;
      // Whole tokens, as in the shared bucket: a fraction would cause a query again and again.
      const held = Math.floor(heldOf(account.lease, first));
      const all = waiting.reduce((sum, { wanted }) => sum + wanted, 0);
      const asked = Math.min(Math.floor(burst), Math.max(Math.floor(burst / PORTIONS), all)) - held;
      try {
        const taken = await this.answered(this.shared.take(key, Math.max(1, asked), perSecond, burst, nowMs));
        const { granted, left, retryAfterMs } = taken;
        account.lease = { perSecond, burst, nowMs, held: held + granted, left, retryAfterMs };
        serve(account.lease, waiting);
      } catch (error) {
        this.fail(error, key, first);
        for (const { resolve, ...ask } of waiting.splice(0)) {
          resolve(this.local.take(key, ask.perSecond, ask.burst, ask.nowMs, ask.wanted));
        }
      }
    }
  }

  private answered<T>(answer: Promise<T>): Promise<T> {
    return inTime(answer, ANSWER_MS_MAX, 'the store of shared rates');
  }

  private fail(error: unknown, key: string, ask: Ask): void {
    if (this.isFailing || this.closed) return;
    this.log.warn(
      { error: String(error) },
      'the store of shared rate limits does not answer; this process counts alone until it does',
    );
    this.probeLater(key, ask);
  }

  private probeLater(key: string, { perSecond, burst, nowMs }: Omit<Ask, 'wanted'>): void {
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
      this.log.info('rate limits are shared between instances again');
    };
    this.probe = setTimeout(() => void probe(), PROBE_MS).unref();
  }
}

function withinBurst(weight: number, burst: number): number {
  return Math.max(1, Math.min(weight, Math.floor(burst)));
}

/**
 * The local tokens that may be spent. The shared bucket refills independently, and both together may not
 * exceed the burst.
 */
function heldOf(lease: Lease | undefined, { perSecond, burst, nowMs }: Ask): number {
  if (lease === undefined || lease.perSecond !== perSecond || lease.burst !== burst) return 0;
  const room = burst - lease.left - (Math.max(0, nowMs - lease.nowMs) * perSecond) / 1_000;
  return Math.max(0, Math.min(lease.held, room));
}

/** Undefined if only the shared bucket can decide. */
function spend(lease: Lease | undefined, ask: Ask): Verdict | undefined {
  if (lease === undefined || lease.perSecond !== ask.perSecond || lease.burst !== ask.burst) return undefined;
  lease.held = heldOf(lease, ask);
  if (lease.held >= ask.wanted) {
    lease.held -= ask.wanted;
    return ALLOWED;
  }
  const passedMs = ask.nowMs - lease.nowMs;
  const retryAfterMs = waitMs(lease, ask.wanted) - passedMs;
  // After a clock was set back, the wait would be as long as that step.
  return passedMs < 0 || retryAfterMs <= 0 ? undefined : { allowed: false, retryAfterMs };
}

/** The time after its answer until the shared bucket has the missing tokens; 0 if it may have them now. */
function waitMs({ held, left, perSecond, retryAfterMs }: Lease, wanted: number): number {
  const missing = wanted - Math.floor(held);
  if (missing <= left) return 0;
  return retryAfterMs + Math.ceil((Math.max(0, missing - Math.max(1, left)) / perSecond) * 1_000);
}

function serve(lease: Lease, waiting: Waiter[]): void {
  const first = waiting.shift()!;
  if (lease.held >= first.wanted) {
    lease.held -= first.wanted;
    first.resolve(ALLOWED);
  } else first.resolve({ allowed: false, retryAfterMs: Math.max(1, waitMs(lease, first.wanted)) });
  for (let next = waiting[0]; next !== undefined; next = waiting[0]) {
    const verdict = spend(lease, next);
    if (verdict === undefined) return;
    waiting.shift();
    next.resolve(verdict);
  }
}
