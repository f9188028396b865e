/** Token buckets and used credentials shared by all instances: the same rules in PostgreSQL and in Redis. */
import { randomUUID } from 'node:crypto';
import fc from 'fast-check';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { LocalBuckets } from '../../src/limits/local-buckets.js';
import { Rates, type Verdict } from '../../src/limits/rates.js';
import { openLimits, type SharedLimits } from '../../src/limits/shared.js';
import type { Log } from '../../src/node/log.js';
import { type Database, openDatabase } from '../../src/postgres/database.js';
import { createTestDatabase, type TestDatabase } from '../support/servers/database.js';
import { Link } from '../support/servers/link.js';
import { TestRedis } from '../support/servers/redis.js';

let test: TestDatabase;
let redis: TestRedis;
const databases: Database[] = [];
const opened: SharedLimits[] = [];
const rates: Rates[] = [];

class Heard {
  readonly lines: string[] = [];
  private readonly hear = (first: unknown, second?: string): void => {
    this.lines.push(typeof first === 'string' ? first : String(second));
  };
  readonly log = { debug: () => undefined, info: this.hear, warn: this.hear, error: this.hear } as Log;
}

/** The shared limits as another instance opens them. */
async function open(store: 'PostgreSQL' | 'Redis'): Promise<SharedLimits> {
  const database = openDatabase(test.connection);
  databases.push(database);
  const url = store === 'Redis' ? redis.url : undefined;
  const limits = await openLimits(url, database.ownPool, new Heard().log);
  opened.push(limits);
  return limits;
}

function ratesOn(shared: SharedLimits, more: { keysMax?: number; heard?: Heard } = {}): Rates {
  const { heard = new Heard(), ...bounds } = more;
  const made = new Rates({ shared, log: heard.log, ...bounds });
  rates.push(made);
  return made;
}

const sum = (numbers: readonly number[]) => numbers.reduce((total, one) => total + one, 0);
const allowed = (verdicts: readonly Verdict[]) => verdicts.filter((verdict) => verdict.allowed).length;
const times = <T>(count: number, work: (at: number) => T) =>
  Array.from({ length: count }, (_, at) => work(at));

beforeAll(async () => {
  test = await createTestDatabase();
  redis = await TestRedis.start();
});
afterEach(() => {
  for (const made of rates.splice(0)) made.close();
});
afterAll(async () => {
  for (const limits of opened) await limits.close();
  for (const database of databases) await database.close();
  await redis.stop();
  await test.drop();
});

