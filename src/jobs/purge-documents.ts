/**
 * What search knew of a deleted event goes when the event's row has gone. A run looks at those that are old enough, from the oldest, in
 * each community up to the bound: those whose event is still there, for whatever reason, are looked at again in the next.
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

/** Before that no row of a deleted event is purged. */
const deletedBefore = ({ now }: Pick<JobContext, 'now'>, { settings }: Community): number =>
  now() - settings['deletion.auditDays'] * DAY_MS;

async function purgeOf(context: JobContext, client: Client, community: Community): Promise<JobResult> {
  const asked = { community: community.id, deletedBefore: deletedBefore(context, community) };
  let changed = 0;
  let after: DeletedPosition | undefined;
  for (let batches = 0; batches < context.bounds.batches && !context.signal.aborted; batches += 1) {
    const { purged, next } = await purgeDocuments(client, { ...asked, after }, context.bounds.rows);
    changed += purged;
    if (next === undefined) return { changed, more: false };
    after = next;
  }
  return { changed, more: changed > 0 };
}
