/**
 * Jobs on events in DynamoDB: purges for space, dry runs that count what a run then takes, and jobs that have
 * nothing to do there. The jobs of PostgreSQL have their own tests; here the totals follow a moment later.
 */
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { addCommunity, writeSetting } from '../../src/communities/communities.sql.js';
import { capacity } from '../../src/events/jobs/capacity.js';
import { expire } from '../../src/events/jobs/expire.js';
import { forgetRequests } from '../../src/events/jobs/forget-requests.js';
import { purgeHistory } from '../../src/events/jobs/purge-history.js';
import { retain } from '../../src/events/jobs/retain.js';
import type { NostrEvent } from '../../src/events/rules/event.js';
import { serializeEvent } from '../../src/events/rules/event.js';
import { DAY_MS } from '../../src/events/rules/retention.js';
import { BOUNDS, type Job, type JobContext } from '../../src/jobs/job.js';
import { dryRunJobs, runJob } from '../../src/jobs/run.js';
import { eventually, runCli } from '../support/cli.js';
import { writeTopic } from '../support/domains/topics.js';
import { type Draft, newAuthor, nowSeconds, sign } from '../support/events.js';
import { startTestNode, type TestNode } from '../support/node.js';
import { CREDENTIALS, sharedDynamodb } from '../support/servers/dynamodb.js';

let relay: TestNode;
let community: number;
let made = 0;
let ahead = 0;
const alice = newAuthor();

beforeAll(async () => {
  relay = await startTestNode({ store: 'dynamodb', now: () => Date.now() + ahead, jobs: [], consumers: [] });
});
afterAll(() => relay?.close());
beforeEach(async () => {
  ahead = 0;
  made += 1;
  community = await addCommunity(relay.database.pool, `jobs-${made}`, undefined, Date.now());
  await eventually('the community is known', () => relay.node.communities.get(community) && true);
});

const contextOf = (): JobContext => {
  const { store, communities, erasing } = relay.node;
  const { signal } = new AbortController();
  const now = () => Date.now() + ahead;
  return { database: relay.database, store, communities, erasing, now, signal, bounds: BOUNDS };
};
const run = async (job: Job) => {
  const result = await runJob(job, contextOf());
  if (result === 'busy') throw new Error('another job was running');
  return result;
};
const preview = async (...jobs: Job[]) =>
  (await dryRunJobs(jobs, contextOf())).map((found) => `${found.job} ${found.reason} ${found.rows}`);
const set = async (key: 'capacity.maxEvents' | 'deletion.keepRequestsDays', value: unknown) => {
  await writeSetting(relay.database.pool, community, key, value, Date.now());
  await eventually('the setting is in force', () =>
    relay.node.communities.get(community)!.settings[key] === value ? true : undefined,
  );
};

async function post(draft: Draft = {}): Promise<NostrEvent> {
  made += 1;
  const event = sign(alice, { content: `${made}`, ...draft });
  expect(await relay.node.store.submit({ community, event, payload: serializeEvent(event) })).toBe('stored');
  return event;
}
const served = async () =>
  (
    await relay.node.store.find({ community, filter: { tags: [] }, limit: 100, now: Date.now() }, 'light')
  ).map(({ id }) => id);
const total = async () =>
  (
    await relay.database.pool.query<{ events: number }>(
      'SELECT events FROM community_totals WHERE community = $1',
      [community],
    )
  ).rows[0]?.events ?? 0;
const counted = (events: number) =>
  eventually('the totals follow', async () => ((await total()) === events ? true : undefined));

describe('a dry run', () => {
  // The first test: jobs look at all communities.
  it('counts what each job then takes, and an event once', async () => {
    await set('deletion.keepRequestsDays', 10);
    await post({ tags: [['expiration', `${nowSeconds() + 1_000}`]] });
    await post();
    await post({ kind: 0, created_at: nowSeconds() - 5 });
    await post({ kind: 0 });
    await post({ kind: 5, tags: [['e', 'a'.repeat(64)]] });
    ahead = 400 * DAY_MS;
    const jobs = [expire, purgeHistory, retain, forgetRequests];
    expect(await preview(...jobs)).toEqual([
      'expire expired 1',
      'purge-history superseded 1',
      'retain retention 1',
      'forget-requests retention 1',
    ]);
    // Nothing was changed.
    expect((await preview(expire)).length).toBe(1);
  });
});

describe('a community over its limit', () => {
  it('loses its oldest regular events, as the dry run says, and nothing twice', async () => {
    await set('capacity.maxEvents', 10);
    const profile = await post({ kind: 0 });
    const notes: NostrEvent[] = [];
    for (let at = 0; at < 11; at += 1) notes.push(await post());
    await counted(12);
    const [expected] = await preview(capacity);
    expect(expected).toMatch(/^capacity capacity \d+$/);
    const { changed } = await run(capacity);
    expect(`capacity capacity ${changed}`).toBe(expected);
    const left = new Set([profile.id, ...notes.slice(changed).map(({ id }) => id)]);
    expect(new Set(await served())).toEqual(left);
    // The totals may not have it yet: a second run right after it takes nothing.
    expect((await run(capacity)).changed).toBe(0);
    await counted(12 - changed);
    expect((await run(capacity)).changed).toBe(0);
    expect(new Set(await served())).toEqual(left);
  });

  it('a topic with a limit of its own loses its oldest events, and others none', async () => {
    const policy = { maxEvents: 5 };
    const topic = { pinned: true, public: true, priority: 0, policy };
    await writeTopic(relay.database.pool, community, 'sea', topic, Date.now());
    await eventually('the topic is known', () =>
      relay.node.communities.get(community)!.topics.get('sea')?.policy.maxEvents === 5 ? true : undefined,
    );
    const tags = [['t', 'sea']];
    const other = await post();
    const posts: NostrEvent[] = [];
    for (let at = 0; at < 7; at += 1) posts.push(await post({ tags, created_at: nowSeconds() - 50 + at }));
    await counted(8);
    const { changed } = await run(capacity);
    expect(changed).toBeGreaterThan(1);
    expect(new Set(await served())).toEqual(new Set([other.id, ...posts.slice(changed).map(({ id }) => id)]));
  });
});

describe('jobs that have nothing to do', () => {
  it('are not scheduled, and say why', async () => {
    const { url } = await sharedDynamodb();
    const env = {
      ...CREDENTIALS,
      DATABASE_URL: relay.test.url,
      MINATO_DATA_DIR: relay.test.folder,
      MINATO_EVENT_STORE: 'dynamodb',
      DYNAMODB_ENDPOINT: url,
      MINATO_DYNAMODB_PREFIX: `${relay.test.connection.database}_`,
    };
    const { stdout } = await runCli(['jobs', '--json'], env);
    const jobs = JSON.parse(stdout) as { name: string; notRun: string | null }[];
    expect(jobs.filter(({ notRun }) => notRun !== null).map(({ name }) => name)).toEqual([
      'purge-deleted',
      'drop-months',
      'forget-dedupe',
    ]);
    const refused = await runCli(['jobs', 'run', 'forget-dedupe'], env);
    expect(refused.code).toBe(1);
    expect(refused.stderr).toContain(
      'forget-dedupe does not run with events in dynamodb: TTL removes the ids',
    );
  });
});
