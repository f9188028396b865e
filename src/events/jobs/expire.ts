/**
 * NIP-40: from the second of its expiration an event is not served (I7). This sweep announces it and purges
 * its row. It cannot come back, because its own tag refuses it.
 */

import { inBatches, type Job } from '../../jobs/job.js';
import { tallied } from '../../jobs/tally.js';
import { countExpired } from '../postgres/sweeps.js';

export const expire: Job = {
  name: 'expire',
  cron: '* * * * *',
  about: 'announces expired events and purges them',
  purges: true,
  run: (context) =>
    inBatches(context, () =>
      context.store.hide({
        hidden: 'expired',
        purge: true,
        which: { by: 'expiration', limit: context.bounds.rows },
      }),
    ),
  dryRun: async (context, client, state) =>
    tallied('expired', await countExpired(client, Math.floor(context.now() / 1_000), state)),
};
