/**
 * NIP-40: from the second of its expiration an event is not served (I7). This sweep announces it and purges
 * its row. It cannot come back, because its own tag refuses it.
 */

import { inBatches, type Job } from '../../jobs/job.js';
import { tallied } from '../../jobs/tally.js';
import { countExpired } from '../postgres/sweeps.js';
import { PREVIEWED_MAX } from '../store.js';
import { tallyPreviews } from './previewed.js';

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
  dryRun: async ({ store, now }, client, state) =>
    store.preview !== undefined
      ? tallyPreviews(store.preview, state, 'expired', [{ by: 'expiration', limit: PREVIEWED_MAX }])
      : tallied('expired', await countExpired(client, Math.floor(now() / 1_000), state)),
};
