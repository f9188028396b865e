/** Carries erasures out in a process that is no node (a command), or before a node serves anybody. */
import { npubEncode } from 'nostr-tools/nip19';
import type { JobContext } from '../jobs/job.js';
import { runJob } from '../jobs/run.js';
import type { NodeKeys } from '../keys/keys.js';
import type { Log } from '../node/log.js';
import type { Metrics } from '../node/metrics.js';
import { type Assisting, assistConsumers } from '../outbox/consumers/assist.js';
import { consumersOf } from '../outbox/consumers/list.js';
import { certificatesFile } from './certificates/sign.js';
import { listWaiting } from './erasures.sql.js';
import { findForgotten, strangeOrigin, strangersAmong } from './forgotten.js';
import { erase } from './jobs.js';
import { replayErasures } from './replay.js';
import { unfencedReplays } from './replay.sql.js';
import { READER_WAITS_MAX, waitsForReaders } from './stores/outbox.js';
import { withRegistry } from './stores/registry.js';

export interface Reading extends JobContext {
  readonly keys: NodeKeys;
  readonly metrics: Metrics;
  readonly log: Log;
  /** Reads the stream of a store in DynamoDB, until the function that it returns is called. */
  readonly follow?: (() => () => Promise<void>) | undefined;
}

/** Does the work while this process runs the consumers, unless another process holds their leases. */
export async function withConsumers<T>(
  context: Reading,
  work: (consumers: Assisting) => Promise<T>,
): Promise<T> {
  const { subjectKey } = context.erasing;
  const consumers = await assistConsumers({
    ...context,
    events: context.changed,
    consumers: consumersOf({ ...context, subjectKey }),
  });
  const stopStream = context.follow?.();
  try {
    return await work(consumers);
  } finally {
    await stopStream?.();
    await consumers.stop();
  }
}

const WAITING_MAX = 100;
/** Another instance may run the same job; each wait for it takes about 15 seconds. */
const BUSY_MAX = 20;

// ── After a restore ────────────────────────────────────────────────────────────────────────────────────────

/**
 * Before anything is served (I6): applies erasures again that a restored database does not know, from the
 * certificates in the data folder. When that cannot be done it rejects and says what to do, and the node does
 * not start. An erasure that is fenced and not completed continues while the node serves.
 */
export async function replayForgotten(context: Reading, folder: string): Promise<void> {
  const { erasing, database, communities, now, signal, bounds, log } = context;
  const path = certificatesFile(folder);
  const found = await findForgotten(erasing.pool, folder);
  if (found.unreadable > 0)
    log.warn({ path, lines: found.unreadable }, 'skipped lines that are no certificates');
  if (found.proofs.length > 0) {
    const why = await strangeOrigin(erasing.pool, found);
    if (why !== undefined) throw new Error(otherDatabase(path, why));
    const [stranger] = await strangersAmong(erasing, found.proofs);
    if (stranger !== undefined)
      throw new Error(
        `${path} has certificates that the database does not know, signed by ${npubEncode(stranger)}, ` +
          'which is no key of this node. Nothing is served before they are applied: ' +
          `if you trust that key, minato erase replay --key ${npubEncode(stranger)}`,
      );
    const { length: certificates } = found.proofs;
    log.warn(
      { path, certificates },
      'the database was restored from a backup: ' +
        'erasures since then are applied again before anything is served',
    );
    const { marked, again } = await withRegistry(erasing, database, { now, rows: bounds.rows }, (opened) =>
      replayErasures({ ...erasing, ...opened, signal, now }, found.proofs),
    );
    log.info({ refused: marked, erased: again.length }, 'their refusals are in force again');
  }
  if ((await unfencedReplays(erasing.pool)).length === 0) return communities.refresh();
  await withConsumers(context, (consumers) => carryOut(context, consumers));
  const left = await unfencedReplays(erasing.pool);
  if (left.length > 0)
    throw new Error(
      `erasure ${left[0]} has to be carried out again after a restore, and failed ` +
        `(minato erase show ${left[0]} says why). Nothing is served before: fix that, then start again`,
    );
  // An erased community must not be known here when the port opens.
  await communities.refresh();
  log.info('what was erased before the restore is erased again');
}

export const otherDatabase = (path: string, why: string) =>
  `${path} has certificates of erasures that this database does not know, ` +
  `and it is not the database that they are of: ${why}. Check DATABASE_URL and MINATO_DATA_DIR. ` +
  'If this is to be a new node, move that file away; ' +
  'if it is the same database after all, minato erase replay --key with each signer';

async function carryOut(context: Reading, consumers: Assisting): Promise<void> {
  const { database, signal, log } = context;
  let busy = 0;
  for (let waits = 0; waits < READER_WAITS_MAX && busy < BUSY_MAX && !signal.aborted; ) {
    const result = await runJob(erase, context);
    log.info({ erasures: (await unfencedReplays(database.ownPool)).length, result }, 'erasing again');
    if (result === 'busy') busy += 1;
    else if (!result.more) {
      if (!(await listWaiting(database.ownPool, WAITING_MAX)).some(waitsForReaders)) return;
      if (!(await consumers.caughtUp(signal, (about) => log.debug({ about }, 'erasing again')))) return;
      waits += 1;
    }
  }
}
