/** The job of the history: makes a row for each past hour from its minutes, and deletes old rows. */
import { inBatches, type Job } from '../jobs/job.js';
import { DAY_MS, HOUR_MS, inSteps } from './rules.js';
import { countOld, deleteOld, newestHour, noteSizes, readSamples, writeSamples } from './samples.sql.js';

/** Longer than what the pages show, so that a missed run loses nothing. */
export const MINUTES_KEPT_MS = 26 * HOUR_MS;
export const HOURS_KEPT_MS = 31 * DAY_MS;

const keptAt = (now: number) => ({ minutesSince: now - MINUTES_KEPT_MS, hoursSince: now - HOURS_KEPT_MS });

export const keepHistory: Job = {
  name: 'history',
  cron: '4 * * * *',
  fill: '2h',
  about: 'sums the figures of the overview by hour, and deletes old ones',
  purges: false,
  run: async (context, client) => {
    const now = context.now();
    const hour = Math.floor(now / HOUR_MS) * HOUR_MS;
    const newest = await newestHour(client);
    const since = Math.max(newest === undefined ? 0 : newest + HOUR_MS, hour - MINUTES_KEPT_MS);
    const hours = inSteps(await readSamples(client, 'minute', since, hour), HOUR_MS);
    await writeSamples(client, 'hour', hours);
    const noted = await noteSizes(client, hour);
    const old = await inBatches(context, () => deleteOld(client, keptAt(now), context.bounds.rows));
    return { changed: hours.length + noted + old.changed, more: old.more };
  },
  dryRun: async ({ now }, client) => {
    const rows = await countOld(client, keptAt(now()));
    return rows === 0 ? [] : [{ reason: 'past', class: 'sample', rows }];
  },
};