describe.each(['PostgreSQL', 'Redis'] as const)('a bucket in %s', (store) => {
  let one: SharedLimits;
  let other: SharedLimits;
  let key: string;
  beforeAll(async () => {
    one = await open(store);
    other = await open(store);
  });
  /** Takes tokens at a given time; each test has a new key. */
  const bucket = (perSecond: number, burst: number) => {
    key = randomUUID();
    return async (wanted: number, nowMs: number, from = one) =>
      (await from.take(key, wanted, perSecond, burst, nowMs)).granted;
  };

  it('grants its burst, then nothing', async () => {
    const take = bucket(1, 5);
    expect([await take(3, 0), await take(3, 0, other), await take(1, 0), await take(1, 0, other)]).toEqual([
      3, 2, 0, 0,
    ]);
  });

  it('grants no more at the first take than its burst', async () => {
    const take = bucket(1, 5);
    expect([await take(8, 0), await take(1, 0)]).toEqual([5, 0]);
  });

  it('refills with time, in fractions, and never beyond its burst', async () => {
    const take = bucket(2, 3);
    expect([await take(3, 0), await take(1, 499), await take(1, 500)]).toEqual([3, 0, 1]);
    expect([await take(1, 999), await take(1, 1_000), await take(9, 100_000)]).toEqual([0, 1, 3]);
  });

  it('refills at rates far below one per second, and reports the exact millisecond', async () => {
    const id = randomUUID();
    const take = (nowMs: number) => one.take(id, 1, 7 / 3_600, 1, nowMs);
    expect(await take(0)).toMatchObject({ granted: 1 });
    const refused = await take(1_000);
    expect(refused.granted).toBe(0);
    const at = 1_000 + refused.retryAfterMs;
    expect(at).toBeCloseTo(3_600_000 / 7, -1);
    expect(await take(at - 2)).toMatchObject({ granted: 0 });
    expect(await take(at)).toMatchObject({ granted: 1 });
  });

  it('a refused take costs nothing, and a take of 0 only reads', async () => {
    const take = bucket(1, 1);
    expect(await take(1, 0)).toBe(1);
    // Ten tenths, each rounded, are a whole token.
    for (let nowMs = 100; nowMs < 1_000; nowMs += 100) expect(await take(1, nowMs)).toBe(0);
    expect(await take(0, 1_000)).toBe(0);
    expect(await take(1, 1_000)).toBe(1);
  });

  it('reports what is left and when there is more', async () => {
    const id = randomUUID();
    expect(await one.take(id, 2, 2, 4, 0)).toEqual({ granted: 2, left: 2, retryAfterMs: 0 });
    const taken = await one.take(id, 9, 2, 4, 100);
    expect(taken.granted).toBe(2);
    expect(taken.left).toBeCloseTo(0.2);
    expect(taken.retryAfterMs).toBe(400);
  });

  it('a clock that is behind neither refills nor drains; the latest clock counts', async () => {
    const take = bucket(1, 2);
    expect(await take(1, 10_000)).toBe(1);
    expect([await take(1, 0, other), await take(1, 0, other)]).toEqual([1, 0]);
    expect([await take(1, 10_000), await take(1, 5_000, other), await take(1, 10_000)]).toEqual([0, 0, 0]);
    expect(await take(1, 11_000)).toBe(1);
  });

  it('a corrected clock that was an hour ahead does not stop it for an hour', async () => {
    const take = bucket(1, 1);
    expect(await take(1, 3_600_000)).toBe(1);
    expect([await take(1, 0), await take(1, 999), await take(1, 1_000)]).toEqual([0, 0, 1]);
  });

  it('a changed rate or burst applies from the next take', async () => {
    const id = randomUUID();
    expect((await one.take(id, 10, 1, 100, 0)).granted).toBe(10);
    expect((await one.take(id, 10, 1, 2, 0)).granted).toBe(2);
    expect((await one.take(id, 10, 5, 100, 1_000)).granted).toBe(5);
  });

  it('never grants more than its burst to concurrent takes', async () => {
    const take = bucket(1, 100);
    const granted = await Promise.all(times(200, (at) => take(1 + (at % 4), 0, at % 2 === 0 ? one : other)));
    expect(sum(granted)).toBe(100);
  });

  it('keeps many buckets of several sizes separate in concurrent takes', async () => {
    const run = randomUUID();
    const sizes = [3, 7, 11];
    const granted = await Promise.all(
      times(600, (at) => {
        const burst = sizes[at % 3]!;
        return (at % 2 === 0 ? one : other).take(`${run}/${at % 30}`, 1, 1, burst, 0);
      }),
    );
    // Thirty buckets, ten of each size, with twenty takes each.
    expect(sum(granted.map((taken) => taken.granted))).toBe(10 * sum(sizes));
  });
});

describe.each(['PostgreSQL', 'Redis'] as const)('a credential in %s', (store) => {
  it('counts once, also with concurrent uses', async () => {
    const [one, other] = [await open(store), await open(store)];
    const key = randomUUID();
    const uses = await Promise.all(times(20, (at) => (at % 2 === 0 ? one : other).useOnce(key, 60_000, 0)));
    expect(uses.filter((first) => first)).toHaveLength(1);
    expect(await other.useOnce(key, 60_000, 60_000)).toBe(false);
    expect(await other.useOnce(randomUUID(), 60_000, 0)).toBe(true);
  });

  it('is forgotten when it expires', async () => {
    const limits = await open(store);
    const key = randomUUID();
    expect(await limits.useOnce(key, 60_000, 0)).toBe(true);
    expect(await limits.useOnce(key, 60_000, 60_001)).toBe(true);
    expect(await limits.useOnce(key, 60_000, 60_002)).toBe(false);
  });
});

