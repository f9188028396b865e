/** A whole node in this process, on its own database. */

import { changeNodeSetting } from '../../src/communities/node-settings.sql.js';
import type { Job } from '../../src/jobs/job.js';
import { type Config, readConfig } from '../../src/node/config.js';
import type { PassedPort } from '../../src/node/instances/instance.js';
import { createLog, type Log, LogLines } from '../../src/node/log.js';
import { type Node, startNode } from '../../src/node/node.js';
import type { Role } from '../../src/node/roles.js';
import type { Consumer } from '../../src/outbox/consumers/consumer.js';
import type { EarlyPort } from '../../src/port/early-port.js';
import type { ServerBounds } from '../../src/port/server.js';
import { type Database, openDatabase } from '../../src/postgres/database.js';
import { eventually } from './cli.js';
import { writeTopic } from './domains/topics.js';
import { ledger } from './secrets/ledger.js';
import { keepNodeKeys } from './secrets/node-keys.js';
import { notedLog } from './secrets/noted-log.js';
import { createTestDatabase, type TestDatabase } from './servers/database.js';
import { createTables, sharedDynamodb } from './servers/dynamodb.js';
import { READY, TEMPLATE } from './servers/templates.js';
import type { StoreName } from './stores/contract.js';

export interface TestNode {
  readonly node: Node;
  readonly url: string;
  readonly http: string;
  readonly database: Database;
  readonly test: TestDatabase;
  readonly log: Log;
  close(): Promise<void>;
}

export interface TestNodeOptions {
  readonly env?: Record<string, string>;
  readonly now?: () => number;
  /** Another instance on the same database. */
  readonly on?: TestDatabase;
  /** All roles by default. */
  readonly roles?: readonly Role[];
  /** These consumers instead of the node's own. */
  readonly consumers?: readonly Consumer[];
  /** The scheduled jobs instead of all of them; an empty list where the test runs each job itself. */
  readonly jobs?: readonly Job[];
  /** Whether scores are computed and asserted. Off by default: most tests expect only their own events. */
  readonly trust?: boolean;
  /** How often consumers check whether their rules have changed. */
  readonly upkeepMs?: number;
  /** Limits of HTTP connections that differ from the defaults. */
  readonly httpBounds?: Partial<ServerBounds>;
  /** The port, if it is open already. */
  readonly early?: EarlyPort;
  /** Where its events are; PostgreSQL by default. Instances on one database share their tables. */
  readonly store?: StoreName;
  /** Where it finds DynamoDB; by default the one that all files share. */
  readonly endpoint?: string;
  /** The port of another process. */
  readonly passed?: PassedPort;
}

export async function startTestNode(options: TestNodeOptions = {}): Promise<TestNode> {
  const {
    env = {},
    now,
    on,
    roles,
    consumers,
    jobs,
    trust = false,
    upkeepMs,
    httpBounds,
    early,
    passed,
  } = options;
  const test = on ?? (await createTestDatabase(now === undefined ? READY : TEMPLATE));
  const database = openDatabase(test.connection);
  const read = readConfig({
    MINATO_PORT: '0',
    MINATO_DATA_DIR: test.folder,
    MINATO_TOPIC_MODE: 'open',
    MINATO_LOG_LEVEL: 'error',
    ...env,
  });
  const config = options.store === 'dynamodb' ? await inDynamodb(read, test, options.endpoint) : read;
  const logLines = new LogLines(Date.now());
  const log = notedLog(createLog(config.logLevel, 'stdout', logLines));
  if (config.metricsToken !== undefined) ledger.keep('metrics token', config.metricsToken);
  const node = await startNode({
    database,
    config,
    log,
    logLines,
    ...(now ? { now } : {}),
    ...(jobs ? { jobs } : {}),
    ...(upkeepMs === undefined ? {} : { upkeepMs }),
    ...(httpBounds ? { httpBounds } : {}),
    ...(early === undefined ? {} : { early }),
    ...(passed === undefined ? {} : { passed }),
    ...(roles ? { roles: new Set(roles) } : {}),
    consumers: consumers ?? ((listed) => listed.filter(({ name }) => trust || name !== 'trust')),
  });
  return {
    node,
    url: `ws://127.0.0.1:${node.port}`,
    http: `http://127.0.0.1:${node.port}`,
    database,
    test,
    log,
    close: async () => {
      await node.close();
      await database.close();
      await keepNodeKeys(test.folder);
      if (on === undefined) await test.drop();
    },
  };
}

/** The prefix comes from the name of the database, so that its instances find the same tables. */
async function inDynamodb(
  config: Config,
  { connection }: TestDatabase,
  endpoint: string | undefined,
): Promise<Config> {
  const { url } = await sharedDynamodb();
  const place = { endpoint: url, region: 'us-east-1', prefix: `${connection.database}_` };
  await createTables(place);
  return { ...config, eventStore: 'dynamodb', dynamodb: { ...place, endpoint: endpoint ?? url } };
}

/** Pins topics on the node, open to everyone. */
export async function pinTopics({ node, database }: TestNode, topics: readonly string[]): Promise<void> {
  const community = () => node.communities.find(undefined, undefined)!;
  for (const topic of topics) {
    const rules = { pinned: true, public: true, priority: 0, policy: {} };
    await writeTopic(database.pool, community().id, topic, rules, Date.now());
  }
  await eventually('the topics are carried', () =>
    topics.every((topic) => community().topics.get(topic)?.enabled) ? true : undefined,
  );
}

/** Waits until the relay holds the default community as a whole; with 0 MiB, until it holds nothing. */
export async function useWindow(
  { node, database }: TestNode,
  megabytes: number,
  isDone = () => {
    const { from } = node.memory.window.extent(1);
    return from === (megabytes === 0 ? Number.POSITIVE_INFINITY : Number.NEGATIVE_INFINITY);
  },
): Promise<void> {
  const key = 'node.memoryWindowMB';
  await changeNodeSetting(database.pool, { key, value: megabytes }, Date.now());
  const isKnown = () => node.communities.node()[key] === megabytes;
  await eventually('the window', () => (isKnown() && isDone()) || undefined);
}
