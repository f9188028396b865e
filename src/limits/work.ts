/**
 * Charges the work that clients cause in this process, in milliseconds, to their address before it is done
 * (I18): bytes received, parsing, tags, queries, control frames, also for refused messages. The socket of a
 * client in debt is not read until the debt is paid, so a flood slows only the client that causes it. Long
 * before that, a client that uses the event loop more than a person's client does is greedy: its work goes in
 * short slices (loop-turns.ts, relay/input/intake.ts).
 *
 * Input that no honest client sends (a malformed frame, a flood of pings) is also an offence. After too many
 * offences the connections of an address are closed, and then it cannot connect for a while. A network (an
 * IPv6 /48) may commit four times as many.
 *
 * Budgets are local to this process, because they protect its event loop. They are bounded (I14): the least
 * recently used addresses are dropped, which only ever favours a client.
 */
import { LRUCache } from 'lru-cache';

/** An address may permanently use a fifth of the event loop. */
export const WORK_MS_PER_SECOND = 200;
export const WORK_BURST_MS = 1_000;
/** A network (an IPv6 /48) may use as much as this many addresses. */
export const ADDRESSES_PER_NETWORK = 4;
/** A client that has used this part of its burst is busy: some capacity is reserved for the others. */
export const BUSY_PART = 0.25;
/**
 * A client is greedy when it has used the event loop for this long, beyond this much in each second. Until
 * then it is served like everybody, so this much of each new address of a flood is in everybody's p99.
 */
export const GREEDY_MS = 10;
const MODEST_MS_PER_SECOND = 20;
/** Use beyond this is not remembered. */
const GREED_MS_MAX = 400;
/** Debt beyond this is dropped, so that one expensive mistake does not block an address for minutes. */
const DEBT_MS_MAX = 8_000;

/** Offences of an address that are tolerated at once, and then per second; of a network as for the work. */
export const OFFENCES_BURST = 100;
const OFFENCES_PER_SECOND = 1;
/** After this many connections closed for offences, the address is refused for REFUSED_MS. */
const CLOSINGS_MAX = 3;
export const REFUSED_MS = 60_000;

const ADDRESSES_MAX = 20_000;

/** The address and network that are charged, see `client-address.ts`. */
export interface WorkClient {
  readonly rateKey: string;
  readonly networkKey: string;
}

/** A leaky bucket: the amount drains over time. */
interface Level {
  readonly amount: number;
  readonly at: number;
}

/** What an address or a network has used. `loop`: of the event loop only, drained more slowly. */
interface Used extends Level {
  readonly loop: number;
}

interface Misconduct {
  offences: Level;
  closings: number;
  refusedUntil: number;
}

export class Work {
  private readonly used = new LRUCache<string, Used>({ max: ADDRESSES_MAX });
  private readonly misconduct = new LRUCache<string, Misconduct>({ max: ADDRESSES_MAX });

  /** `now`: a monotonic clock in milliseconds. */
  constructor(private readonly now: () => number = () => performance.now()) {}

  charge({ rateKey, networkKey }: WorkClient, costMs: number): void {
    this.add(rateKey, costMs, costMs, 1);
    if (networkKey !== rateKey) this.add(networkKey, costMs, costMs, ADDRESSES_PER_NETWORK);
  }

  /** Charges time of the database. It depends on others too, so it makes nobody greedy. */
  chargeQuery({ rateKey, networkKey }: WorkClient, costMs: number): void {
    this.add(rateKey, costMs, 0, 1);
    if (networkKey !== rateKey) this.add(networkKey, costMs, 0, ADDRESSES_PER_NETWORK);
  }

  /** It uses the event loop more than a person's client does. */
  isGreedy({ rateKey, networkKey }: WorkClient): boolean {
    if (this.loopUse(rateKey, 1) > GREEDY_MS) return true;
    return (
      networkKey !== rateKey &&
      this.loopUse(networkKey, ADDRESSES_PER_NETWORK) > GREEDY_MS * ADDRESSES_PER_NETWORK
    );
  }

