/**
 * Rebuilds a consumer as a new generation beside the live one (I9). It pins the head of the outbox, scans the
 * effective events up to the pin, replays the outbox from the pin, and swaps the generations.
 *
 * The scan reads what is effective at that moment. An event that was hidden before the pin is not scanned. An
 * event that is hidden after the pin, scanned or not, has a delete in the replay. So nothing deleted comes
 * back. Only the holder of the lease saves a step, with its effect, and a crash continues from there.
 */
import type { ClientBase } from 'pg';
import type { Log } from '../../node/log.js';
import { OutboxBehind } from '../outbox.sql.js';
import type { Batches, Course, Page } from './batches.js';
import type { Consumer } from './consumer.js';
import {
  holdLease,
  pinRebuild,
  type Rebuild,
  type RebuildProgress,
  saveReplay,
  saveScan,
  swapGenerations,
} from './consumers.sql.js';
import { Overtaken } from './failures.js';
import { FOLLOW_ROWS_MAX, readOn } from './follow.js';

/** All their events are in memory at once. */
const SCAN_ROWS_MAX = 100;

export interface Rebuilder {
  readonly consumer: Consumer;
  readonly batches: Batches;
  readonly holder: string;
  readonly log: Log;
  readonly now: () => number;
}

/**
 * Does one step. The generations are swapped when the new one has reached the offset of the live one, or the
 * end of the outbox.
 */
export async function rebuildStep(
  rebuilder: Rebuilder,
  rebuild: Rebuild,
  liveSeq: number | undefined,
): Promise<void> {
  const { batches, consumer, log } = rebuilder;
  if (rebuild.pinnedSeq === null) return begin(rebuilder, rebuild);
  if (rebuild.lastSeq === null) {
    await batches.take(scanCourse(rebuilder, rebuild, rebuild.pinnedSeq));
    return;
  }
  try {
    const course = replayCourse(rebuilder, rebuild, rebuild.lastSeq);
    const { full } = await batches.take(course);
    if (!full || (liveSeq !== undefined && course.from >= liveSeq)) await swap(rebuilder, rebuild);
  } catch (error) {
    if (!(error instanceof OutboxBehind)) throw error;
    log.error(
      { consumer: consumer.name },
      'the outbox no longer has the rows that the rebuild needs; it begins again',
    );
    await begin(rebuilder, rebuild);
  }
}

async function begin({ batches, consumer, holder, log, now }: Rebuilder, rebuild: Rebuild): Promise<void> {
  const { generation, reason } = rebuild;
  await batches.transact(async (tx) => {
    // First, so that this transaction and a takeover of the lease wait for each other.
    if (!(await holdLease(tx, consumer.name, holder))) throw new Overtaken();
    await consumer.open?.(tx, generation);
    if (!(await pinRebuild(tx, consumer.name, generation, now()))) throw new Overtaken();
  });
  log.info({ consumer: consumer.name, generation, reason }, 'the rebuild of a consumer begins');
}

async function swap({ batches, consumer, holder, log, now }: Rebuilder, rebuild: Rebuild): Promise<void> {
  await batches.transact(async (tx) => {
    const swapped = await swapGenerations(tx, { consumer: consumer.name, holder, now: now() });
    if (!swapped) throw new Overtaken();
  });
  log.info(
    { consumer: consumer.name, generation: rebuild.generation },
    'the rebuild of a consumer is complete',
  );
}

function scanCourse(rebuilder: Rebuilder, rebuild: Rebuild, pinnedSeq: number): Course {
  const { events } = rebuilder.batches;
  return rebuildCourse(rebuilder, rebuild, {
    start: rebuild.scannedSeq,
    rowsMax: SCAN_ROWS_MAX,
    read: async (tx, after, limit, place) => {
      const page = await events.view(tx, { after, place, upTo: pinnedSeq, limit });
      return { ...page, full: !page.isDone, isWhole: true };
    },
    save: (tx, progress, { changes, place, isDone = false }) =>
      saveScan(tx, { ...progress, rows: changes.length, place, isDone }),
  });
}

function replayCourse(rebuilder: Rebuilder, rebuild: Rebuild, start: number): Course {
  return rebuildCourse(rebuilder, rebuild, {
    start,
    rowsMax: FOLLOW_ROWS_MAX,
    read: readOn,
    save: saveReplay,
  });
}

interface Step {
  readonly start: number;
  readonly rowsMax: number;
  readonly read: (tx: ClientBase, after: number, limit: number, place?: string) => Promise<Page>;
  readonly save: (tx: ClientBase, progress: RebuildProgress, page: Page) => Promise<boolean>;
}

function rebuildCourse(
  { consumer, holder, now }: Rebuilder,
  { generation, scannedPlace }: Rebuild,
  { start, rowsMax, read, save }: Step,
): Course {
  let from = start;
  let place = scannedPlace ?? undefined;
  return {
    generation,
    rowsMax,
    get from() {
      return from;
    },
    read: (tx, limit) => read(tx, from, limit, place),
    save: async (tx, page) => {
      const progress = { consumer: consumer.name, generation, from, to: page.upTo, now: now() };
      return (await save(tx, progress, page)) && (await holdLease(tx, consumer.name, holder));
    },
    passed: (page) => {
      from = page.upTo;
      ({ place } = page);
    },
  };
}
