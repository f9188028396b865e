/**
 * A deletion by address takes the superseded versions of that address along. Those that the lane could not hold in one batch
 * follow here, page by page; how far it has come is kept with the deletion. They are in nobody's view and were announced when
 * they were superseded, so nothing is said about them now.
 */
import type { Client } from 'pg';
import {
  type HistoryDeletion,
  type HistoryPage,
  pageOfHistory,
  passHistory,
  pendingHistory,
} from '../store/history.js';
import { COUNT_MAX } from '../store/sweeps.js';
import type { WouldGo } from '../store/would-go.js';
import { inBatches, type Job, type JobContext } from './job.js';
import { Tally } from './tally.js';

/** Deletions that a dry run looks at. */
const DELETIONS_COUNTED_MAX = 10_000;

export const deleteHistory: Job = {
  name: 'delete-history',
  cron: '* * * * *',
  about: 'deletes older versions of what its author deleted, where there are many',
  purges: true,
  run: async (context, client) => {
    let changed = 0;
    const passed = await inBatches(context, async () => {
      const pending = await pendingHistory(client, 1);
      for (const deletion of pending) changed += await takePage(context, client, deletion);
      return pending.length;
    });
    return { changed, more: passed.more };
  },
  dryRun: async (context, client, gone) => {
    const tally = new Tally();
    for (const deletion of await pendingHistory(client, DELETIONS_COUNTED_MAX))
      await tallyPages(context, client, deletion, { tally, gone });
    return tally.counts('deleted');
  },
};

async function takePage(
  { lane, bounds, communities }: JobContext,
  client: Client,
  deletion: HistoryDeletion,
): Promise<number> {
  let page: HistoryPage | undefined;
  const taken = await lane.hide({
    hidden: 'deleted',
    purge: communities.get(deletion.community)?.settings['deletion.mode'] === 'physical',
    select: async (session) => {
      page = await pageOfHistory(session, deletion, bounds.rows);
      return [...page.rows];
    },
  });
  await passHistory(client, deletion, page?.next);
  return taken;
}

async function tallyPages(
  { bounds, communities }: JobContext,
  client: Client,
  from: HistoryDeletion,
  { tally, gone }: { readonly tally: Tally; readonly gone: WouldGo },
): Promise<void> {
  const isSoft = communities.get(from.community)?.settings['deletion.mode'] !== 'physical';
  let place: HistoryPage['next'] = from;
  for (let looked = 0; looked < COUNT_MAX && place !== undefined; looked += bounds.rows) {
    const page: HistoryPage = await pageOfHistory(client, { ...from, ...place }, bounds.rows);
    const rows = (await gone.left(page.rows)).map((row) => ({
      ...row,
      bytes: 0,
    }));
    for (const { event } of rows) tally.addEvent(event);
    await gone.take(rows, { served: false });
    if (isSoft) gone.deletedNow.push(...rows);
    place = page.next;
  }
}
