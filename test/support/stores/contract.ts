/**
 * The stores that implement `src/events/store.ts`, for tests that hold for each of them: any number of
 * writers on the same data, with a clock and rules that the test sets.
 */
import { randomBytes } from 'node:crypto';
import { type Settings, settingsFrom } from '../../../src/communities/rules-settings.js';
import { Dynamodb } from '../../../src/events/dynamodb/client.js';
import { startDynamodbStore } from '../../../src/events/dynamodb/store.js';
import { ensureTables } from '../../../src/events/dynamodb/tables.js';
import { ensurePartitionsOf } from '../../../src/events/postgres/partitions.js';
import { startPostgresStore } from '../../../src/events/postgres/store.js';
import type { TagHash } from '../../../src/events/postgres/tag-hash.js';
import { type NostrEvent, serializeEvent } from '../../../src/events/rules/event.js';
import type { Filter } from '../../../src/events/rules/filter.js';
import { REGULAR_KEEPS } from '../../../src/events/rules/keep.js';
import { isRefusal, words } from '../../../src/events/rules/reply.js';
import type { Retention, TopicRule } from '../../../src/events/rules/retention.js';
import type { EventStore, FoundEvent } from '../../../src/events/store.js';
import { createLog } from '../../../src/node/log.js';
import { createMetrics } from '../../../src/node/metrics.js';
import type { Database } from '../../../src/postgres/database.js';
import { sharedDynamodb } from '../servers/dynamodb.js';
import { openTestStore } from './store.js';

export const STORES = ['postgres', 'dynamodb'] as const;
export type StoreName = (typeof STORES)[number];

export interface Rules {
  readonly settings?: Settings;
  readonly topics?: ReadonlyMap<string, TopicRule>;
}

export interface Contract {
  readonly name: StoreName;
  /** Of the tables in DynamoDB. */
  readonly prefix: string | undefined;
  readonly stores: readonly EventStore[];
  readonly tagHash: TagHash;
  readonly database: Database;
  /** Milliseconds. */
  now: number;
  /** A community that no test has used, with these rules. */
  community(rules?: Rules): number;
  /** The message of the client's OK; `stored` and so on where the event is accepted. */
  submit(community: number, event: NostrEvent, how?: SubmitHow): Promise<string>;
  find(community: number, filter?: Partial<Filter>, how?: FindHow): Promise<FoundEvent[]>;
  /** The ids of what is found, in the order of the answer. */
  ids(community: number, filter?: Partial<Filter>, how?: FindHow): Promise<string[]>;
  retention(community: number): Retention;
  close(): Promise<void>;
}

export interface SubmitHow {
  readonly writer?: number;
  readonly vanishIn?: readonly number[];
}
export interface FindHow {
  readonly limit?: number;
  readonly rules?: Retention;
}

export const START = Date.UTC(2026, 0, 28);

export interface ContractOptions {
  readonly writers?: number;
  /** Where each writer finds DynamoDB; by default the one that all files share. */
  readonly endpoints?: readonly string[];
}

export async function openContract(name: StoreName, options: ContractOptions = {}): Promise<Contract> {
  const clock = { now: START };
  const now = () => clock.now;
  const test = await openTestStore({ now, logLevel: 'silent' });
  const client = await test.database.connect();
  await ensurePartitionsOf(
    client,
    REGULAR_KEEPS.map((keep) => ({ keep, ingestedAt: START })),
  );
  await client.end();
  const rules = new Map<number, Rules>();
  const settingsOf = (community: number) => rules.get(community)?.settings ?? settingsFrom(new Map());
  const topicsOf = (community: number) => rules.get(community)?.topics ?? new Map<string, TopicRule>();
  const { database, tagHash } = test;
  const common = { database, tagHash, now, settingsOf, topicsOf, log: createLog('silent') };
  const { endpoints, writers = endpoints?.length ?? 2 } = options;
  const clients = name === 'dynamodb' ? await openDynamodb(writers, endpoints) : [];
  const communities = () => [...rules.keys()];
  const stores = Array.from({ length: writers }, (_, writer): EventStore => {
    const db = clients[writer];
    return db === undefined
      ? startPostgresStore({ ...common, metrics: createMetrics() })
      : startDynamodbStore({ ...common, db, communities });
  });
  const find: Contract['find'] = (community, filter = {}, { limit = 5_000, rules: retention } = {}) =>
    stores[0]!.find(
      { community, filter: { tags: [], ...filter }, limit, now: clock.now, rules: retention },
      'light',
    );
  return {
    name,
    prefix: clients[0]?.prefix,
    stores,
    tagHash,
    database,
    get now() {
      return clock.now;
    },
    set now(moved: number) {
      clock.now = moved;
    },
    community: (own = {}) => {
      const community = 1_000 + rules.size;
      rules.set(community, own);
      return community;
    },
    submit: async (community, event, { writer = 0, vanishIn } = {}) => {
      const payload = serializeEvent(event);
      const submission = { community, event, payload, ...(vanishIn === undefined ? {} : { vanishIn }) };
      const outcome = await stores[writer]!.submit(submission);
      return isRefusal(outcome) ? words(outcome) : outcome;
    },
    find,
    ids: async (...asked) => (await find(...asked)).map(({ id }) => id),
    retention: (community) => ({ settings: settingsOf(community), topics: topicsOf(community) }),
    close: async () => {
      await Promise.all(stores.map((store) => store.close()));
      await Promise.all(clients.map((client) => client.close()));
      await test.close();
    },
  };
}

/** Clients of the same new tables. */
export async function openDynamodb(count: number, endpoints?: readonly string[]): Promise<Dynamodb[]> {
  const { url } = await sharedDynamodb();
  const place = { region: 'us-east-1', prefix: `t${randomBytes(4).toString('hex')}_` };
  const clients = Array.from(
    { length: count },
    (_, at) => new Dynamodb({ ...place, endpoint: endpoints?.[at] ?? url }),
  );
  await ensureTables(clients[0]!);
  return clients;
}

export const settings = (values: Record<string, unknown>): Settings =>
  settingsFrom(new Map(Object.entries(values)));

/** A topic that keeps its events for this many days. */
export const topicOf = (retentionDays: number): TopicRule => ({
  enabled: true,
  blocked: false,
  public: true,
  priority: 0,
  policy: { retentionDays },
});
