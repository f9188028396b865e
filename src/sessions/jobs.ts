/** Deletes revoked tokens after the time at which they would have expired. */
import { countBefore, forgetBefore } from '../jobs/forget.sql.js';
import { inBatches, type Job } from '../jobs/job.js';

/** The clock of another instance may be behind. */
const TOKENS_KEPT_MS = 60_000;

export const forgetTokens: Job = {
  name: 'forget-tokens',
  cron: '*/10 * * * *',
  about: 'deletes revoked tokens that would have expired by now',
  purges: false,
  run: (context, client) =>
    inBatches(context, () =>
      forgetBefore(client, 'revoked_tokens', context.now() - TOKENS_KEPT_MS, context.bounds.rows),
    ),
  dryRun: async ({ now }, client) => {
    const rows = await countBefore(client, 'revoked_tokens', now() - TOKENS_KEPT_MS);
    return rows === 0 ? [] : [{ reason: 'expired', class: 'token', rows }];
  },
};
