/**
 * NIP-40: from its second an event is not served any more (I7); this sweep announces it and takes it out of the database.
 * It cannot come back: its own tag refuses it.
 */
import { countExpired, selectExpired } from '../store/sweeps.js';
import { inBatches, type Job } from './job.js';
import { tallied } from './tally.js';

const seconds = (now: number) => Math.floor(now / 1_000);

export const expire: Job = {
  name: 'expire',
  cron: '* * * * *',
  about: 'announces events whose expiration has come, and purges them',
  purges: true,
  run: (context) =>
    inBatches(context, () =>
      context.lane.hide({
        hidden: 'expired',
        purge: true,
        select: (client, now) => selectExpired(client, seconds(now), context.bounds.rows),
      }),
    ),
  dryRun: async (context, client, gone) =>
    tallied('expired', await countExpired(client, seconds(context.now()), gone)),
};