it('PostgreSQL: takes, for which every client waits, do not wait for credentials', async () => {
  const database = openDatabase(test.connection);
  databases.push(database);
  const limits = await openLimits(undefined, database.limitsPool, new Heard().log);
  opened.push(limits);
  const locking = await database.connect();
  await locking.query('BEGIN; LOCK TABLE used_credentials IN ACCESS EXCLUSIVE MODE');
  const uses = times(20, () => limits.useOnce(randomUUID(), 60_000, 0));
  expect((await limits.take(randomUUID(), 1, 1, 1, 0)).granted).toBe(1);
  await locking.query('COMMIT');
  await locking.end();
  expect(await Promise.all(uses)).toEqual(times(20, () => true));
});

it('Redis deletes a bucket when it is full again, and a credential when it expires', async () => {
  const { createClient } = await import('redis');
  const client = createClient({ url: redis.url });
  await client.connect();
  const limits = await open('Redis');
  await limits.take('ttl', 1, 10, 100, 0);
  await limits.useOnce('ttl', 5_000, 0);
  for (const [name, aboutMs] of [
    ['minato:rate/ttl', 10_000],
    ['minato:used/ttl', 5_000],
  ] as const) {
    const ttlMs = await client.pTTL(name);
    expect(ttlMs).toBeGreaterThan(aboutMs);
    expect(ttlMs).toBeLessThanOrEqual(aboutMs + 60_000);
  }
  client.destroy();
});

