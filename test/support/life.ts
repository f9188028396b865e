/**
 * Any number of instances without sockets on one database, with communities of given rules, and one clock that the test
 * moves. Events go straight to a lane: what is tested here begins after the signature.
 */
import { createHash } from 'node:crypto';
import type { Client } from 'pg';
import { readConfig } from '../../src/config.js';
import { type NostrEvent, serializeEvent } from '../../src/core/event.js';
import { isRefusal, words } from '../../src/core/reply.js';
import type { IngestPolicy } from '../../src/core/retention.js';
import type { SettingKey } from '../../src/core/settings.js';
import { BOUNDS, type Job, type JobContext } from '../../src/jobs/job.js';
import { runJob } from '../../src/jobs/run.js';
import { createLog } from '../../src/log.js';
import { type Database, openDatabase } from '../../src/postgres/database.js';
import { prepareDatabase } from '../../src/prepare.js';
import { addCommunity, writeSetting } from '../../src/store/communities.js';
import { ensurePartitions } from '../../src/store/partitions.js';
import { startWriter, type Writer } from '../../src/writer.js';
import { createTestDatabase, type TestDatabase } from './database.js';
import { writeTopic } from './topics.js';

/** More than any sweep of a test needs. */
const RUNS_MAX = 500;

export interface Rules {
  readonly settings?: Partial<Record<SettingKey, unknown>>;
  readonly topics?: Readonly<Record<string, IngestPolicy>>;
}

export interface Life {
  readonly test: TestDatabase;
  readonly database: Database;
  /** A session of the test's own. */
  readonly client: Client;
  readonly writers: readonly Writer[];
  /** By the place of their rules. */
  readonly communities: readonly number[];
  /** Milliseconds. */
  now: number;
  /** What the client would be told, `stored` and so on where it is accepted. */
  submit(
    instance: number,
    community: number,
    event: NostrEvent,
    vanishIn?: readonly number[],
  ): Promise<string>;
  /** Runs a job until nothing is left to do. Gives back how much it changed. */
  run(job: Job, instance?: number, bounds?: JobContext['bounds']): Promise<number>;
  close(): Promise<void>;
}

export async function openLife(start: number, rules: readonly Rules[], instances = 1): Promise<Life> {
  const test = await createTestDatabase();
  const database = openDatabase(test.connection);
  const config = readConfig({ MINATO_TOPIC_MODE: 'open', MINATO_DATA_DIR: test.folder });
  const log = createLog('error');
  const clock = { now: start };
  const now = () => clock.now;
  await prepareDatabase(database, config, now, log);
  const communities: number[] = [];
  for (const [at, rule] of rules.entries()) communities.push(await makeCommunity(database, at, rule, start));
  const client = await database.connect();
  await ensurePartitions(client, start);
  const writers: Writer[] = [];
  while (writers.length < instances)
    writers.push(await startWriter({ database, config, log, now, makesRoom: false }));
  const signal = new AbortController().signal;
  return {
    test,
    database,
    client,
    writers,
    communities,
    get now() {
      return clock.now;
    },
    set now(moved: number) {
      clock.now = moved;
    },
    submit: async (instance, community, event, vanishIn) => {
      const payload = serializeEvent(event);
      const submission = { community, event, payload, ...(vanishIn ? { vanishIn } : {}) };
      const outcome = await writers[instance]!.lane.submit(submission);
      return isRefusal(outcome) ? words(outcome) : outcome;
    },
    run: (job, instance = 0, bounds = BOUNDS) => {
      const { lane, communities: watched, erasing } = writers[instance]!;
      return runToEnd(job, { database, lane, communities: watched, erasing, now, signal, bounds });
    },
    close: async () => {
      await client.end();
      for (const writer of writers) await writer.close();
      await database.close();
      await test.drop();
    },
  };
}

async function makeCommunity(
  { pool }: Database,
  at: number,
  { settings = {}, topics = {} }: Rules,
  now: number,
): Promise<number> {
  const community = await addCommunity(pool, `rules-${at}`, undefined, now);
  for (const [key, value] of Object.entries(settings))
    await writeSetting(pool, community, key as SettingKey, value, now);
  for (const [topic, policy] of Object.entries(topics))
    await writeTopic(pool, community, topic, { pinned: true, public: true, priority: 0, policy }, now);
  return community;
}

async function runToEnd(job: Job, context: JobContext): Promise<number> {
  let changed = 0;
  for (let runs = 0; runs < RUNS_MAX; runs += 1) {
    const result = await runJob(job, context);
    if (result === 'busy') throw new Error('another job ran');
    changed += result.changed;
    if (!result.more) return changed;
  }
  throw new Error(`${job.name} never ends`);
}

export const hash = (text: string) => createHash('sha256').update(text).digest('hex');

/** An event that nobody signed; its id is of its content, as it should be, but not the one of NIP-01. */
export function unsigned(
  draft: Pick<NostrEvent, 'kind' | 'pubkey' | 'created_at'> & Partial<NostrEvent>,
): NostrEvent {
  const { pubkey, created_at, kind, tags = [], content = '' } = draft;
  const id = hash(JSON.stringify([pubkey, created_at, kind, tags, content]));
  return { id, pubkey, created_at, kind, tags, content, sig: 'c'.repeat(128) };
}
