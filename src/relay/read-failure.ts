/** The error that a client gets when its events could not be read. */
import { QueryNotRun } from '../events/rules/query-cost.js';
import { type Refusal, refusal } from '../events/rules/reply.js';
import type { Log } from '../node/log.js';
import { SearchTooLong } from '../search/search.sql.js';
import { ClientGone, isCancelled } from './query-gate.js';
import { QueryTooLong, SearchNotReady } from './stored.js';

const SEARCH_NOT_READY = refusal('error', 'what can be searched is still being gathered; try again later');

export const SEARCH_BEHIND = refusal(
  'error',
  'search is behind: the latest changes are not all among its answers',
);

export const SEARCH_OUTDATED = refusal(
  'error',
  'search is being rebuilt: older posts may be missing among its answers',
);

const TOO_LONG = refusal(
  'error',
  'the query took too long; narrow the filter: a later since, a lower limit, fewer authors or tags',
);

const NOT_RUN = refusal('rate-limited', 'your queries cost more than your share; wait, or narrow the filter');

export const CANNOT_READ = refusal('error', 'events could not be read, try again in a moment');

export function readFailure(error: unknown, log: Log): Refusal {
  if (error instanceof SearchNotReady) return SEARCH_NOT_READY;
  if (error instanceof QueryTooLong || error instanceof SearchTooLong || isCancelled(error)) return TOO_LONG;
  if (error instanceof QueryNotRun) return NOT_RUN;
  // No client is left to receive it.
  if (error instanceof ClientGone) return CANNOT_READ;
  log.warn({ error: String(error) }, 'events could not be read');
  return CANNOT_READ;
}
