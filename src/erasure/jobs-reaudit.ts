/**
 * Checks every day whether rows of members who were erased in the last 90 days are here again; raises alarms.
 */
import { DAY_MS } from '../events/rules/retention.js';
import type { Job } from '../jobs/job.js';
import { readSubjectFingerprint } from '../node/state.sql.js';
import { completedSince } from './erasures.sql.js';
import { raiseAlarm, settleAlarms } from './people.sql.js';
import { countLeftovers, findErased } from './reaudit.js';
import { withRegistry } from './stores/registry.js';

const LOOKED_AT_MS = 90 * DAY_MS;
/** The latest of them. */
const ERASED_MAX = 100_000;

export const reauditErasures: Job = {
  name: 'reaudit-erasures',
  cron: '47 3 * * *',
  fill: '1d',
  about: 'checks every store for rows of members who were erased in the last 90 days',
  purges: false,
  run: async ({ database, erasing, now, bounds, signal, log, metrics }, client) => {
    const began = now();
    const erased = await completedSince(client, began - LOOKED_AT_MS, ERASED_MAX);
    if (erased.length === 0) return { changed: 0, more: false };
    return withRegistry(
      erasing,
      database,
      { now, rows: bounds.rows },
      async ({ client: session, registry }) => {
        const { subjectKey } = erasing;
        const fingerprint = await readSubjectFingerprint(client);
        if (fingerprint === undefined || !(await subjectKey.load(fingerprint)))
          throw new Error('the erasure key is not here');
        const unseen: string[] = [];
        const onFailure = (error: unknown) =>
          void unseen.push(error instanceof Error ? error.message : String(error));
        const looking = { client: session, subjectKey, registry, signal, onFailure };
        const found = await findErased(looking, erased);
        const { leftovers, failed } = await countLeftovers(registry, found);
        unseen.push(...[...failed].map(([name, why]) => `${name} (${why})`));
        for (const { community, subject, store, count } of leftovers) {
          await raiseAlarm(client, { community, subject, store, found: count }, now());
          log?.error({ community, subject, store, found: count }, 'rows of an erased member are here again');
        }
        // A store that did not answer was not checked: alarms about it stay open.
        if (unseen.length === 0) await settleAlarms(client, began, now());
        metrics?.erasureAlarms.set(leftovers.length);
        if (unseen.length > 0) throw new Error(`could not check every store: ${unseen.join(', ')}`);
        return { changed: leftovers.length, more: false };
      },
    );
  },
  dryRun: async () => [],
};