describe.each(['PostgreSQL', 'Redis'] as const)('rates of several instances over %s', (store) => {
  /** Counts the queries to the shared store. */
  async function instance(): Promise<{ rates: Rates; queryCount: () => number }> {
    const limits = await open(store);
    let queryCount = 0;
    const counted: SharedLimits = {
      take: (...question) => {
        queryCount += 1;
        return limits.take(...question);
      },
      useOnce: (...question) => limits.useOnce(...question),
      close: () => limits.close(),
    };
    return { rates: ratesOn(counted), queryCount: () => queryCount };
  }

  it('a small burst is exact', async () => {
    const [one, other] = [await instance(), await instance()];
    const key = randomUUID();
    const verdicts = [];
    for (let at = 0; at < 8; at++) verdicts.push(await (at % 2 === 0 ? one : other).rates.take(key, 1, 5, 0));
    expect(verdicts.map((verdict) => verdict.allowed)).toEqual([
      ...new Array(5).fill(true),
      false,
      false,
      false,
    ]);
  });

  it('a large burst is exact too, and costs few queries', async () => {
    const [one, other] = [await instance(), await instance()];
    const key = randomUUID();
    const verdicts = await Promise.all(
      times(1_500, async (at) => (at % 3 === 0 ? one : other).rates.take(key, 1, 1_000, 0)),
    );
    expect(allowed(verdicts)).toBe(1_000);
    expect(one.queryCount() + other.queryCount()).toBeLessThan(30);
  });

  it('a busy client mostly gets an answer without a query', async () => {
    const { rates: mine, queryCount } = await instance();
    const key = randomUUID();
    const verdicts: (Verdict | Promise<Verdict>)[] = [];
    for (let at = 0; at < 500; at++) {
      const verdict = mine.take(key, 1, 1_000, 0);
      verdicts.push(verdict);
      await verdict;
    }
    expect(queryCount()).toBe(10);
    expect(verdicts.filter((verdict) => verdict instanceof Promise)).toHaveLength(10);
  });

  it('an empty bucket is refused without a query until it has a token again', async () => {
    const { rates: mine, queryCount } = await instance();
    const key = randomUUID();
    await mine.take(key, 2, 1, 0);
    expect(mine.take(key, 2, 1, 100)).toEqual({ allowed: false, retryAfterMs: 400 });
    for (let at = 0; at < 100; at++) expect(mine.take(key, 2, 1, 499)).toMatchObject({ allowed: false });
    expect(queryCount()).toBe(1);
    expect(await mine.take(key, 2, 1, 500)).toEqual({ allowed: true, retryAfterMs: 0 });
  });

  it('waiting takes are answered in their order', async () => {
    const { rates: mine } = await instance();
    const key = randomUUID();
    const order: number[] = [];
    await Promise.all(
      times(10, async (at) => {
        if ((await mine.take(key, 1, 4, 0)).allowed) order.push(at);
      }),
    );
    expect(order).toEqual([0, 1, 2, 3]);
  });

  it('a changed rate or burst applies from the next take', async () => {
    const { rates: mine } = await instance();
    const key = randomUUID();
    expect((await mine.take(key, 1, 100, 0)).allowed).toBe(true);
    const verdicts = [];
    for (let at = 0; at < 4; at++) verdicts.push(await mine.take(key, 1, 2, 0));
    expect(allowed(verdicts)).toBe(2);
    expect((await mine.take(key, 1_000, 2, 1)).allowed).toBe(true);
  });

  it('a rate of 0 means no limit and no query', async () => {
    const { rates: mine, queryCount } = await instance();
    for (let at = 0; at < 100; at++) expect(mine.take('a', 0, 1, 0)).toMatchObject({ allowed: true });
    expect(queryCount()).toBe(0);
  });

  it('of several keys each has to have a token', async () => {
    const { rates: mine } = await instance();
    const [address, author] = [randomUUID(), randomUUID()];
    expect(await mine.takeAll([address, author], 1, 2, 0)).toMatchObject({ allowed: true });
    expect(await mine.take(author, 1, 2, 0)).toMatchObject({ allowed: true });
    expect(await mine.takeAll([address, author], 1, 2, 0)).toMatchObject({ allowed: false });
    expect(await mine.takeAll([], 1, 2, 0)).toMatchObject({ allowed: true });
  });

  it('any takes on any instance are never granted more than one bucket would grant', async () => {
    const instances = [await instance(), await instance(), await instance()];
    const step = fc.record({
      where: fc.nat(2),
      afterMs: fc.oneof(fc.constant(0), fc.nat(200), fc.nat(3_000)),
      takes: fc.integer({ min: 1, max: 40 }),
      weight: fc.constantFrom(1, 1, 1, 2, 7, 30, 100, 1_000),
    });
    await fc.assert(
      fc.asyncProperty(fc.array(step, { minLength: 1, maxLength: 25 }), async (steps) => {
        const [perSecond, burst, key] = [50, 100, randomUUID()];
        let [nowMs, held] = [0, burst];
        for (const { where, afterMs, takes, weight } of steps) {
          nowMs += afterMs;
          held = Math.min(burst, held + (afterMs * perSecond) / 1_000);
          for (let at = 0; at < takes; at++) {
            const { rates: mine } = instances[where]!;
            const { allowed: taken } = await mine.take(key, perSecond, burst, nowMs, weight);
            if (taken) held -= Math.min(weight, burst);
          }
          expect(held).toBeGreaterThan(-0.001);
        }
      }),
      { numRuns: 60 },
    );
  });

  it('a heavy take gets all of its tokens or none, and waits until they are there', async () => {
    const { rates: mine, queryCount } = await instance();
    const key = randomUUID();
    const take = (weight: number, nowMs: number) => mine.take(key, 10, 100, nowMs, weight);
    expect(await take(70, 0)).toMatchObject({ allowed: true });
    expect(await take(70, 0)).toEqual({ allowed: false, retryAfterMs: 4_000 });
    const before = queryCount();
    for (let at = 0; at < 50; at++) expect(take(70, 1_000)).toEqual({ allowed: false, retryAfterMs: 3_000 });
    expect(queryCount()).toBe(before);
    // A light take passes meanwhile, and the heavy one waits longer for it.
    expect(await take(10, 1_000)).toMatchObject({ allowed: true });
    expect((await take(70, 4_000)).allowed).toBe(false);
    expect(await take(70, 5_000)).toMatchObject({ allowed: true });
    expect((await take(1, 5_000)).allowed).toBe(false);
  });

  it('a take heavier than the burst needs a full bucket', async () => {
    const { rates: mine } = await instance();
    const key = randomUUID();
    expect(await mine.take(key, 1, 5, 0, 1_000)).toMatchObject({ allowed: true });
    expect(await mine.take(key, 1, 5, 4_000, 1_000)).toEqual({ allowed: false, retryAfterMs: 1_000 });
    expect(await mine.take(key, 1, 5, 5_000, 1_000)).toMatchObject({ allowed: true });
  });

  it('unused tokens are given back, exactly as many as were taken', async () => {
    const { rates: mine } = await instance();
    const [address, author] = [randomUUID(), randomUUID()];
    expect(await mine.take(author, 1, 100, 0, 60)).toMatchObject({ allowed: true });
    expect(await mine.takeAll([address, author], 1, 100, 0, 50)).toMatchObject({ allowed: false });
    expect(await mine.take(address, 1, 100, 0, 100)).toMatchObject({ allowed: true });
    mine.giveBack(address, 100);
    expect(await mine.take(address, 1, 100, 0, 100)).toMatchObject({ allowed: true });
  });

  it('a client below its rate is never refused, with any timing', async () => {
    const { rates: mine } = await instance();
    const key = randomUUID();
    let nowMs = 0;
    for (let at = 0; at < 600; at++) {
      nowMs += at % 10 === 0 ? 119 : 9;
      expect(await mine.take(key, 50, 100, nowMs)).toMatchObject({ allowed: true });
    }
  });
});

