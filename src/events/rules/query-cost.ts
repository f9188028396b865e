/**
 * The cost of a query in milliseconds of a database session, estimated from its filter before it runs (I18).
 * Pure. The estimate chooses the slots in which the query waits (relay/query-gate.ts) and is charged to the
 * client. After the query the time that it really took is charged instead.
 *
 * Measured on a warm store of 100,000 events, two cores (ms of one statement, best of four):
 *
 *   REQ     ids 500: 10, ids 5,000: 60, newest 500: 2, newest 5,000: 21
 *           one author: 3, one topic: 5, the 5,000 newest of one topic: 38
 *           authors 200: 5, 900: 10, 2,000: 18, 5,000: 39, 5,000 with limit 5,000: 155
 *           authors without any event 900: 45, 5,000: 150
 *           500 topics: 12, two topics of which one is empty: 127
 *           5,000 `e`: 43, 5,000 `e` with limit 5,000: 870
 *   COUNT   up to 10,000: everything 16, one kind 20, one topic 82
 *           authors 200: 18, authors 5,000: 40, 200 `p`: 640
 */
import type { Filter } from './filter.js';

/** `search`: by words, which has sessions of its own. */
export type QueryClass = 'light' | 'medium' | 'heavy' | 'search';

export interface QueryCost {
  readonly class: QueryClass;
  readonly ms: number;
}

/** The query was not run: too many others wait, it waited too long, or the client is in debt. */
export class QueryNotRun extends Error {
  constructor(readonly retryAfterMs = 1_000) {
    super('the query was not run');
  }
}
/** Up to this cost a query is light: ids, one author, one topic, the newest. */
export const LIGHT_MS_MAX = 10;
/** Above this cost a query is heavy. The newest 500 events of 5,000 followed authors cost less. */
export const MEDIUM_MS_MAX = 150;

const STATEMENT_MS = 0.5;
const ID_MS = 0.013;
/** One index scan that finds nothing. */
const SCAN_MS = 0.01;
const ROW_MS = 0.005;
/** A row found by a tag: the tag row, then the event row. */
const TAGGED_ROW_MS = 0.009;
/** A row that is counted but not sorted. */
const COUNTED_ROW_MS = 0.002;
/** Reading one payload by its place. */
const PAYLOAD_MS = 0.012;
/** Reading one change of the outbox. */
const CHANGE_MS = 0.004;
/** Sending one event of an answer: time of the event loop, not of the database. */
const SENT_ROW_MS = 0.002;
/** An event of the window in memory that is looked at. */
const WALKED_MS = 0.0001;
/**
 * One filter value: parsed, added to the subscription index and removed again (1.0 µs of the event loop for
 * each of 5,000).
 */
const OPEN_VALUE_MS = 0.001;
/**
 * Few scans run once. Many run by windows of time, of which about two are needed
 * (events/postgres/read/windows.ts).
 */
const SCANS_ONCE_MAX = 50;
const WINDOWS = 2;
/** At most this many scans return rows that the limit then drops. */
const SPREAD_MAX = 8;
/** Rows read for each row that passes a second tag condition. */
const ROWS_READ_PER_MATCH = 4;
/** Tags that usually match few events, and how many. */
const SELECTIVE_TAGS = new Set(['a', 'd', 'e', 'i', 'q']);
const SELECTIVE_ROWS = 200;
/** An event with several of the requested tags is found once by each of them. */
const ROWS_PER_COUNTED = 4;
/** Half of the most that a search takes by words alone, with the references of the best matches. */
const SEARCH_MS = 100;

/** The stored events of one filter, up to the limit. */
export function findCost(filter: Filter, limit: number): QueryCost {
  if (filter.search !== undefined) return searchCost(filter);
  if (filter.ids !== undefined) return costOf(ID_MS * filter.ids.size);
  const { scans, rowMs, readPerMatch } = planOf(filter);
  const windows = scans > SCANS_ONCE_MAX ? WINDOWS : 1;
  return costOf(scans * windows * SCAN_MS + limit * Math.min(scans, SPREAD_MAX) * readPerMatch * rowMs);
}

