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
import { inBatches, type Job, type JobContext } from './job.js';
import { Tally } from './tally.js';

/** Deletions that one look takes up; the others wait for the next. */
const DELETIONS_MAX = 100;

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
  dryRun: async (context, client) => {
    const tally = new Tally();
    for (const deletion of await pendingHistory(client, DELETIONS_MAX))
      await tallyPages(context, client, deletion, tally);
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
  { bounds }: JobContext,
  client: Client,
  from: HistoryDeletion,
  tally: Tally,
): Promise<void> {
  let place: HistoryPage['next'] = from;
  for (let pages = 0; pages < bounds.batches && place !== undefined; pages += 1) {
    const page: HistoryPage = await pageOfHistory(client, { ...from, ...place }, bounds.rows);
    for (const { event } of page.rows) tally.addEvent(event);
    place = page.next;
  }
}
