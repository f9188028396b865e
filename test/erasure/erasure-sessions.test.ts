/**
 * Sessions and rates of a member or a community are counted and deleted, wherever they are: those, all of
 * them, and no others.
 */
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { readdirSync, readFileSync } from 'node:fs';
import { type AddressInfo, connect, createServer } from 'node:net';
import { fileURLToPath } from 'node:url';
import { createClient } from 'redis';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import type { Subject } from '../../src/erasure/rules.js';
import type { Deleter } from '../../src/erasure/stores/deleter.js';
import { SeenKeys } from '../../src/erasure/stores/seen-keys.js';
import { EXEMPT_REDIS_PREFIXES, REDIS_PREFIXES, sessionDeleters } from '../../src/erasure/stores/sessions.js';
import { rateKey } from '../../src/limits/keys.js';
import { openLimits, type SharedLimits } from '../../src/limits/shared.js';
import { createLog } from '../../src/node/log.js';
import { openSessions, type Sessions } from '../../src/sessions/shared.js';
import { newAuthor } from '../support/events.js';
import { TestRedis } from '../support/servers/redis.js';
import { openTestStore, type TestStore } from '../support/stores/store.js';

const [alice, bob] = [newAuthor().pubkey, newAuthor().pubkey];
/** One is the beginning of the other. */
const COMMUNITIES = [1, 11] as const;
const member = (community: number, pubkey: string, until?: number): Subject =>
  until === undefined ? { type: 'member', community, pubkey } : { type: 'member', community, pubkey, until };
const community = (id: number): Subject => ({ type: 'community', community: id });

let test: TestStore;
let redis: TestRedis;
let client: ReturnType<typeof clientOf>;
const clientOf = () => createClient({ url: redis.url });
const log = createLog('silent');

beforeAll(async () => {
  [test, redis] = await Promise.all([openTestStore(), TestRedis.start()]);
  client = clientOf();
  client.on('error', () => undefined);
  await client.connect();
});
afterAll(async () => {
  client.destroy();
  await redis.stop();
  await test.close();
});

const hash = (text: string) => createHash('sha256').update(text).digest('hex');

async function addSessions(sessions: Sessions, id: number, pubkey: string, times: readonly number[]) {
  const make = (createdAt: number, at: number) =>
    sessions.create(
      { community: id, pubkey, tokenHash: hash(`${at}`) },
      { createdAt, expiresAt: createdAt + 3_600_000, csrfHash: hash(`csrf ${at}`) },
    );
  // Not all at once: each has a second, on a busy machine too.
  for (let from = 0; from < times.length; from += 200)
    await Promise.all(times.slice(from, from + 200).map((createdAt, at) => make(createdAt, from + at)));
}

/** As the node names them. Of rules there are many for one key. */
async function addRates(limits: SharedLimits, id: number, pubkey: string, rules: number, at: number) {
  const names = (['connections', 'events', 'brought', 'queries', 'session', 'http-operator'] as const).map(
    (what) => rateKey(id, what, pubkey),
  );
  for (let rule = 0; rule < rules; rule += 1) names.push(rateKey(id, `rule/${rule}/1`, pubkey));
  for (let from = 0; from < names.length; from += 200)
    await Promise.all(names.slice(from, from + 200).map((name) => limits.take(name, 1, 0.01, 100, at)));
  return names.length;
}

async function told(deleter: Deleter, subject: Subject) {
  const pages: number[] = [];
  const deleted = await deleter.delete(subject, async (page) => void pages.push(page));
  expect(pages.reduce((sum, page) => sum + page, 0)).toBe(deleted);
  expect(pages).not.toContain(0);
  return { deleted, pages };
}

const countAll = (deleter: Deleter) =>
  Promise.all(
    COMMUNITIES.flatMap((id) => [member(id, alice), member(id, bob), community(id)]).map((subject) =>
      deleter.count(subject),
    ),
  );