/** How many events match one filter, up to `max`. */
export function countCost(filter: Filter, max: number): QueryCost {
  if (filter.search !== undefined) return searchCost(filter);
  if (filter.ids !== undefined) return costOf(ID_MS * filter.ids.size);
  const { scans, rowMs, readPerMatch, isSelective, isTagged } = planOf(filter);
  const counted = Math.min(filter.limit ?? max, max);
  const rows = isTagged && scans > 1 ? counted * ROWS_PER_COUNTED : counted;
  const expected = isSelective ? Math.min(rows, scans * SELECTIVE_ROWS) : rows;
  return costOf(scans * SCAN_MS + expected * readPerMatch * (isTagged ? rowMs : COUNTED_ROW_MS));
}

/** One page of a walk (events/postgres/read/records.ts): never light, because many follow one another. */
export function recordsCost(filter: Filter, rows: number): QueryCost {
  const { ms } = findCost(filter, rows);
  return { class: ms > MEDIUM_MS_MAX ? 'heavy' : 'medium', ms };
}

/** The payloads of events whose places are known. */
export function payloadsCost(rows: number): QueryCost {
  return { class: 'light', ms: STATEMENT_MS + rows * PAYLOAD_MS };
}

/** Changes of the outbox, read in order with what they say about their events. */
export function changesCost(rows: number): QueryCost {
  return costOf(rows * CHANGE_MS);
}

/** Milliseconds of the event loop to send this many events. */
export function sendingMs(rows: number): number {
  return rows * SENT_ROW_MS;
}

/** Milliseconds of the event loop to look at this many events in memory. */
export function walkingMs(steps: number): number {
  return steps * WALKED_MS;
}

/** Milliseconds of the event loop to open filters with this many values. */
export function openingMs(values: number): number {
  return values * OPEN_VALUE_MS;
}

/**
 * The class of a whole REQ or COUNT, over all its filters: every statement of it runs in the slots of that
 * class. Ten light filters together are not light, and the payload reads of an expensive query do not use the
 * slots of light ones.
 */
export function classOf(costs: readonly QueryCost[]): QueryClass {
  if (costs.some((cost) => cost.class === 'search')) return 'search';
  return classByMs(costs.reduce((sum, { ms }) => sum + ms, 0));
}

function searchCost({ search }: Filter): QueryCost {
  return { class: 'search', ms: SEARCH_MS * Math.max(1, (search?.terms.length ?? 0) / 4) };
}

function costOf(ms: number): QueryCost {
  const all = STATEMENT_MS + ms;
  return { class: classByMs(all), ms: all };
}

function classByMs(ms: number): QueryClass {
  if (ms <= LIGHT_MS_MAX) return 'light';
  return ms <= MEDIUM_MS_MAX ? 'medium' : 'heavy';
}

interface ScanPlan {
  /** Index scans, one for each requested value. */
  readonly scans: number;
  readonly rowMs: number;
  /** Rows read for each row that passes. */
  readonly readPerMatch: number;
  readonly isTagged: boolean;
  readonly isSelective: boolean;
}

/** The driving index, chosen by the rules of events/postgres/read/query.ts. */
function planOf({ authors, kinds, tags }: Filter): ScanPlan {
  const selective = tags.filter(({ name }) => SELECTIVE_TAGS.has(name));
  const usable = authors === undefined && selective.length === 0 ? tags : selective;
  const isTagged = usable.length > 0;
  const others = tags.length - (isTagged ? 1 : 0);
  const scans = isTagged
    ? Math.min(...usable.map(({ values }) => values.size))
    : Math.max(1, authors?.size ?? kinds?.size ?? 1);
  return {
    scans,
    rowMs: isTagged ? TAGGED_ROW_MS : ROW_MS,
    readPerMatch: ROWS_READ_PER_MATCH ** Math.min(others, 2),
    isTagged,
    isSelective: selective.length > 0,
  };
}
