/**
 * Walks the events of a filter from the oldest to the newest, as pairs of time and id (NIP-77), page by page.
 * A page is one aggregated value, so that a million of them are cheap to send and to read (I14). A filter
 * with one value scans an index in order and stops at the end of the page. A filter with many values scans
 * one index for each, so a page of it also ends after a span of time, which grows and shrinks with what it
 * found.
 */
import type { ClientBase, Pool } from 'pg';
import { hexArray } from '../../../postgres/binary.js';
import { type Bound, RECORD_BYTES, recordAt } from '../../../sync/rules-negentropy.js';
import type { Filter } from '../../rules/filter.js';
import type { RecordsFound, RecordsQuery } from '../../store.js';
import { dedupeOf } from '../places.js';
import type { Tables } from './find.js';
import { drivingTag, selectRows } from './query.js';
import { Parameters, run } from './statement.js';

/** Fewer scans read little more than the page. */
const SCANS_MAX = 4;
const SPAN_SECONDS = 86_400;
/** A span grows when less than half a page was in it, unless that took this long. */
const SLOW_MS = 100;
const SPAN_FACTOR = 4;
const NO_ID = new Uint8Array(0);

export async function readRecords({ pool, tagHash }: Tables, query: RecordsQuery): Promise<RecordsFound> {
  const { filter, limit, upper, upTo } = query;
  const isWide = isWideFilter(filter);
  const lower = isWide ? await notBeforeFirst(pool, query) : query.lower;
  const span = query.spanSeconds ?? SPAN_SECONDS;
  const nowSeconds = Math.floor(query.now / 1_000);
  // From now on there are few events, so the last span has no end.
  const spanEnd = isWide && lower.time + span < nowSeconds ? lower.time + span : undefined;
  const asked = {
    ...query,
    filter: withinTimes(filter, lower, upper, spanEnd),
    rising: { lower, upper, upTo },
  };
  const params = new Parameters();
  const rows = selectRows(asked, tagHash, params, 'e.created_at, e.id');
  const begunMs = performance.now();
  const { rows: found } = await run<[Buffer | null]>(
    pool,
    {
      text: `SELECT string_agg(int8send(r.created_at) || r.id, ''::bytea ORDER BY r.created_at, r.id)
        FROM (${rows}) r`,
      values: params.values,
    },
    filter.tags.length <= 2,
  );
  const tookMs = performance.now() - begunMs;
  const records = found[0]![0] ?? Buffer.alloc(0);
  const count = records.length / RECORD_BYTES;
  const next = count >= limit ? after(recordAt(records, count - 1)) : endOf(spanEnd, upper);
  return { records, next, spanSeconds: nextSpan(span, count < limit / 2, tookMs) };
}

function nextSpan(span: number, isSparse: boolean, tookMs: number): number {
  if (tookMs > SLOW_MS) return Math.max(1, Math.floor(span / SPAN_FACTOR));
  return isSparse ? span * SPAN_FACTOR : span;
}

/** The next bound after a record: nothing lies between an id and the same id plus one. */
function after({ time, id }: Bound): Bound {
  const next = new Uint8Array(id);
  for (let at = next.length - 1; at >= 0; at -= 1) {
    next[at] = (next[at]! + 1) & 0xff;
    if (next[at] !== 0) return { time, id: next };
  }
  return { time: time + 1, id: NO_ID };
}

function endOf(spanEnd: number | undefined, upper: Bound): Bound | undefined {
  return spanEnd === undefined || spanEnd >= upper.time ? undefined : { time: spanEnd, id: NO_ID };
}

function withinTimes(filter: Filter, lower: Bound, upper: Bound, spanEnd: number | undefined): Filter {
  const lastOfUpper = upper.id.length === 0 ? upper.time - 1 : upper.time;
  const until = Math.min(
    filter.until ?? lastOfUpper,
    lastOfUpper,
    spanEnd === undefined ? lastOfUpper : spanEnd - 1,
  );
  return {
    ...filter,
    since: Math.max(filter.since ?? lower.time, lower.time),
    ...(Number.isFinite(until) ? { until } : {}),
  };
}

/** One scan for each value, or rows that are read and do not match. */
function isWideFilter(filter: Filter): boolean {
  const { authors, kinds, tags } = filter;
  const scans = drivingTag(filter)?.values.size ?? authors?.size ?? kinds?.size ?? 1;
  return scans > SCANS_MAX || tags.length > 1;
}

/** The years before the first event are not walked. */
async function notBeforeFirst(
  pool: Pool | ClientBase,
  { community, lower, filter }: RecordsQuery,
): Promise<Bound> {
  if (lower.time > (filter.since ?? 0)) return lower;
  const { rows } = await run<[number | null]>(pool, {
    text: 'SELECT min(e.created_at) FROM events e WHERE e.community = $1::int AND e.hidden IS NULL',
    values: [community],
  });
  const first = Math.max(rows[0]![0] ?? 0, filter.since ?? 0);
  return first > lower.time ? { time: first, id: NO_ID } : lower;
}

/** Which of these ids have a dedupe row. */
export async function readKnown(
  pool: Pool | ClientBase,
  community: number,
  ids: readonly string[],
): Promise<ReadonlySet<string>> {
  const { rows } = await run<[string]>(pool, {
    text: `SELECT encode(d.event_id, 'hex') FROM unnest($2::bytea[]) AS asked (id)
      ${dedupeOf('$1::int', 'asked.id')}`,
    values: [community, hexArray(ids)],
  });
  return new Set(rows.map(([id]) => id));
}
