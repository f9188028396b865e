/** A whole node in this process, on a database of its own. */

import { readConfig } from '../../src/config.js';
import { createLog } from '../../src/log.js';
import { type Node, startNode } from '../../src/node.js';
import { type Database, openDatabase } from '../../src/postgres/database.js';
import type { Role } from '../../src/roles.js';
import type { Consumer } from '../../src/services/consumer.js';
import { eventually } from './cli.js';
import { createTestDatabase, type TestDatabase } from './database.js';
import { writeTopic } from './topics.js';

export interface TestNode {
  readonly node: Node;
  readonly url: string;
  readonly http: string;
  readonly database: Database;
  readonly test: TestDatabase;
  close(): Promise<void>;
}

export interface TestNodeOptions {
  readonly env?: Record<string, string>;
  readonly now?: () => number;
  /** Another instance on the same database. */
  readonly on?: TestDatabase;
  /** All of them unless told. */
  readonly roles?: readonly Role[];
  /** Instead of those of the list. */
  readonly consumers?: readonly Consumer[];
  /** Scores are computed and asserted: most tests expect only what they have sent themselves. */
  readonly trust?: boolean;
  /** How often consumers look whether their rules have changed. */
  readonly upkeepMs?: number;
}

export async function startTestNode(options: TestNodeOptions = {}): Promise<TestNode> {
  const { env = {}, now, on, roles, consumers, trust = false, upkeepMs } = options;
  const test = on ?? (await createTestDatabase());
  const database = openDatabase(test.connection);
  const config = readConfig({
    MINATO_PORT: '0',
    MINATO_DATA_DIR: test.folder,
    MINATO_TOPIC_MODE: 'open',
    MINATO_LOG_LEVEL: 'error',
    ...env,
  });
  const node = await startNode({
    database,
    config,
    log: createLog(config.logLevel),
    ...(now ? { now } : {}),
    ...(upkeepMs === undefined ? {} : { upkeepMs }),
    ...(roles ? { roles: new Set(roles) } : {}),
    consumers: consumers ?? ((listed) => listed.filter(({ name }) => trust || name !== 'trust')),
  });
  return {
    node,
    url: `ws://127.0.0.1:${node.port}`,
    http: `http://127.0.0.1:${node.port}`,
    database,
    test,
    close: async () => {
      await node.close();
      await database.close();
      if (on === undefined) await test.drop();
    },
  };
}

/** Topics that the node carries from now on, open to everyone. */
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
