/** A store without sockets: a database of its own, prepared as at a node's start, and any number of lanes on it. */
import { readConfig } from '../../src/config.js';
import { type Settings, settingsFrom } from '../../src/core/settings.js';
import { LANE_LOCK, type Lane, type LaneOptions, startLane } from '../../src/lane.js';
import { createLog } from '../../src/log.js';
import { createMetrics } from '../../src/metrics.js';
import { type Database, openDatabase } from '../../src/postgres/database.js';
import { prepareDatabase } from '../../src/prepare.js';
import type { TagHash } from '../../src/store/tag-hash.js';
import { eventually } from './cli.js';
import { createTestDatabase, type TestDatabase } from './database.js';

export const defaultSettings = (): Settings => settingsFrom(new Map());

export interface TestStore {
  readonly test: TestDatabase;
  readonly database: Database;
  readonly tagHash: TagHash;
  /** Another lane; closed with the store, or before by the test. */
  lane(options?: Partial<LaneOptions>): Lane;
  close(): Promise<void>;
}

export interface TestStoreOptions {
  readonly now?: () => number;
  readonly logLevel?: string;
}

export async function openTestStore(options: TestStoreOptions = {}): Promise<TestStore> {
  const { now = Date.now, logLevel = 'warn' } = options;
  const test = await createTestDatabase();
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

/** Lines the works up before the lane's lock, each on a lane of its own, in this order; then the lock is theirs. */
export async function inLockOrder<T>(
  database: Database,
  works: readonly (() => Promise<T>)[],
): Promise<Awaited<T>[]> {
  const holder = await database.connect();
  await holder.query('SELECT pg_advisory_lock($1)', [LANE_LOCK]);
  const told: Promise<T>[] = [];
  try {
    for (const work of works) {
      told.push(work());
      await eventually(`${told.length} sessions wait for the lock`, async () => {
        const { rows } = await holder.query<{ waiting: number }>(
          `SELECT count(*) AS waiting FROM pg_locks WHERE locktype = 'advisory' AND objid = $1 AND NOT granted
             AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`,
          [LANE_LOCK],
        );
        return rows[0]!.waiting === told.length ? true : undefined;
      });
    }
  } finally {
    await holder.end();
  }
  return Promise.all(told);
}
