/** Looks every day whether anything of those who were erased in the last 90 days is here again, and says so loudly. */
import { DAY_MS } from '../core/retention.js';
import { withRegistry } from '../erasure/all.js';
import { countLeftovers, findErased } from '../erasure/reaudit.js';
import { raiseAlarm, settleAlarms } from '../store/erasure-people.js';
import { completedSince } from '../store/erasures.js';
import { readSubjectPrint } from '../store/node-state.js';
import type { Job } from './job.js';

const LOOKED_AT_MS = 90 * DAY_MS;
/** The latest of them. */
const ERASED_MAX = 100_000;

export const reauditErasures: Job = {
  name: 'reaudit-erasures',
  cron: '47 3 * * *',
  fill: '1d',
  about: 'looks in every store for anything of those who were erased in the last 90 days',
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
        const print = await readSubjectPrint(client);
        if (print === undefined || !(await subjectKey.load(print)))
          throw new Error('the key of the erased is not here');
        const unseen: string[] = [];
        const onFailure = (error: unknown) =>
          void unseen.push(error instanceof Error ? error.message : String(error));
        const looking = { client: session, subjectKey, registry, signal, onFailure };
        const found = await findErased(looking, erased);
        const { leftovers, failed } = await countLeftovers(registry, found);
        unseen.push(...[...failed].map(([name, why]) => `${name} (${why})`));
        for (const { community, subject, store, count } of leftovers) {
          await raiseAlarm(client, { community, subject, store, found: count }, now());
          log?.error(
            { community, subject, store, found: count },
            'something of one who was erased is here again',
          );
        }
        // A store that did not answer has not been looked at: what was found there before still stands.
        if (unseen.length === 0) await settleAlarms(client, began, now());
        metrics?.erasureAlarms.set(leftovers.length);
        if (unseen.length > 0) throw new Error(`could not look everywhere: ${unseen.join(', ')}`);
        return { changed: leftovers.length, more: false };
      },
    );
  },
  dryRun: async () => [],
};
