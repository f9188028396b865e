/**
 * A deletion by address also deletes the superseded versions of that address. Versions that did not fit in
 * one lane batch are deleted here, page by page; the position is saved with the deletion. They were announced
 * when they were superseded, so nothing is announced now.
 */
import type { Client } from 'pg';
import { inBatches, type Job, type JobContext } from '../../jobs/job.js';
import { Tally } from '../../jobs/tally.js';
import type { DryRunState } from '../postgres/dry-run.js';
import {
  type HistoryDeletion,
  type HistoryPage,
  pageOfHistory,
  pendingHistory,
} from '../postgres/history.js';
import { COUNT_MAX } from '../postgres/sweeps.js';
import { tallyPreviews } from './previewed.js';

/** The most deletions that a dry run reads. */
const DELETIONS_COUNTED_MAX = 10_000;

export const deleteHistory: Job = {
  name: 'delete-history',
  cron: '* * * * *',
  about: 'deletes the remaining older versions of events that their authors deleted',
  purges: true,
  run: async (context) => {
    let changed = 0;
    const passed = await inBatches(context, async () => {
      const { versions, found } = await context.store.deleteHistory(context.bounds.rows);
      changed += versions;
      return found ? 1 : 0;
    });
    return { changed, more: passed.more };
  },
  dryRun: async (context, client, state) => {
    const { preview } = context.store;
    if (preview !== undefined) return tallyPreviews(preview, state, 'deleted', [{ by: 'left' }]);
    const tally = new Tally();
    for (const deletion of await pendingHistory(client, DELETIONS_COUNTED_MAX))
      await tallyPages(context, client, deletion, { tally, state });
    return tally.counts('deleted');
  },
};

async function tallyPages(
  { bounds, communities }: JobContext,
  client: Client,
  from: HistoryDeletion,
  { tally, state }: { readonly tally: Tally; readonly state: DryRunState },
): Promise<void> {
  const isSoft = communities.get(from.community)?.settings['deletion.mode'] !== 'physical';
  let place: HistoryPage['next'] = from;
  for (let looked = 0; looked < COUNT_MAX && place !== undefined; looked += bounds.rows) {
    const page: HistoryPage = await pageOfHistory(client, { ...from, ...place }, bounds.rows);
    const rows = (await state.left(page.rows)).map((row) => ({
      ...row,
      bytes: 0,
    }));
    for (const { event } of rows) tally.addEvent(event);
    await state.take(rows, { served: false });
    if (isSoft) state.deletedNow.push(...rows);
    place = page.next;
  }
}
