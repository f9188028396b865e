/** When jobs delete usage, calls of payment providers and tokens, and in which portions. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { isDenial } from '../../src/api/rules-errors.js';
import { addCommunity } from '../../src/communities/communities.sql.js';
import { DAY_MS } from '../../src/events/rules/retention.js';
import { BOUNDS, type Job, type JobContext } from '../../src/jobs/job.js';
import { JOBS } from '../../src/jobs/list.js';
import { dryRunJob, runJob } from '../../src/jobs/run.js';
import { forgetSessions } from '../../src/jobs/upkeep.js';
import { readConfig } from '../../src/node/config.js';
import { createLog } from '../../src/node/log.js';
import { startWriter, type Writer } from '../../src/node/writer.js';
import { forgetUsage } from '../../src/plans/jobs.js';
import { applyPlanEvent } from '../../src/plans/plans.sql.js';
import { countUse } from '../../src/plans/usage.sql.js';
import { type Database, openDatabase } from '../../src/postgres/database.js';
import { forgetTokens } from '../../src/sessions/jobs.js';
import { makeLink } from '../../src/sessions/links.sql.js';
import { PostgresSessions } from '../../src/sessions/postgres.js';
import { countSessions } from '../../src/sessions/sessions.sql.js';
import { isRevoked, revokeToken } from '../../src/sessions/tokens.sql.js';
import { newAuthor } from '../support/events.js';
import { createTestDatabase, type TestDatabase } from '../support/servers/database.js';

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
  const { store } = writer;
  context = {
    database,
    store,
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

it('requests are deleted after 2 days, provider calls after 90, counters after 400', async () => {
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

it('a revoked token is deleted only after it would have expired', async () => {
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

it('a link to sign in is deleted once it has expired, and not before', async () => {
  const [community] = communities as [number];
  const made = await makeLink(database.pool, { community, pubkey: newAuthor().pubkey }, now);
  if (isDenial(made)) throw new Error(made.denied);
  now = made.expiresAt + 60_000;
  expect(await run(forgetSessions)).toEqual({ changed: 0, more: false });
  now += 1;
  expect(await run(forgetSessions)).toEqual({ changed: 1, more: false });
});

it('a session is deleted with its CSRF token once it has expired, and not before', async () => {
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

it('all of these jobs are scheduled', () => {
  expect(JOBS).toEqual(expect.arrayContaining([forgetUsage, forgetTokens, forgetSessions]));
});