describe('memory', () => {
  it('has a limited number of keys', async () => {
    const mine = ratesOn(await open('PostgreSQL'), { keysMax: 50 });
    for (let at = 0; at < 20; at++) await Promise.all(times(20, (n) => mine.take(`m${at}/${n}`, 1, 5, 0)));
    expect(mine.size).toBeLessThanOrEqual(50);
  });

  it('a forgotten key loses its local tokens and gets nothing twice', async () => {
    const mine = ratesOn(await open('PostgreSQL'), { keysMax: 2 });
    const key = randomUUID();
    let got = 0;
    for (let at = 0; at < 150; at++) {
      if ((await mine.take(key, 1, 100, 0)).allowed) got += 1;
      if (at % 10 === 0) for (let n = 0; n < 3; n++) await mine.take(randomUUID(), 1, 100, 0);
    }
    expect(got).toBeGreaterThan(10);
    expect(got).toBeLessThanOrEqual(100);
  });
});

describe('a store that fails', () => {
  const BEGINS = 'the store of shared rate limits does not answer; this process counts alone until it does';
  const ENDS = 'rate limits are shared between instances again';
  let own: TestRedis;
  let limits: SharedLimits;
  beforeAll(async () => {
    own = await TestRedis.start();
    const database = openDatabase(test.connection);
    databases.push(database);
    limits = await openLimits(own.url, database.ownPool, new Heard().log);
  });
  afterAll(async () => {
    await limits.close();
    await own.stop();
  });

  it('is replaced by a local bucket, logged once at the begin and once at the end', async () => {
    const heard = new Heard();
    const mine = ratesOn(limits, { heard });
    expect(await mine.take('a', 1, 5, 0)).toMatchObject({ allowed: true });
    await own.goDown();
    const verdicts = await Promise.all(times(12, async () => mine.take('a', 1, 5, 0)));
    expect(allowed(verdicts)).toBe(5);
    expect(verdicts.at(-1)).toEqual({ allowed: false, retryAfterMs: 1_000 });
    expect(await Promise.all(times(3, async (at) => mine.take(`b${at}`, 1, 1, 0)))).toHaveLength(3);
    expect(heard.lines).toEqual([BEGINS]);
    await own.comeBack();
    await expect.poll(() => heard.lines, { timeout: 100_000 }).toEqual([BEGINS, ENDS]);
    expect(await mine.take('a', 1, 5, 0)).toMatchObject({ allowed: true });
  });

  it('or does not answer delays nobody for long', async () => {
    const heard = new Heard();
    const mine = ratesOn(limits, { heard });
    expect(await mine.take('c', 1, 5, 0)).toMatchObject({ allowed: true });
    own.freeze();
    const verdicts = await Promise.all(times(12, async () => mine.take('c', 1, 5, 0)));
    expect(allowed(verdicts)).toBe(5);
    own.thaw();
    await expect.poll(() => heard.lines, { timeout: 100_000 }).toEqual([BEGINS, ENDS]);
  });

  it('or does not exist yet does not prevent a start', async () => {
    await own.goDown();
    const heard = new Heard();
    const late = await openLimits(own.url, databases[0]!.ownPool, heard.log);
    const mine = ratesOn(late, { heard });
    expect(await mine.take('d', 1, 5, 0)).toMatchObject({ allowed: true });
    await own.comeBack();
    await expect.poll(() => heard.lines, { timeout: 100_000 }).toEqual([BEGINS, ENDS]);
    await late.close();
  });

  it.each(['at once', 'also when the new connection gets no answer'])(
    'whose connection ended without a word is connected again, %s',
    async (how) => {
      const link = await Link.start({ host: '127.0.0.1', port: own.port });
      const behind = await openLimits(
        `redis://127.0.0.1:${link.port}`,
        databases[0]!.ownPool,
        new Heard().log,
      );
      expect(await behind.useOnce(`f ${how}`, 60_000, 0)).toBe(true);
      if (how !== 'at once') link.become('stalled');
      link.desert();
      await expect(behind.useOnce('g', 60_000, 0)).rejects.toThrow('Redis did not answer');
      if (how !== 'at once') {
        // The connection that replaced it waits for its handshake.
        await expect.poll(() => link.connections).toBe(1);
        link.desert();
        link.become('open');
      }
      await expect
        .poll(() => behind.useOnce(`h ${how}`, 60_000, 0).catch(() => undefined), { interval: 500 })
        .toBe(true);
      await behind.close();
      await link.stop();
    },
  );

  it('rejects a credential, because its first use cannot be proved', async () => {
    await own.goDown();
    await expect(limits.useOnce('e', 60_000, 0)).rejects.toThrow();
    await own.comeBack();
  });
});

