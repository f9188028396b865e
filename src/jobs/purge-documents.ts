/**
 * What search knew of a deleted event goes when the event's row has gone. Each run looks at those that are old enough once, from the
 * oldest: those whose event is still there, for whatever reason, are looked at again in the next.
 */
import type { Client } from 'pg';
import type { Community } from '../communities.js';
import { DAY_MS } from '../core/retention.js';
import { countDeletedDocuments, type DeletedPosition, purgeDocuments } from '../store/search-documents.js';
import type { Job, JobContext, JobResult } from './job.js';

export const purgeDocumentsOfDeleted: Job = {
  name: 'purge-documents',
  cron: '11 * * * *',
  fill: '2h',
  about: 'purges what search knew of deleted events whose rows are gone',
  purges: true,
  run: async (context, client) => {
    const { communities, bounds } = context;
    let changed = 0;
    let left = bounds.batches;
    for (const community of communities.all()) {
      const done = await purgeOf(context, client, community, left);
      changed += done.changed;
      left -= done.batches;
      if (done.more) return { changed, more: true };
    }
    return { changed, more: false };
  },
  dryRun: async (context, client) => {
    let rows = 0;
    for (const community of context.communities.all())
      rows += await countDeletedDocuments(client, community.id, deletedBefore(context, community));
    return rows === 0 ? [] : [{ reason: 'deleted', class: 'document', rows }];
  },
};

/** Before that no row of a deleted event is purged. */
const deletedBefore = ({ now }: Pick<JobContext, 'now'>, { settings }: Community): number =>
  now() - settings['deletion.auditDays'] * DAY_MS;

async function purgeOf(
  context: JobContext,
  client: Client,
  community: Community,
  batchesMax: number,
): Promise<JobResult & { batches: number }> {
  const asked = { community: community.id, deletedBefore: deletedBefore(context, community) };
  let changed = 0;
  let after: DeletedPosition | undefined;
  for (let batches = 1; batches <= batchesMax && !context.signal.aborted; batches += 1) {
    const { purged, next } = await purgeDocuments(client, { ...asked, after }, context.bounds.rows);
    changed += purged;
    if (next === undefined) return { changed, more: false, batches };
    after = next;
  }
  return { changed, more: changed > 0, batches: batchesMax };
}
