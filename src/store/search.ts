/**
 * Searching: the words find documents, the events themselves decide. Every condition of the filter and of its view is checked on
 * the event by the same SQL as a REQ, so what is deleted, expired or aged is gone from search with its commit, however far the
 * index is behind (I6, I7, I8).
 */
import type { Pool } from 'pg';
import type { AccessRules } from '../core/access.js';
import { type Denial, denial } from '../core/errors.js';
import type { Filter } from '../core/filter.js';
import type { TagHash } from './tag-hash.js';

export interface SearchPools {
  /** Events by walks along indexes, as for a REQ. */
  readonly pool: Pool;
  /** Documents by plans of their own. */
  readonly searchPool: Pool;
  readonly tagHash: TagHash;
}

export interface SearchedCommunity extends AccessRules {
  readonly id: number;
}

export interface FoundItem {
  readonly payload: string;
  readonly id: string;
  /** Seconds. */
  readonly createdAt: number;
  readonly score: number;
}

export interface SearchPage {
  readonly items: readonly FoundItem[];
  readonly nextCursor: string | undefined;
}

export interface SearchPageOf {
  readonly limit: number;
  /** As the page before gave it. */
  readonly cursor: string | undefined;
  /** Milliseconds. */
  readonly now: number;
}

/**
 * One page of what the public may find, the best first. The filter has its `search` (core/filter.ts); a view of its own is not
 * needed. INVALID_REQUEST: the cursor is not one of ours; SEARCH_NOT_READY: the index is not whole yet.
 */
export async function searchPage(
  _pools: SearchPools,
  _community: SearchedCommunity,
  _filter: Filter,
  _page: SearchPageOf,
): Promise<SearchPage | Denial> {
  return denial('SEARCH_NOT_READY');
}
