/**
 * A generation built anew, beside the one that is read (I9): pinned at the head of the outbox, the view is scanned up to the pin, the
 * outbox is replayed from it, and the new one takes the other's place.
 *
 * The scan sees what is effective when it comes by. What was hidden before the pin is not seen by it, and what is hidden after the
 * pin, seen or not, comes as a delete in the replay: so nothing comes back. Every step is saved with its effect, by the holder only,
 * and goes on from there after a crash.
 */
import type { Log } from '../log.js';
import { readView } from '../store/changes.js';
import {
  holdTurn,
  pinRebuild,
  type Rebuild,
  type RebuildProgress,
  saveReplay,
  saveScan,
  swapGenerations,
} from '../store/consumers.js';
import { OutboxBehind } from '../store/outbox.js';
import type { Batches, Course } from './batches.js';
import type { Consumer } from './consumer.js';
import { Overtaken } from './failures.js';
import { FOLLOW_ROWS_MAX, readOn } from './follow.js';

/** Their events are all in memory at once. */
const SCAN_ROWS_MAX = 100;

export interface Rebuilder {
  readonly consumer: Consumer;
  readonly batches: Batches;
  readonly holder: string;
  readonly log: Log;
  readonly now: () => number;
}

/** One step further. It takes the other's place when it has come as far as that one, or to the end of the outbox. */
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
    log.error({ consumer: consumer.name }, 'the rebuild fell behind the outbox, and begins again');
    await begin(rebuilder, rebuild);
  }
}

async function begin({ batches, consumer, holder, log, now }: Rebuilder, rebuild: Rebuild): Promise<void> {
  const { generation, reason } = rebuild;
  await batches.transact(async (tx) => {
    // First, so that whoever takes over waits for this, or this for them.
    if (!(await holdTurn(tx, consumer.name, holder))) throw new Overtaken();
    await consumer.open?.(tx, generation);
    if (!(await pinRebuild(tx, consumer.name, generation, now()))) throw new Overtaken();
  });
  log.info({ consumer: consumer.name, generation, reason }, 'a consumer is rebuilt');
}

async function swap({ batches, consumer, holder, log, now }: Rebuilder, rebuild: Rebuild): Promise<void> {
  await batches.transact(async (tx) => {
    const swapped = await swapGenerations(tx, { consumer: consumer.name, holder, now: now() });
    if (!swapped) throw new Overtaken();
  });
  log.info({ consumer: consumer.name, generation: rebuild.generation }, 'a consumer has been rebuilt');
}

function scanCourse(rebuilder: Rebuilder, rebuild: Rebuild, pinnedSeq: number): Course {
  return rebuildCourse(rebuilder, rebuild, {
    start: rebuild.scannedSeq,
    rowsMax: SCAN_ROWS_MAX,
    read: async (tx, after, limit) => {
      const changes = await readView(tx, { after, upTo: pinnedSeq, limit });
      const full = changes.length === limit;
      return { changes, upTo: full ? changes.at(-1)!.seq : pinnedSeq, full };
    },
    save: (tx, progress, rows) => saveScan(tx, { ...progress, rows }),
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
  readonly read: typeof readOn;
  readonly save: (
    tx: Parameters<typeof saveReplay>[0],
    progress: RebuildProgress,
    rows: number,
  ) => Promise<boolean>;
}

function rebuildCourse(
  { consumer, holder, now }: Rebuilder,
  { generation }: Rebuild,
  { start, rowsMax, read, save }: Step,
): Course {
  let from = start;
  return {
    generation,
    rowsMax,
    get from() {
      return from;
    },
    read: (tx, limit) => read(tx, from, limit),
    save: async (tx, { changes, upTo }) => {
      const progress = { consumer: consumer.name, generation, from, to: upTo, now: now() };
      return (await save(tx, progress, changes.length)) && (await holdTurn(tx, consumer.name, holder));
    },
    passed: ({ upTo }) => {
      from = upTo;
    },
  };
}
