/**
 * Any number of instances without sockets on one database, with communities of given rules, and one clock
 * that the test moves. Events go directly to a lane; signatures are not checked.
 */
import { createHash } from 'node:crypto';
import type { Client } from 'pg';
import { addCommunity, writeSetting } from '../../../src/communities/communities.sql.js';
import type { SettingKey } from '../../../src/communities/rules-settings.js';
import { ensurePartitions } from '../../../src/events/postgres/partitions.js';
import { type NostrEvent, serializeEvent } from '../../../src/events/rules/event.js';
import { isRefusal, words } from '../../../src/events/rules/reply.js';
import type { IngestPolicy } from '../../../src/events/rules/retention.js';
import type { BatchWrites } from '../../../src/events/rules/writes.js';
import { BOUNDS, type Job, type JobContext } from '../../../src/jobs/job.js';
import { runJob } from '../../../src/jobs/run.js';
import { readConfig } from '../../../src/node/config.js';
import { createLog } from '../../../src/node/log.js';
import { prepareDatabase } from '../../../src/node/prepare.js';
import { startWriter, type Writer } from '../../../src/node/writer.js';
import { type Database, openDatabase } from '../../../src/postgres/database.js';
import { writeTopic } from '../domains/topics.js';
import { createTestDatabase, type TestDatabase } from '../servers/database.js';

/** More than any sweep of a test needs. */
const RUNS_MAX = 500;

export interface Rules {
  readonly settings?: Partial<Record<SettingKey, unknown>>;
  readonly topics?: Readonly<Record<string, IngestPolicy>>;
}

export interface Life {
  readonly test: TestDatabase;
  readonly database: Database;
  /** The test's own session. */
  readonly client: Client;
  readonly writers: readonly Writer[];
  /** In the order of their rules. */
  readonly communities: readonly number[];
  /** Milliseconds. */
  now: number;
  /** The message of the client's OK; `stored` and so on where the event is accepted. */
  submit(
    instance: number,
    community: number,
    event: NostrEvent,
    vanishIn?: readonly number[],
  ): Promise<string>;
  /** Runs a job until nothing is left to do. Returns how much it changed. */
  run(job: Job, instance?: number, bounds?: JobContext['bounds']): Promise<number>;
  /** Calls the listener for each commit of an instance, until the returned function is called. */
  onCommit(instance: number, listener: (writes: BatchWrites) => void): () => void;
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
  const listeners = Array.from({ length: instances }, () => new Set<(writes: BatchWrites) => void>());
  for (const own of listeners) {
    const onCommit = (writes: BatchWrites): void => {
      for (const listener of own) listener(writes);
    };
    writers.push(await startWriter({ database, config, log, now, makesRoom: false }, { onCommit }));
  }
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
      const outcome = await writers[instance]!.store.submit(submission);
      return isRefusal(outcome) ? words(outcome) : outcome;
    },
    run: (job, instance = 0, bounds = BOUNDS) => {
      const { store, communities: watched, erasing } = writers[instance]!;
      return runToEnd(job, { database, store, communities: watched, erasing, now, signal, bounds });
    },
    onCommit: (instance, listener) => {
      listeners[instance]!.add(listener);
      return () => void listeners[instance]!.delete(listener);
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
    if (result === 'busy') throw new Error('another job is running');
    changed += result.changed;
    if (!result.more) return changed;
  }
  throw new Error(`${job.name} never ends`);
}

export const hash = (text: string) => createHash('sha256').update(text).digest('hex');

/** An event without a signature. Its id is a hash of its content, but not the hash of NIP-01. */
export function unsigned(
  draft: Pick<NostrEvent, 'kind' | 'pubkey' | 'created_at'> & Partial<NostrEvent>,
): NostrEvent {
  const { pubkey, created_at, kind, tags = [], content = '' } = draft;
  const id = hash(JSON.stringify([pubkey, created_at, kind, tags, content]));
  return { id, pubkey, created_at, kind, tags, content, sig: 'c'.repeat(128) };
}
