/**
 * Purges the search document of a deleted event after the row of the event was purged. A run looks at
 * documents that are old enough, the oldest first, up to a limit in each community. Documents whose event row
 * still exists are looked at again in the next run.
 */
import type { Client } from 'pg';
import type { Community } from '../communities/communities.js';
import { DAY_MS } from '../events/rules/retention.js';
import type { Job, JobContext, JobResult } from '../jobs/job.js';
import { countDeletedDocuments, type DeletedPosition, purgeDocuments } from './documents.sql.js';

export const purgeDocumentsOfDeleted: Job = {
  name: 'purge-documents',
  cron: '11 * * * *',
  fill: '2h',
  about: 'purges search documents of deleted events whose rows were purged',
  purges: true,
  run: async (context, client) => {
    let changed = 0;
    let more = false;
    for (const community of context.communities.all()) {
      const done = await purgeOf(context, client, community);
      changed += done.changed;
      more ||= done.more;
    }
    return { changed, more };
  },
  dryRun: async (context, client) => {
    let rows = 0;
    for (const community of context.communities.all())
      rows += await countDeletedDocuments(client, community.id, deletedBefore(context, community));
    return rows === 0 ? [] : [{ reason: 'deleted', class: 'document', rows }];
  },
};

/** Rows of events that were deleted later than this are not purged yet. */
const deletedBefore = ({ now }: Pick<JobContext, 'now'>, { settings }: Community): number =>
  now() - settings['deletion.auditDays'] * DAY_MS;

async function purgeOf(context: JobContext, client: Client, community: Community): Promise<JobResult> {
  const scope = { community: community.id, deletedBefore: deletedBefore(context, community) };
  let changed = 0;
  let after: DeletedPosition | undefined;
  for (let batches = 0; batches < context.bounds.batches && !context.signal.aborted; batches += 1) {
    const { purged, next } = await purgeDocuments(client, { ...scope, after }, context.bounds.rows);
    changed += purged;
    if (next === undefined) return { changed, more: false };
    after = next;
  }
  return { changed, more: changed > 0 };
}