  /** Milliseconds until this client is out of debt; 0 when it may go on. */
  waitMs({ rateKey, networkKey }: WorkClient): number {
    const own = this.wait(rateKey, 1);
    return networkKey === rateKey ? own : Math.max(own, this.wait(networkKey, ADDRESSES_PER_NETWORK));
  }

  /** It has used much recently, though it is not in debt. */
  isBusy({ rateKey, networkKey }: WorkClient): boolean {
    if (this.uses(rateKey) > WORK_BURST_MS * BUSY_PART) return true;
    return (
      networkKey !== rateKey &&
      this.uses(networkKey, ADDRESSES_PER_NETWORK) > WORK_BURST_MS * BUSY_PART * ADDRESSES_PER_NETWORK
    );
  }

  /** Counts offences of the address and of its network. True if the connection must be closed. */
  offend({ rateKey, networkKey }: WorkClient, offences = 1): boolean {
    const isAddressOver = this.addOffences(rateKey, offences, 1);
    if (networkKey === rateKey) return isAddressOver;
    return this.addOffences(networkKey, offences, ADDRESSES_PER_NETWORK) || isAddressOver;
  }

  /** Milliseconds for which this client may not connect; 0 if it may. */
  refusedMs({ rateKey, networkKey }: WorkClient): number {
    return Math.max(this.refusedFor(rateKey), networkKey === rateKey ? 0 : this.refusedFor(networkKey));
  }

  private refusedFor(key: string): number {
    return Math.max(0, (this.misconduct.get(key)?.refusedUntil ?? 0) - this.now());
  }

  private addOffences(key: string, offences: number, shares: number): boolean {
    const now = this.now();
    const known = this.misconduct.get(key) ?? {
      offences: { amount: 0, at: now },
      closings: 0,
      refusedUntil: 0,
    };
    const amount = drained(known.offences, OFFENCES_PER_SECOND * shares, now) + offences;
    this.misconduct.set(key, known);
    known.offences = { amount, at: now };
    if (amount <= OFFENCES_BURST * shares) return false;
    // The next connection has the same tolerance before it is closed too.
    known.offences = { amount: 0, at: now };
    known.closings += 1;
    if (known.closings >= CLOSINGS_MAX) {
      known.refusedUntil = now + REFUSED_MS;
      known.closings = 0;
    }
    return true;
  }

  private add(key: string, costMs: number, loopMs: number, shares: number): void {
    const now = this.now();
    const before = this.used.get(key);
    const amount = before === undefined ? 0 : drained(before, WORK_MS_PER_SECOND * shares, now);
    const loop = before === undefined ? 0 : drainedLoop(before, shares, now);
    const most = WORK_BURST_MS * shares + DEBT_MS_MAX;
    this.used.set(key, {
      amount: Math.min(most, amount + costMs),
      loop: Math.min(GREED_MS_MAX * shares, loop + loopMs),
      at: now,
    });
  }

  private loopUse(key: string, shares: number): number {
    const used = this.used.get(key);
    return used === undefined ? 0 : drainedLoop(used, shares, this.now());
  }

  private uses(key: string, shares = 1): number {
    const level = this.used.get(key);
    return level === undefined ? 0 : drained(level, WORK_MS_PER_SECOND * shares, this.now());
  }

  private wait(key: string, shares: number): number {
    const level = this.used.get(key);
    if (level === undefined) return 0;
    const perSecond = WORK_MS_PER_SECOND * shares;
    const debt = drained(level, perSecond, this.now()) - WORK_BURST_MS * shares;
    return debt <= 0 ? 0 : Math.ceil((debt / perSecond) * 1_000);
  }
}

function drained({ amount, at }: Level, perSecond: number, now: number): number {
  return Math.max(0, amount - ((now - at) / 1_000) * perSecond);
}

function drainedLoop({ loop, at }: Used, shares: number, now: number): number {
  return drained({ amount: loop, at }, MODEST_MS_PER_SECOND * shares, now);
}
