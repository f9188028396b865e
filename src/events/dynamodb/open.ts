/**
 * Opens the data plane in DynamoDB for a node: the tables, the store, and the worker that reads the stream.
 * Capacity units, throttling and the delay of the stream are in the metrics.
 */
import type { DynamodbPlace } from '../../node/config.js';
import type { Metrics } from '../../node/metrics.js';
import type { SearchedEvents } from '../../search/search.sql.js';
import { changedEventsOf } from './changed-events.js';
import { Dynamodb } from './client.js';
import { type DynamodbStore, type DynamodbStoreOptions, startDynamodbStore } from './store.js';
import { Streams } from './stream/client.js';
import { isStreamRead, StreamFollower } from './stream/follow.js';
import { checkTables } from './tables.js';

export interface DynamodbEvents {
  readonly db: Dynamodb;
  readonly store: DynamodbStore;
  /** Fails when the tables or their stream cannot be used. */
  check(): Promise<void>;
  /** Appends the stream to the log, until the function that it returns is called. */
  follow(): () => Promise<void>;
  close(): Promise<void>;
}

export interface OpenOptions extends Omit<DynamodbStoreOptions, 'db' | 'onRemovalsLeft' | 'isLogRead'> {
  readonly place: DynamodbPlace;
  readonly metrics: Metrics;
}

/** For commands that only read. The tables exist since a node has run. */
export function openDynamodbReads(
  options: Omit<DynamodbStoreOptions, 'db' | 'onRemovalsLeft'> & { readonly place: DynamodbPlace },
): Pick<DynamodbStore, 'stored' | 'close'> & { readonly elsewhere: SearchedEvents } {
  const db = new Dynamodb(options.place);
  const store = startDynamodbStore({ ...options, db });
  return {
    stored: store.stored,
    elsewhere: { events: store, changed: changedEventsOf(store, options.communities) },
    close: async () => {
      await store.close();
      await db.close();
    },
  };
}

export async function openDynamodbEvents(options: OpenOptions): Promise<DynamodbEvents> {
  const { place, metrics, database, tagHash, log, now } = options;
  const db = new Dynamodb(place, {
    used: (operation, units) => metrics.dynamodbUnits.inc({ operation }, units),
    throttled: (operation) => metrics.dynamodbThrottled.inc({ operation }),
  });
  const streams = new Streams(place);
  try {
    await checkTables(db);
    await streams.load();
  } catch (error) {
    await db.close();
    throw error;
  }
  const onRemovalsLeft = (count: number) => metrics.dynamodbRemovalsLeft.inc(count);
  const isLogRead = () => isStreamRead({ db, streams, pool: database.ownPool });
  const store = startDynamodbStore({ ...options, db, onRemovalsLeft, isLogRead });
  return {
    db,
    store,
    check: () => checkTables(db),
    follow: () => {
      const onLag = (ms: number) => metrics.dynamodbStreamLag.set(ms / 1_000);
      const follower = new StreamFollower({ db, streams, pool: database.ownPool, tagHash, log, now, onLag });
      follower.start();
      return () => follower.stop();
    },
    close: async () => {
      await store.close();
      await streams.close();
      await db.close();
    },
  };
}
