/**
 * A store without sockets: a separate database, prepared as at a node's start, and any number of lanes on it.
 */

import { type Settings, settingsFrom } from '../../../src/communities/rules-settings.js';
import { type Lane, type LaneOptions, startLane } from '../../../src/events/postgres/lane/lane.js';
import { LANE_LOCK } from '../../../src/events/postgres/lane/lock.js';
import type { TagHash } from '../../../src/events/postgres/tag-hash.js';
import { readConfig } from '../../../src/node/config.js';
import { createLog } from '../../../src/node/log.js';
import { createMetrics } from '../../../src/node/metrics.js';
import { prepareDatabase } from '../../../src/node/prepare.js';
import { type Database, openDatabase } from '../../../src/postgres/database.js';
import { eventually } from '../cli.js';
import { createTestDatabase, type TestDatabase } from '../servers/database.js';
import { READY, TEMPLATE } from '../servers/templates.js';

export const defaultSettings = (): Settings => settingsFrom(new Map());

export interface TestStore {
  readonly test: TestDatabase;
  readonly database: Database;
  readonly tagHash: TagHash;
  /** Another lane. It is closed with the store, or earlier by the test. */
  lane(options?: Partial<LaneOptions>): Lane;
  close(): Promise<void>;
}

export interface TestStoreOptions {
  readonly now?: () => number;
  readonly logLevel?: string;
}

export async function openTestStore(options: TestStoreOptions = {}): Promise<TestStore> {
  const { now = Date.now, logLevel = 'warn' } = options;
  const test = await createTestDatabase(options.now === undefined ? READY : TEMPLATE);
  const database = openDatabase(test.connection);
  const log = createLog(logLevel);
  const config = readConfig({ MINATO_TOPIC_MODE: 'open', MINATO_DATA_DIR: test.folder });
  const { tagHash } = await prepareDatabase(database, config, now, log);
  const lanes: Lane[] = [];
  return {
    test,
    database,
    tagHash,
    lane: (options = {}) => {
      const metrics = createMetrics();
      const base = { database, tagHash, metrics, log, now, settingsOf: defaultSettings };
      const lane = startLane({ ...base, ...options });
      lanes.push(lane);
      return lane;
    },
    close: async () => {
      await Promise.all(lanes.map((lane) => lane.close()));
      await database.close();
      await test.drop();
    },
  };
}

/**
 * Makes the works wait for the lane's lock, each on a separate lane, in this order; then releases the lock.
 */
export async function inLockOrder<T>(
  database: Database,
  works: readonly (() => Promise<T>)[],
): Promise<Awaited<T>[]> {
  const holder = await database.connect();
  await holder.query('SELECT pg_advisory_lock($1)', [LANE_LOCK]);
  const results: Promise<T>[] = [];
  try {
    for (const work of works) {
      results.push(work());
      await eventually(`${results.length} sessions wait for the lock`, async () => {
        const { rows } = await holder.query<{ waiting: number }>(
          `SELECT count(*) AS waiting FROM pg_locks WHERE locktype = 'advisory' AND objid = $1 AND NOT granted
             AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`,
          [LANE_LOCK],
        );
        return rows[0]!.waiting === results.length ? true : undefined;
      });
    }
  } finally {
    await holder.end();
  }
  return Promise.all(results);
}
