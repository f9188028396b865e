/** What a client hears when its events could not be read. */
import { type Refusal, refusal } from '../core/reply.js';
import type { Log } from '../log.js';
import { SearchTooLong } from '../store/search.js';
import { QueryTooLong, SearchNotReady } from './stored.js';

const QUERY_CANCELED = '57014';
const SEARCH_NOT_READY = refusal('error', 'what can be searched is still being gathered; try again later');

export const SEARCH_BEHIND = refusal(
  'error',
  'search is behind: the latest changes are not all among its answers',
);

export const SEARCH_OUTDATED = refusal(
  'error',
  'search is being rebuilt: older posts may be missing among its answers',
);

export const CANNOT_READ = refusal('error', 'events could not be read, try again in a moment');

export function readFailure(error: unknown, log: Log): Refusal {
  if (error instanceof SearchNotReady) return SEARCH_NOT_READY;
  const isTooLong = error instanceof QueryTooLong || error instanceof SearchTooLong;
  if (isTooLong || (error as { code?: string }).code === QUERY_CANCELED) {
    return refusal('error', 'the query took too long; narrow the filter');
  }
  log.warn({ error: String(error) }, 'events could not be read');
  return CANNOT_READ;
}
