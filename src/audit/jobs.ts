/**
 * Moves the rows of the audit log to DynamoDB, if it is configured. A row is written there before it is
 * deleted here, so a kill in between only writes it again under the same key. While DynamoDB is unavailable
 * the rows wait here. A second job deletes rows older than erasure.auditKeepDays in both stores.
 */

import { DAY_MS } from '../events/rules/retention.js';
import { inBatches, type Job, type JobContext, type JobResult } from '../jobs/job.js';
import { type AuditRows, countMovable, moveAudit } from './audit.sql.js';
import { PostgresAudit } from './postgres.js';
import type { AuditStore } from './store.js';

/** Few, so that an erasure does not wait long for the lock. */
const MOVED_ROWS = 100;

export const shipAudit: Job = {
  name: 'ship-audit',
  cron: '* * * * *',
  about: 'moves the rows of the audit log to DynamoDB, if it is configured',
  purges: false,
  run: async (context, client) => {
    const { audit, bounds } = context;
    if (audit === undefined) return { changed: 0, more: false };
    const limit = Math.min(bounds.rows, MOVED_ROWS);
    return inBatches(context, () => moveAudit(client, limit, (rows) => audit.put(rows)));
  },
  dryRun: async ({ audit }, client) => {
    const rows = audit === undefined ? 0 : await countMovable(client);
    return rows === 0 ? [] : [{ reason: 'waiting', class: 'audit', rows }];
  },
};

export const forgetAudit: Job = {
  name: 'forget-audit',
  cron: '53 4 * * *',
  fill: '1d',
  about: 'deletes old rows of the audit log where erasure.auditLog is keep',
  purges: false,
  run: async (context) => {
    let { batches } = context.bounds;
    let changed = 0;
    for (const rows of pastRows(context)) {
      for (const store of storesOf(context)) {
        const result = await deleteUpTo(batches, store, rows, context.signal);
        changed += result.changed;
        batches -= result.batches;
        if (result.more) return { changed, more: true };
      }
    }
    return { changed, more: false };
  },
  dryRun: async (context) => {
    let counted = 0;
    for (const rows of pastRows(context))
      for (const store of storesOf(context)) counted += await store.count(rows);
    return counted === 0 ? [] : [{ reason: 'past', class: 'audit', rows: counted }];
  },
};

/** In the order in which a row moves, so that a row that moves meanwhile is not missed. */
function storesOf({ database, audit }: JobContext): AuditStore[] {
  return [new PostgresAudit(database.pool), ...(audit === undefined ? [] : [audit])];
}

function pastRows({ communities, now }: JobContext): AuditRows[] {
  const keeping = communities.all().filter(({ settings }) => settings['erasure.auditLog'] === 'keep');
  return keeping.map(({ id, settings }) => ({
    community: id,
    to: now() - settings['erasure.auditKeepDays'] * DAY_MS - 1,
  }));
}

async function deleteUpTo(
  batchesMax: number,
  store: AuditStore,
  rows: AuditRows,
  signal: AbortSignal,
): Promise<JobResult & { batches: number }> {
  let changed = 0;
  let batches = 0;
  for await (const taken of store.delete(rows)) {
    changed += taken;
    batches += 1;
    if (batches >= batchesMax || signal.aborted) return { changed, more: true, batches };
  }
  return { changed, more: false, batches };
}
