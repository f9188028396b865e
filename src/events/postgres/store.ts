/**
 * The event store on PostgreSQL. Writes go through the lane (lane/); reads and changes use the connection
 * pool of their query class. Nothing is decided here.
 */

import { eventsDeleter } from '../../erasure/stores/events.js';
import { readChangesOf } from '../../outbox/changes.sql.js';
import { readAnchor, readBus, readBusHead, readHead, readOutbox } from '../../outbox/outbox.sql.js';
import type { EventStore } from '../store.js';
import { positionsWithoutRow, withUnnamed } from '../unnamed-changes.js';
import { purgeHiddenById, readNewestOf } from './erased-events.js';
import { passHistory, pendingHistory } from './history.js';
import { type LaneOptions, startLane } from './lane/lane.js';
import { countEvents } from './read/count.js';
import { findEvents, readEventsById, readNewest, readPayloads } from './read/find.js';
import { readMarks } from './read/hidden-at-read.js';
import { readKnown, readRecords } from './read/records.js';
import { storedInPostgres } from './read/stored-events.js';
import type { Replica } from './replica.js';
import { isServed, writeSeen } from './seen.js';

export interface PostgresStoreOptions extends LaneOptions {
  readonly replica?: Replica | undefined;
}

export function startPostgresStore(options: PostgresStoreOptions): EventStore {
  const { database, tagHash, replica, now: clock } = options;
  const { pool, ownPool, queryPools } = database;
  const lane = startLane(options);
  const reading: Replica['read'] =
    replica === undefined ? (as, work) => work(queryPools[as]) : (as, work) => replica.read(as, work);
  return {
    stored: storedInPostgres(tagHash),
    get depth() {
      return lane.depth;
    },
    submit: lane.submit,
    hide: lane.hide,
    sweep: lane.sweep,
    restore: lane.restore,
    mark: lane.mark,
    close: lane.close,
    deleteHistory: async (rowsMax) => {
      const [deletion] = await pendingHistory(pool, 1);
      if (deletion === undefined) return { versions: 0, found: false };
      const { versions, next } = await lane.deletePage(deletion, rowsMax);
      await passHistory(pool, deletion, next);
      return { versions, found: true };
    },
    countSeen: (seen) => writeSeen(pool, seen),
    find: (query, as) => reading(as, (pool) => findEvents({ pool, tagHash }, query)),
    count: (query, inSlot) =>
      countEvents((filter, ask) => inSlot(filter, (as) => reading(as, ask)), tagHash, query),
    payloads: (rows, as) => reading(as, (pool) => readPayloads(pool, rows)),
    byIds: (refs, as) =>
      as === undefined ? readEventsById(ownPool, refs) : reading(as, (pool) => readEventsById(pool, refs)),
    newest: (community, after) => readNewest(pool, community, after),
    records: (query, as) => reading(as, (pool) => readRecords({ pool, tagHash }, query)),
    known: (community, ids) => readKnown(pool, community, ids),
    isServed: (community, event) => isServed(pool, community, event),
    head: () => readHead(ownPool),
    changesOf: (query, as) => reading(as, (pool) => readChangesOf(pool, query)),
    anchor: (position, as) => reading(as, (pool) => readAnchor(pool, position)),
    tagKey: (community, letter, value) => tagHash(community, letter, value).toString(),
    changes: async (after, limit, withOutlines) => {
      const { entries, lastSeq } = await readOutbox(ownPool, after, limit, withOutlines);
      const without = positionsWithoutRow(entries, after, limit, lastSeq);
      // Mostly there is none, and the rows stay as they were read.
      if (without.length === 0) return { changes: entries, head: lastSeq };
      return { changes: withUnnamed(entries, without, await readMarks(ownPool, without)), head: lastSeq };
    },
    broadcastHead: () => readBusHead(ownPool),
    broadcasts: (after, limit) => readBus(ownPool, after, limit),
    deleters: (session) => [eventsDeleter({ ...session, store: lane, tagHash })],
    purge: async (refs, hidden) => {
      if (refs.length === 0) return;
      await lane.hide({ hidden, purge: true, which: { by: 'ids', refs } });
      await purgeHiddenById(pool, refs, clock());
    },
    strangersAmong: async (keys) => keys,
    newestOf: (owned, fence) => readNewestOf(ownPool, owned, fence),
    endMark: async () => undefined,
    settled: async () => true,
    personal: async function* () {},
  };
}