describe('a local bucket', () => {
  const buckets = () => {
    const made = new LocalBuckets(100);
    return (key: string, perSecond: number, burst: number, nowMs: number) =>
      made.take(key, perSecond, burst, nowMs).allowed;
  };

  it('grants its burst and then nothing', () => {
    const take = buckets();
    expect(times(5, () => take('a', 1, 3, 0))).toEqual([true, true, true, false, false]);
  });

  it('refills with time, in fractions, and never beyond its burst', () => {
    const made = buckets();
    const take = (nowMs: number) => made('a', 2, 3, nowMs);
    for (let at = 0; at < 3; at++) expect(take(0)).toBe(true);
    expect(take(499)).toBe(false);
    expect(take(500)).toBe(true);
    expect(take(999)).toBe(false);
    expect(take(1_000)).toBe(true);
    expect([take(100_000), take(100_000), take(100_000), take(100_000)]).toEqual([true, true, true, false]);
  });

  it('a refused take costs nothing, so a client that keeps trying is not blocked for ever', () => {
    const take = buckets();
    expect(take('a', 1, 1, 0)).toBe(true);
    for (let nowMs = 100; nowMs < 1_000; nowMs += 100) expect(take('a', 1, 1, nowMs)).toBe(false);
    expect(take('a', 1, 1, 1_001)).toBe(true);
  });

  it('a clock that goes back neither refills nor drains', () => {
    const take = buckets();
    expect(take('a', 1, 2, 10_000)).toBe(true);
    expect(take('a', 1, 2, 0)).toBe(true);
    expect(take('a', 1, 2, 0)).toBe(false);
    expect(take('a', 1, 2, 1_000)).toBe(true);
  });

  it('each key has its own', () => {
    const take = buckets();
    expect(take('a', 1, 1, 0)).toBe(true);
    expect(take('a', 1, 1, 0)).toBe(false);
    expect(take('b', 1, 1, 0)).toBe(true);
  });

  it('a changed rate or burst applies from the next take', () => {
    const take = buckets();
    for (let at = 0; at < 10; at++) expect(take('a', 1, 100, 0)).toBe(true);
    expect([take('a', 1, 2, 0), take('a', 1, 2, 0), take('a', 1, 2, 0)]).toEqual([true, true, false]);
  });
});
