/** The stored part of a REQ: rows of every filter in one order, each once, sent in portions as the reader reads. */
import type { Pool } from 'pg';
import type { Community } from '../communities.js';
import { isPayloadExpired } from '../core/expiration.js';
import { type Filter, matchesNothing } from '../core/filter.js';
import { type FoundRow, findEvents, readPayloads } from '../store/query.js';
import type { TagHash } from '../store/tag-hash.js';
import type { Outgoing } from './outgoing.js';
import type { PayloadCache } from './payload-cache.js';
import type { Subscription } from './subscription.js';

/** One portion in memory at a time, whatever the limit of the filter. */
const PORTION_BYTES_MAX = 262_144;
const PORTION_ROWS_MAX = 1_000;

/** For all filters of one REQ together; each statement has its own timeout in the database. */
const QUERY_MS_MAX = 10_000;

export class QueryTooLong extends Error {}

export interface StoredContext {
  readonly pool: Pool;
  readonly tagHash: TagHash;
  readonly cache: PayloadCache;
  /** Milliseconds. */
  readonly now: () => number;
}

export const nowSeconds = (now: () => number) => Math.floor(now() / 1_000);

interface Asking extends StoredContext {
  /** Runs a query in the client's turn. */
  readonly ask: <T>(query: () => Promise<T>) => Promise<T>;
}

/** Sends the stored events of a subscription. Returns how many; stops early when the subscription ends. */
export async function sendStored(
  context: Asking,
  community: Community,
  subscription: Subscription,
  outgoing: Outgoing,
): Promise<number> {
  const rows = await findRows(context, community, subscription.filters);
  let sent = 0;
  for (const portion of portions(rows)) {
    await outgoing.room();
    if (subscription.ended) return sent;
    const payloads = await payloadsOf(context, community.id, portion);
    if (subscription.ended) return sent;
    const seconds = nowSeconds(context.now);
    portion.forEach((row, place) => {
      const payload = payloads[place];
      // A reader may take its time between two portions: the second of expiry may have come meanwhile (I7).
      if (payload === undefined || isPayloadExpired(payload, seconds)) return;
      subscription.sendStored(row.seq, row.id, payload);
      sent += 1;
    });
  }
  return sent;
}

async function findRows(
  { pool, tagHash, now, ask }: Asking,
  community: Community,
  filters: readonly Filter[],
): Promise<FoundRow[]> {
  const { id, settings } = community;
  const retention = { rules: community, now: now() };
  const found: FoundRow[][] = [];
  const deadline = performance.now() + QUERY_MS_MAX;
  for (const filter of filters) {
    if (performance.now() > deadline) throw new QueryTooLong();
    const limit = Math.min(filter.limit ?? settings['limits.limitDefault'], settings['limits.limitMax']);
    if (limit === 0 || matchesNothing(filter)) continue;
    found.push(await ask(() => findEvents(pool, id, filter, limit, tagHash, nowSeconds(now), retention)));
  }
  return found.length === 1 ? found[0]! : mergeRows(found.flat());
}

/** The union of several filters' rows: newest first, lowest id first, each once. */
function mergeRows(rows: FoundRow[]): FoundRow[] {
  const unique = new Map(rows.map((row) => [row.seq, row]));
  return [...unique.values()].sort((a, b) => b.createdAt - a.createdAt || (a.id < b.id ? -1 : 1));
}

function* portions(rows: readonly FoundRow[]): Generator<FoundRow[]> {
  let portion: FoundRow[] = [];
  let bytes = 0;
  for (const row of rows) {
    if (portion.length > 0 && (portion.length >= PORTION_ROWS_MAX || bytes + row.bytes > PORTION_BYTES_MAX)) {
      yield portion;
      portion = [];
      bytes = 0;
    }
    portion.push(row);
    bytes += row.bytes;
  }
  if (portion.length > 0) yield portion;
}

async function payloadsOf(
  { pool, cache, ask }: Asking,
  community: number,
  rows: readonly FoundRow[],
): Promise<(string | undefined)[]> {
  const payloads = rows.map((row) => cache.get(community, row.id));
  const missing = rows.flatMap((row, place) => (payloads[place] === undefined ? [{ row, place }] : []));
  if (missing.length === 0) return payloads;
  const rowsMissing = missing.map(({ row }) => row);
  const read = await ask(() => readPayloads(pool, rowsMissing));
  missing.forEach(({ row, place }, at) => {
    const payload = read[at];
    if (payload === undefined) return;
    payloads[place] = payload;
    cache.set(community, row.id, payload);
  });
  return payloads;
}