describe.each(['postgres', 'redis'] as const)('in %s', (store) => {
  const sessionCount = store === 'redis' ? 1_300 : 520;
  const ruleCount = store === 'redis' ? 1_300 : 520;
  let sessions: Sessions;
  let limits: SharedLimits;
  let deleters: Deleter[];
  const deleterOf = (name: 'sessions' | 'rate_limits') =>
    deleters.find((one) => one.name === `${store}:${name}`)!;

  beforeAll(async () => {
    const url = store === 'redis' ? redis.url : undefined;
    const { pool } = test.database;
    sessions = await openSessions(url, pool, log);
    limits = await openLimits(url, pool, log);
    deleters = sessionDeleters({ pool, redisUrl: url });
  });
  afterAll(() => Promise.all([sessions.close(), limits.close()]));
  beforeEach(async () => {
    await client.flushAll();
    await test.database.pool.query('TRUNCATE operator_sessions, csrf_tokens, rate_buckets');
  });

  it('sessions of a member go, with their tokens, and those of nobody else', async () => {
    const deleter = deleterOf('sessions');
    await addSessions(sessions, 1, alice, Array(sessionCount).fill(5_000));
    for (const id of COMMUNITIES) await addSessions(sessions, id, bob, [1_000, 2_000]);
    await addSessions(sessions, 11, alice, [1_000]);
    expect(await countAll(deleter)).toEqual([2 * sessionCount, 4, 2 * sessionCount + 4, 2, 4, 6]);
    const { deleted, pages } = await told(deleter, member(1, alice));
    expect(deleted).toBe(2 * sessionCount);
    expect(pages.length).toBeGreaterThan(1);
    expect(await countAll(deleter)).toEqual([0, 4, 4, 2, 4, 6]);
    expect((await told(deleter, member(1, alice))).deleted).toBe(0);
    // What others have works on.
    const left = { community: 1, pubkey: bob, tokenHash: hash('0') };
    expect(await sessions.find(left, 1_000)).toBeDefined();
    expect((await told(deleter, community(1))).deleted).toBe(4);
    expect(await countAll(deleter)).toEqual([0, 0, 0, 2, 4, 6]);
    expect((await told(deleter, community(11))).deleted).toBe(6);
  });

  it('sessions that were begun later than asked stay', async () => {
    const deleter = deleterOf('sessions');
    await addSessions(sessions, 1, alice, [4_000, 5_999, 6_000, 7_000]);
    expect(await deleter.count(member(1, alice, 5))).toBe(4);
    expect((await told(deleter, member(1, alice, 5))).deleted).toBe(4);
    expect(await deleter.count(member(1, alice, 5))).toBe(0);
    expect(await deleter.count(member(1, alice))).toBe(4);
    expect(await sessions.find({ community: 1, pubkey: alice, tokenHash: hash('2') }, 6_000)).toBeDefined();
  });

  it('rates of a key go wherever it was counted, with a community also those of addresses', async () => {
    const deleter = deleterOf('rate_limits');
    const many = await addRates(limits, 1, alice, ruleCount, 5_000);
    const few = await addRates(limits, 1, bob, 0, 5_000);
    const far = await addRates(limits, 11, alice, 0, 5_000);
    for (const id of COMMUNITIES)
      for (const address of ['192.0.2.1', '2001:db8:0:1::/64', '1'])
        await limits.take(rateKey(id, 'connections', address), 1, 0.01, 100, 5_000);
    await limits.useOnce(`nip98:${alice}${alice}`, 60_000, 5_000);
    expect(await countAll(deleter)).toEqual([many, few, many + few + 3, far, 0, far + 3]);
    const { deleted, pages } = await told(deleter, member(1, alice));
    expect(deleted).toBe(many);
    expect(pages.length).toBeGreaterThan(1);
    expect(await countAll(deleter)).toEqual([0, few, few + 3, far, 0, far + 3]);
    expect((await told(deleter, community(1))).deleted).toBe(few + 3);
    expect(await countAll(deleter)).toEqual([0, 0, 0, far, 0, far + 3]);
    // A credential stays used.
    expect(await limits.useOnce(`nip98:${alice}${alice}`, 60_000, 5_000)).toBe(false);
  });

  it('rates that were used later than asked stay', async () => {
    const deleter = deleterOf('rate_limits');
    await limits.take(rateKey(1, 'events', alice), 1, 0.01, 100, 5_999);
    await limits.take(rateKey(1, 'queries', alice), 1, 0.01, 100, 6_000);
    expect(await deleter.count(member(1, alice, 5))).toBe(1);
    expect((await told(deleter, member(1, alice, 5))).deleted).toBe(1);
    expect(await deleter.count(member(1, alice))).toBe(1);
  });

  it('a name that would be a pattern is only a name', async () => {
    await addSessions(sessions, 1, alice, [1_000]);
    await addRates(limits, 1, alice, 0, 1_000);
    if (store === 'postgres') return expect(await deleterOf('rate_limits').count(member(1, '%'))).toBe(0);
    for (const pattern of ['*', `?${alice.slice(1)}`, `[^x]${alice.slice(1)}`, '\\*']) {
      for (const name of ['sessions', 'rate_limits'] as const) {
        expect(await deleterOf(name).count(member(1, pattern)), pattern).toBe(0);
        expect((await told(deleterOf(name), member(1, pattern))).deleted, pattern).toBe(0);
      }
    }
  });

  it.each(['sessions', 'rate_limits'] as const)(
    'what stops the deletion of %s half-way is told, and the next one goes on',
    async (name) => {
      const deleter = deleterOf(name);
      if (name === 'sessions') await addSessions(sessions, 1, alice, Array(sessionCount).fill(5_000));
      else await addRates(limits, 1, alice, ruleCount, 5_000);
      const all = await deleter.count(member(1, alice));
      let gone = 0;
      const stopping = deleter.delete(member(1, alice), async (page) => {
        gone += page;
        throw new Error('held');
      });
      await expect(stopping).rejects.toThrow('held');
      expect(gone).toBeGreaterThan(0);
      expect(await deleter.count(member(1, alice))).toBe(all - gone);
      expect((await told(deleter, member(1, alice))).deleted).toBe(all - gone);
      expect(await deleter.count(member(1, alice))).toBe(0);
    },
  );
});

