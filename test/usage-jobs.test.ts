/** What is forgotten of usage, of a provider's calls and of tokens, when, and in which portions. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { readConfig } from '../src/config.js';
import { DAY_MS } from '../src/core/retention.js';
import { forgetTokens, forgetUsage } from '../src/jobs/forget-usage.js';
import { BOUNDS, type Job, type JobContext } from '../src/jobs/job.js';
import { JOBS } from '../src/jobs/list.js';
import { dryRunJob, runJob } from '../src/jobs/run.js';
import { forgetSessions } from '../src/jobs/upkeep.js';
import { createLog } from '../src/log.js';
import { type Database, openDatabase } from '../src/postgres/database.js';
import { PostgresSessions } from '../src/sessions/postgres.js';
import { addCommunity } from '../src/store/communities.js';
import { applyPlanEvent } from '../src/store/plans.js';
import { countSessions } from '../src/store/sessions.js';
import { isRevoked, revokeToken } from '../src/store/tokens.js';
import { countUse } from '../src/store/usage.js';
import { startWriter, type Writer } from '../src/writer.js';
import { createTestDatabase, type TestDatabase } from './support/database.js';
import { newAuthor } from './support/events.js';

const START = 20_000 * DAY_MS;
let now = START;
let test: TestDatabase;
let database: Database;
let writer: Writer;
let context: JobContext;
let communities: number[];

beforeAll(async () => {
  test = await createTestDatabase();
  database = openDatabase(test.connection);
  const config = readConfig({ MINATO_TOPIC_MODE: 'open', MINATO_DATA_DIR: test.folder });
  const options = { database, config, log: createLog('silent'), now: () => now };
  const first = await startWriter(options);
  const art = await addCommunity(database.pool, 'art', undefined, now);
  await first.close();
  writer = await startWriter(options);
  communities = [writer.communities.find(undefined, undefined)!.id, art];
  const signal = new AbortController().signal;
  const { lane } = writer;
  context = {
    database,
    lane,
    communities: writer.communities,
    erasing: writer.erasing,
    now: () => now,
    signal,
    bounds: BOUNDS,
  };
});
afterAll(async () => {
  await writer?.close();
  await database?.close();
  await test?.drop();
});

async function run(job: Job, bounds = BOUNDS) {
  const result = await runJob(job, { ...context, bounds });
  if (result === 'busy') throw new Error('another job ran');
  return result;
}
async function count(table: string): Promise<number> {
  const { rows } = await database.pool.query<{ count: number }>(`SELECT count(*) AS count FROM ${table}`);
  return rows[0]!.count;
}
const contents = async () => ({
  requests: await count('usage_requests'),
  counters: await count('usage_counters'),
  events: await count('plan_events'),
});

it('requests are forgotten after 2 days, a provider’s calls after 90, counts after 400, in every community', async () => {
  for (const community of communities) {
    for (let at = 0; at < 5; at += 1) {
      const pubkey = newAuthor().pubkey;
      await countUse(database.pool, { community, pubkey, metric: 'search', requestId: 'r', now });
      await applyPlanEvent(database.pool, { community, pubkey, eventId: `e${at}`, planId: 'free' }, now);
    }
  }
  expect(await contents()).toEqual({ requests: 10, counters: 10, events: 10 });
  now = START + 2 * DAY_MS;
  expect(await dryRunJob(forgetUsage, context)).toEqual([]);
  expect(await run(forgetUsage)).toEqual({ changed: 0, more: false });
  now = START + 2 * DAY_MS + 1;
  expect(await dryRunJob(forgetUsage, context)).toEqual([{ reason: 'request', class: 'usage', rows: 10 }]);
  expect(await run(forgetUsage, { rows: 4, batches: 1 })).toEqual({ changed: 4, more: true });
  expect(await run(forgetUsage, { rows: 4, batches: 10 })).toEqual({ changed: 6, more: false });
  now = START + 90 * DAY_MS + 1;
  expect(await dryRunJob(forgetUsage, context)).toEqual([{ reason: 'provider', class: 'usage', rows: 10 }]);
  expect(await run(forgetUsage, { rows: 3, batches: 2 })).toEqual({ changed: 6, more: true });
  expect(await run(forgetUsage)).toEqual({ changed: 4, more: false });
  now = START + 400 * DAY_MS;
  expect(await run(forgetUsage)).toEqual({ changed: 0, more: false });
  expect(await contents()).toEqual({ requests: 0, counters: 10, events: 0 });
  now = START + 401 * DAY_MS;
  expect(await dryRunJob(forgetUsage, context)).toEqual([{ reason: 'count', class: 'usage', rows: 10 }]);
  expect(await run(forgetUsage, { rows: 3, batches: 2 })).toEqual({ changed: 6, more: true });
  expect(await run(forgetUsage)).toEqual({ changed: 4, more: false });
  expect(await contents()).toEqual({ requests: 0, counters: 0, events: 0 });
});

it('a revoked token is forgotten only when it would have ended by itself', async () => {
  const [community] = communities as [number];
  const holder = { community, pubkey: newAuthor().pubkey };
  const expiresAt = now + 900_000;
  for (const tokenId of ['a', 'b', 'c']) await revokeToken(database.pool, { ...holder, tokenId, expiresAt });
  now = expiresAt;
  expect(await run(forgetTokens)).toEqual({ changed: 0, more: false });
  expect(
    await isRevoked(database.pool, { ...holder, tokenId: 'a', mark: 0, issuedAt: 0, subject: undefined }),
  ).toBe(true);
  now = expiresAt + 60_001;
  expect(await dryRunJob(forgetTokens, context)).toEqual([{ reason: 'expired', class: 'token', rows: 3 }]);
  expect(await run(forgetTokens, { rows: 2, batches: 1 })).toEqual({ changed: 2, more: true });
  expect(await run(forgetTokens)).toEqual({ changed: 1, more: false });
});

it('a session is forgotten with its token once its time is over, and not before', async () => {
  const [community] = communities as [number];
  const { pool } = database;
  const sessions = new PostgresSessions(pool);
  const holder = { community, pubkey: newAuthor().pubkey };
  const refs = ['a', 'b', 'c'].map((digit) => ({ ...holder, tokenHash: digit.repeat(64) }));
  const kept = { createdAt: now, expiresAt: now + 900_000, csrfHash: 'd'.repeat(64) };
  for (const ref of refs) await sessions.create(ref, kept);
  await sessions.create({ ...holder, tokenHash: 'e'.repeat(64) }, { ...kept, expiresAt: now + 9_000_000 });
  now = kept.expiresAt + 60_000;
  expect(await run(forgetSessions)).toEqual({ changed: 0, more: false });
  now += 1;
  expect(await dryRunJob(forgetSessions, context)).toEqual([
    { reason: 'expired', class: 'session', rows: 3 },
  ]);
  expect(await run(forgetSessions, { rows: 2, batches: 1 })).toEqual({ changed: 4, more: true });
  expect(await run(forgetSessions)).toEqual({ changed: 2, more: false });
  expect(await sessions.endAll(holder)).toBe(1);
  expect(await countSessions(pool, { type: 'member', ...holder })).toBe(0);
});

it('all run by themselves', () => {
  expect(JOBS).toEqual(expect.arrayContaining([forgetUsage, forgetTokens, forgetSessions]));
});