/** Stands before Redis and begins the first SCAN of each connection anew at its second page. */
async function repeatFirstPage() {
  let repeated = 0;
  const server = createServer((near) => {
    const far = connect(redis.port, '127.0.0.1');
    let done = false;
    near.on('data', (data: Buffer) => {
      const text = data.toString('latin1');
      const again = done ? text : text.replace(/(SCAN\r\n)\$\d+\r\n[1-9]\d*/, (_, scan) => `${scan}$1\r\n0`);
      if (again !== text) {
        done = true;
        repeated += 1;
      }
      far.write(Buffer.from(again, 'latin1'));
    });
    far.pipe(near);
    for (const [one, other] of [
      [near, far],
      [far, near],
    ] as const) {
      one.on('error', () => undefined);
      one.on('close', () => other.destroy());
    }
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  return { url: `redis://127.0.0.1:${port}`, repeated: () => repeated, close: () => server.close() };
}

describe('Redis', () => {
  let deleters: Deleter[];
  let sessions: Sessions;
  beforeAll(async () => {
    deleters = sessionDeleters({ pool: test.database.pool, redisUrl: redis.url, answerMsMax: 200 });
    sessions = await openSessions(redis.url, test.database.pool, log);
  });
  afterAll(() => sessions.close());

  it('that fails half-way makes the deletion fail; the next one deletes the rest', async () => {
    await client.flushAll();
    const [deleter] = deleters as [Deleter];
    await addSessions(sessions, 1, alice, Array(2_000).fill(5_000));
    await addSessions(sessions, 1, bob, [5_000]);
    let gone = 0;
    const cut = deleter.delete(member(1, alice), async (page) => {
      gone += page;
      await client.sendCommand(['CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes']);
    });
    await expect(cut).rejects.toThrow();
    const left = await deleter.count(member(1, alice));
    expect([gone > 0, left]).toEqual([true, 4_000 - gone]);
    expect((await told(deleter, member(1, alice))).deleted).toBe(left);
    expect([await deleter.count(member(1, alice)), await deleter.count(member(1, bob))]).toEqual([0, 2]);
  });

  it('that returns keys twice, as SCAN may, has them counted once', async () => {
    await client.flushAll();
    await addSessions(sessions, 1, alice, Array(2_000).fill(5_000));
    const repeating = await repeatFirstPage();
    const [deleter] = sessionDeleters({ pool: test.database.pool, redisUrl: repeating.url }) as [Deleter];
    expect(await deleter.count(member(1, alice))).toBe(4_000);
    expect((await told(deleter, member(1, alice))).deleted).toBe(4_000);
    expect(repeating.repeated()).toBeGreaterThanOrEqual(2);
    repeating.close();
  });

  it('that is silent or away is an error, not a zero', async () => {
    const ask = () =>
      deleters
        .slice(0, 2)
        .flatMap((one) => [one.count(community(1)), one.delete(community(1), async () => undefined)]);
    const outcomes = async () => (await Promise.allSettled(ask())).map(({ status }) => status);
    redis.freeze();
    expect(await outcomes()).toEqual(Array(4).fill('rejected'));
    redis.thaw();
    await expect.poll(outcomes).toEqual(Array(4).fill('fulfilled'));
    await redis.goDown();
    expect(await outcomes()).toEqual(Array(4).fill('rejected'));
    await redis.comeBack();
    expect(await outcomes()).toEqual(Array(4).fill('fulfilled'));
  });

  it('has no prefix that no deleter answers for', () => {
    const held = deleters.flatMap(({ holds }) => holds);
    const exempt = Object.keys(EXEMPT_REDIS_PREFIXES);
    expect(REDIS_PREFIXES.filter((prefix) => !held.includes(prefix))).toEqual(exempt);
    for (const reason of Object.values(EXEMPT_REDIS_PREFIXES)) expect(reason).toMatch(/^[A-Z].{20,}\.$/);
  });

  it('is written to by nothing that is not known here', () => {
    const root = fileURLToPath(new URL('../../src', import.meta.url));
    const files = readdirSync(root, { recursive: true, encoding: 'utf8' }).filter((path) =>
      path.endsWith('.ts'),
    );
    const using = files.filter((path) =>
      /from '(redis|(\.\.\/)+redis\/client\.js)'|import\('redis'\)/.test(
        readFileSync(`${root}/${path}`, 'utf8'),
      ),
    );
    expect(using.sort()).toEqual([
      'erasure/stores/redis-keys.ts',
      'limits/redis.ts',
      'redis/client.ts',
      'sessions/redis.ts',
    ]);
  });
});

it('without Redis the deleters are those of PostgreSQL, with Redis both', () => {
  const { pool } = test.database;
  const names = (redisUrl: string | undefined) => sessionDeleters({ pool, redisUrl }).map(({ name }) => name);
  expect(names(undefined)).toEqual(['postgres:sessions', 'postgres:rate_limits']);
  expect(names(redis.url)).toEqual(['redis:sessions', 'redis:rate_limits', ...names(undefined)]);
});

it('a key is new once, as long as it is remembered', () => {
  const seen = new SeenKeys(2);
  expect(['a', 'a', 'b', 'c', 'a', 'd', 'c', 'd'].map((key) => seen.add(key))).toEqual([
    true,
    false,
    true,
    true,
    false,
    true,
    false,
    false,
  ]);
  expect([seen.add('e'), seen.add('a')]).toEqual([true, true]);
});
