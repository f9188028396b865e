/**
 * Search. Words find documents; then each event is checked in the event store with the same SQL as a REQ, for
 * every condition of the filter and of the client's view. So deleted, expired and aged events disappear from
 * search with the commit, however far the index is behind (I6, I7, I8). Changes that the index has not read
 * yet are read from the outbox (ahead.sql.ts).
 *
 * The newest matches are the candidates. They are scored by words and age, and the best of them also by how
 * many events that the client may see refer to them. Candidates, documents, changes read ahead of the index
 * and time are limited (I14).
 */
import type { Pool } from 'pg';
import { type Denial, denial, isDenial } from '../api/rules-errors.js';
import { findEvents, type PostgresQuery, readEventsById } from '../events/postgres/read/find.js';
import { countReferences } from '../events/postgres/read/references.js';
import type { TagHash } from '../events/postgres/tag-hash.js';
import { type AccessRules, allowedTopics, publicView, type View } from '../events/rules/access.js';
import type { Version } from '../events/rules/classify.js';
import { type Filter, matchesNothing } from '../events/rules/filter.js';
import type { EventReads, FoundEvent } from '../events/store.js';
import type { ChangedEvents } from '../outbox/changes.sql.js';
import { hexArray, int4Array, textArray } from '../postgres/binary.js';
import { openPlace, type Seal, sealPlace } from '../postgres/sealed-cursor.js';
import { bytes } from '../postgres/values.js';
import { readAhead } from './ahead.sql.js';
import { topicMarks } from './documents.sql.js';
import { toRankQuery, toTsquery } from './rules.js';
import { REFERENCES_MAX, scoreOf } from './rules-score.js';
import { WORDS_VERSION } from './rules-words.js';

/** The number of newest matches that are scored. */
export const CANDIDATES_MAX = 1_000;
/** Documents read in one portion, and in one search. */
const PORTION = 1_000;
const DOCUMENTS_MAX = 20_000;
const SEARCH_MS_MAX = 5_000;
/** References are counted for this many of the best matches by words and age. */
const REFERRED_MAX = 100;
/** A search starts again when a newer index replaces the old one meanwhile. */
const TRIES_MAX = 3;

export class SearchTooLong extends Error {}

export interface SearchPools {
  /** For events, which are read along indexes as for a REQ. */
  readonly pool: Pool;
  /** For documents, whose queries need other planner settings. */
  readonly searchPool: Pool;
  readonly tagHash: TagHash;
  /** Where events are, if they are not in this database. */
  readonly elsewhere?: SearchedEvents | undefined;
}

/**
 * A store beside the database: documents come first, and each of their events is checked in the store. It
 * counts no references, because each would be a query of its own.
 */
export interface SearchedEvents {
  readonly events: Pick<EventReads, 'find' | 'byIds'>;
  readonly changed: ChangedEvents;
}

export interface PagePools extends SearchPools {
  /** The secret that cursors are sealed with. */
  readonly cursorSecret: string;
}

export interface SearchedCommunity extends AccessRules {
  readonly id: number;
}

/** The last result of a page. */
export interface Position {
  readonly score: number;
  readonly createdAt: number;
  readonly id: string;
}

export interface SearchOf {
  readonly limit: number;
  /** Milliseconds. */
  readonly now: number;
  /** Seconds: the time from which age is counted. Default: now. */
  readonly asOf?: number;
  /** Events after this offset are not found and do not raise a score. Default: the last offset. */
  readonly cut?: number;
  readonly after?: Position;
}

export interface ScoredRow extends FoundEvent {
  readonly score: number;
}

/** What the result may be missing. */
export interface IndexState {
  /** Number of changes that neither the index has read nor this search. */
  readonly behind: number;
  /** The index was made by older rules than the query uses; a new index is being built. */
  readonly isOutdated: boolean;
}

export interface Searched extends IndexState {
  /** The best first. */
  readonly rows: readonly ScoredRow[];
  readonly asOf: number;
  readonly cut: number;
}

// ── A search ───────────────────────────────────────────────────────────────────────────────────────────────

/** The best matches of a filter with `search`, ordered by score. */
export async function searchEvents(
  pools: SearchPools,
  community: SearchedCommunity,
  filter: Filter,
  asked: SearchOf,
): Promise<Searched | Denial> {
  const found = await candidatesOf(pools, community, filter, asked, {
    limit: CANDIDATES_MAX,
    documentsMax: DOCUMENTS_MAX,
    tooLong: AbortSignal.timeout(SEARCH_MS_MAX),
  });
  if (isDenial(found)) return found;
  const { index, rows, ahead, behind, isOutdated } = found;
  const { limit, after, asOf = Math.floor(asked.now / 1_000) } = asked;
  const scored = await score(pools, community, filter, { rows, ahead, index, asOf, now: asked.now });
  const left = after === undefined ? scored : scored.filter((row) => compare(after, row) < 0);
  return { rows: left.slice(0, limit), asOf, cut: index.cut, behind, isOutdated };
}

export interface Counted extends IndexState {
  readonly count: number;
}

/** How many different events match any of the filters, counted up to `max + 1`. */
export async function countSearched(
  pools: SearchPools,
  community: SearchedCommunity,
  filters: readonly Filter[],
  max: number,
  now: number,
  tooLong = AbortSignal.timeout(SEARCH_MS_MAX),
): Promise<Counted | Denial> {
  const found = new Set<string>();
  let behind = 0;
  let isOutdated = false;
  for (const filter of filters) {
    const limit = Math.min(filter.limit ?? max + 1, max + 1);
    if (limit === 0) continue;
    if (tooLong.aborted) throw new SearchTooLong();
    const rows =
      filter.search === undefined
        ? await find(pools, community, filter, limit, now)
        : await candidatesOf(
            pools,
            community,
            filter,
            { now },
            { limit, tooLong, documentsMax: Number.POSITIVE_INFINITY },
          );
    if (isDenial(rows)) return rows;
    if ('behind' in rows) {
      behind = Math.max(behind, rows.behind);
      isOutdated ||= rows.isOutdated;
    }
    for (const { id } of 'rows' in rows ? rows.rows : rows) found.add(id);
  }
  return { count: found.size, behind, isOutdated };
}

/**
 * Up to `max` matches, the newest first, and whether there are more; without scores. `after`: only those
 * behind this event, whose time is `until` of the filter.
 */
export async function selectSearched(
  pools: SearchPools,
  community: SearchedCommunity,
  filter: Filter,
  max: number,
  now: number,
  after?: Version,
): Promise<(IndexState & { readonly ids: readonly string[]; readonly isMore: boolean }) | Denial> {
  if (matchesNothing(filter)) return { ids: [], isMore: false, behind: 0, isOutdated: false };
  const found = await candidatesOf(
    pools,
    community,
    filter,
    { now },
    {
      limit: max + 1,
      documentsMax: Number.POSITIVE_INFINITY,
      tooLong: AbortSignal.timeout(SEARCH_MS_MAX),
      after,
    },
  );
  if (isDenial(found)) return found;
  const { rows, behind, isOutdated } = found;
  return { ids: rows.slice(0, max).map(({ id }) => id), isMore: rows.length > max, behind, isOutdated };
}

/** The best first; with the same score the newest first, then the lowest id. */
function compare(a: Position, b: Position): number {
  return b.score - a.score || b.createdAt - a.createdAt || (a.id < b.id ? -1 : a.id > b.id ? 1 : 0);
}

// ── Candidates ─────────────────────────────────────────────────────────────────────────────────────────────

interface Index {
  readonly generation: number;
  /** The offset of the index. */
  readonly lastSeq: number;
  readonly cut: number;
}

interface Limits {
  readonly limit: number;
  /** Maximum number of documents to read. */
  readonly documentsMax: number;
  readonly tooLong: AbortSignal;
  readonly after?: Version | undefined;
}

interface Candidates extends IndexState {
  readonly index: Index;
  /** The newest first. */
  readonly rows: readonly FoundEvent[];
  /** The words of events that the index does not have yet, by id. */
  readonly ahead: ReadonlyMap<string, string>;
}

interface IndexRow extends Omit<Index, 'cut'> {
  readonly head: number;
  readonly isOutdated: boolean;
}

async function readIndex({ pool }: SearchPools, community: number): Promise<IndexRow> {
  const { rows } = await pool.query<IndexRow>({
    name: 'search-index',
    text: `SELECT coalesce(o.generation, 0) AS generation, coalesce(o.last_seq, 0) AS "lastSeq",
      s.last_seq AS head, coalesce((r.rules ->> 'words')::int <> $2, false) AS "isOutdated"
      FROM lane_state s LEFT JOIN consumer_offsets o ON o.consumer = 'search'
      LEFT JOIN search_rules r ON r.generation = o.generation AND r.community = $1`,
    values: [community, WORDS_VERSION],
  });
  return rows[0]!;
}

async function candidatesOf(
  pools: SearchPools,
  community: SearchedCommunity,
  filter: Filter,
  { now, cut }: Pick<SearchOf, 'now' | 'cut'>,
  limits: Limits,
): Promise<Candidates | Denial> {
  const { limit, after } = limits;
  for (let tries = 1; ; tries += 1) {
    const { generation, lastSeq, head, isOutdated } = await readIndex(pools, community.id);
    if (generation === 0) return denial('SEARCH_NOT_READY');
    const index = { generation, lastSeq, cut: Math.min(cut ?? head, head) };
    const scope = { community: community.id, filter, ...index };
    const { words: ahead, behind } = await readAhead(pools.pool, scope, pools.elsewhere?.changed);
    const isDriven = pools.elsewhere === undefined && isDrivenByEvents(filter);
    const indexed = isDriven
      ? await find(pools, community, filter, limit, now, { generation, after })
      : await findByDocuments(pools, community, filter, index, now, limits);
    const isStill = (await readIndex(pools, community.id)).generation === generation;
    if (!isStill && tries < TRIES_MAX) continue;
    const others = await find(pools, community, among(filter, ahead), limit, now, { after });
    // Elsewhere an event has no offset of its own: documents and changes are cut before.
    const last = pools.elsewhere === undefined ? index.cut : Number.POSITIVE_INFINITY;
    return { index, rows: merge([...indexed, ...others], last, limit), ahead, behind, isOutdated };
  }
}

/** Removes duplicates: an event that was indexed meanwhile is found twice. */
function merge(rows: readonly FoundEvent[], cut: number, limit: number): FoundEvent[] {
  const unique = new Map(rows.filter(({ seq }) => seq <= cut).map((row) => [row.id, row]));
  const newest = [...unique.values()].sort((a, b) => b.createdAt - a.createdAt || (a.id < b.id ? -1 : 1));
  return newest.slice(0, limit);
}

/** Finds events by the conditions of a REQ and, with a generation, by the words of its documents. */
async function find(
  pools: SearchPools,
  community: SearchedCommunity,
  filter: Filter,
  limit: number,
  now: number,
  more: Pick<PostgresQuery, 'generation' | 'after'> = {},
): Promise<FoundEvent[]> {
  if (matchesNothing(filter)) return [];
  const query = { community: community.id, filter, limit, now, rules: community };
  if (pools.elsewhere === undefined) return findEvents(pools, { ...query, ...more });
  const { after } = more;
  const found = await pools.elsewhere.events.find(query, 'search');
  return after === undefined ? found : found.filter((row) => isBehind(row, after));
}

const isBehind = ({ createdAt, id }: FoundEvent, after: Version) =>
  createdAt < after.created_at || (createdAt === after.created_at && id > after.id);

/** Tags that usually select few events. */
const FEW = new Set(['a', 'd', 'e', 'i', 'p', 'q']);

/**
 * Such a filter selects few events: they are read and their words checked. Otherwise the words come first.
 */
function isDrivenByEvents({ ids, authors, tags }: Filter): boolean {
  return ids !== undefined || authors !== undefined || tags.some(({ name }) => FEW.has(name));
}

/** Reads the newest documents with these words, in portions, until enough of their events match. */
async function findByDocuments(
  pools: SearchPools,
  community: SearchedCommunity,
  filter: Filter,
  index: Index,
  now: number,
  { limit, documentsMax, tooLong, after: start }: Limits,
): Promise<FoundEvent[]> {
  const found: FoundEvent[] = [];
  let after: DocumentPlace | undefined = start && { createdAt: start.created_at, id: start.id };
  for (let looked = 0; looked < documentsMax && found.length < limit; looked += PORTION) {
    if (tooLong.aborted) throw new SearchTooLong();
    const documents = await readDocuments(pools.searchPool, community.id, filter, index, after);
    const ids = new Set(documents.map(({ id }) => id));
    found.push(...(await find(pools, community, { ...filter, ids }, PORTION, now)));
    if (documents.length < PORTION) break;
    after = documents.at(-1);
  }
  return found;
}

type DocumentPlace = Pick<Position, 'createdAt' | 'id'>;

/** The planner chooses the index: the one on words if they are rare, the one on time if they are common. */
async function readDocuments(
  searchPool: Pool,
  community: number,
  { search, ids, authors, kinds, since, until, tags, view }: Filter,
  { generation, cut }: Index,
  after: DocumentPlace | undefined,
): Promise<DocumentPlace[]> {
  const values: unknown[] = [];
  const value = (given: unknown, type: string) => `$${values.push(given)}::${type}`;
  const topics = tags.find(({ name }) => name === 't')?.values;
  const conditions = [
    `generation = ${value(generation, 'int')}`,
    `community = ${value(community, 'int')}`,
    'deleted_at IS NULL',
    `words @@ ${value(toTsquery(search!, topics), 'tsquery')}`,
    `seq <= ${value(cut, 'bigint')}`,
  ];
  if (ids !== undefined) conditions.push(`event_id = ANY (${value(hexArray([...ids]), 'bytea[]')})`);
  if (authors !== undefined) conditions.push(`author = ANY (${value(hexArray([...authors]), 'bytea[]')})`);
  if (kinds !== undefined) conditions.push(`kind = ANY (${value(int4Array([...kinds]), 'int[]')})`);
  if (since !== undefined) conditions.push(`created_at >= ${value(since, 'bigint')}`);
  if (until !== undefined) conditions.push(`created_at <= ${value(until, 'bigint')}`);
  if (view?.topics !== undefined) {
    const allowed = new Set(allowedTopics(view.topics));
    const closed = [...view.topics.carried.known].filter((topic) => !allowed.has(topic));
    const holds = (marked: Iterable<string>) => `topics && ${value(int4Array(topicMarks(marked)), 'int[]')}`;
    conditions.push(`(topics IS NULL OR NOT ${holds(closed)} OR ${holds(allowed)})`);
  }
  if (after !== undefined) {
    const time = value(after.createdAt, 'bigint');
    conditions.push(
      `created_at <= ${time}`,
      `(created_at < ${time} OR event_id > ${value(bytes(after.id), 'bytea')})`,
    );
  }
  const { rows } = await searchPool.query<DocumentPlace>(
    `SELECT created_at AS "createdAt", encode(event_id, 'hex') AS id FROM post_search_documents
     WHERE ${conditions.join(' AND ')} ORDER BY created_at DESC, event_id LIMIT ${PORTION}`,
    values,
  );
  return rows;
}

function among(filter: Filter, ahead: ReadonlyMap<string, string>): Filter {
  return { ...filter, ids: new Set(ahead.keys()) };
}

// ── Scores ─────────────────────────────────────────────────────────────────────────────────────────────────

interface Scoring {
  readonly rows: readonly FoundEvent[];
  readonly ahead: ReadonlyMap<string, string>;
  readonly index: Index;
  readonly asOf: number;
  readonly now: number;
}

/** Of the labels D, C, B and A of a tsvector. */
const WEIGHTS = '{0.1, 0.3, 0.5, 1.0}';
/** `ts_rank` option: divide by the length, because long texts have more words of any kind. */
const BY_LENGTH = 1;

/** References raise only the scores of the best REFERRED_MAX matches. */
async function score(
  pools: SearchPools,
  community: SearchedCommunity,
  { search, view }: Filter,
  scoring: Scoring,
): Promise<ScoredRow[]> {
  if (scoring.rows.length === 0) return [];
  const { settings } = community;
  const texts = await rank(pools, community.id, toRankQuery(search!) ?? '', scoring);
  const scoreBy = (row: FoundEvent, references: number) =>
    scoreOf({ text: texts.get(row.id) ?? 0, references }, row.createdAt, scoring.asOf, settings);
  const scored = scoring.rows.map((row) => ({ ...row, score: scoreBy(row, 0) })).sort(compare);
  if (settings['search.popularityWeight'] === 0 || pools.elsewhere !== undefined) return scored;
  const best = scored.slice(0, REFERRED_MAX);
  const counts = await referencesOf(pools, community, best, view, scoring);
  const raised = best.map((row, place) => ({ ...row, score: scoreBy(row, counts[place] ?? 0) }));
  return [...raised, ...scored.slice(REFERRED_MAX)].sort(compare);
}

/** How well the words of each event match, by id. */
async function rank(
  { pool }: SearchPools,
  community: number,
  query: string,
  { rows, ahead, index }: Scoring,
): Promise<Map<string, number>> {
  const result = await pool.query<[number, number | null]>({
    name: 'search-scores',
    text: `SELECT a.place::int,
        ts_rank('${WEIGHTS}', coalesce(a.words::tsvector, d.words), $5::tsquery, ${BY_LENGTH})
      FROM unnest($3::bytea[], $4::text[]) WITH ORDINALITY AS a (id, words, place)
      LEFT JOIN LATERAL (SELECT words FROM post_search_documents at
        WHERE at.generation = $1 AND at.community = $2 AND at.event_id = a.id OFFSET 0) d ON true`,
    values: [
      index.generation,
      community,
      hexArray(rows.map(({ id }) => id)),
      textArray(rows.map(({ id }) => ahead.get(id))),
      query,
    ],
    rowMode: 'array',
  });
  return new Map(result.rows.map(([place, text]) => [rows[place - 1]!.id, text ?? 0]));
}

function referencesOf(
  pools: SearchPools,
  community: SearchedCommunity,
  rows: readonly ScoredRow[],
  view: View | undefined,
  { index, now }: Scoring,
): Promise<number[]> {
  return countReferences(pools, {
    community: community.id,
    rules: community,
    now,
    ids: rows.map(({ id }) => id),
    max: REFERENCES_MAX,
    cut: index.cut,
    // Events of any kind that the client may see.
    view: view === undefined ? publicView(community) : { ...view, kinds: undefined },
  });
}

// ── Pages ──────────────────────────────────────────────────────────────────────────────────────────────────

export interface FoundItem {
  readonly payload: string;
  readonly id: string;
  /** Seconds. */
  readonly createdAt: number;
  readonly score: number;
}

export interface SearchPage extends IndexState {
  readonly items: readonly FoundItem[];
  readonly nextCursor: string | undefined;
}

export interface SearchPageOf {
  readonly limit: number;
  /** `nextCursor` of the previous page. */
  readonly cursor: string | undefined;
  /** Milliseconds. */
  readonly now: number;
}

/**
 * One page of the events that a client may find, the best first. The filter has its `search`
 * (events/rules/filter.ts) and the view of the client. INVALID_REQUEST: the cursor was not made by this node;
 * SEARCH_NOT_READY: the index is not complete yet.
 *
 * The first page fixes the time from which age is counted and the last offset, so that later pages continue
 * in the same order.
 */
export async function searchPage(
  pools: PagePools,
  community: SearchedCommunity,
  filter: Filter,
  { limit, cursor, now }: SearchPageOf,
): Promise<SearchPage | Denial> {
  const seal = { secret: pools.cursorSecret, community: community.id };
  const from = cursor === undefined ? {} : openCursor(seal, cursor);
  if (from === undefined) return invalid('cursor', 'not a cursor of a search');
  if (filter.search === undefined) return invalid('search', 'there is nothing to search for');
  if (matchesNothing(filter)) return { items: [], nextCursor: undefined, behind: 0, isOutdated: false };
  const found = await searchEvents(pools, community, filter, { limit: limit + 1, now, ...from });
  if (isDenial(found)) return found;
  const rows = found.rows.slice(0, limit);
  const last = rows.at(-1);
  const isMore = found.rows.length > limit && last !== undefined;
  const { asOf, cut, behind, isOutdated } = found;
  const nextCursor = isMore ? sealPlace(seal, { ...last, asOf, cut }) : undefined;
  return { items: await withTexts(pools, community.id, rows), nextCursor, behind, isOutdated };
}

function openCursor(
  seal: Seal,
  cursor: string,
): Pick<Required<SearchOf>, 'asOf' | 'cut' | 'after'> | undefined {
  const place = openPlace(seal, cursor);
  return place && { asOf: place.asOf, cut: place.cut, after: place };
}

function invalid(path: string, message: string): Denial {
  return denial('INVALID_REQUEST', { problems: [{ path, message }] });
}

/** Leaves out events that were deleted in the meantime. */
async function withTexts(
  { pool, elsewhere }: SearchPools,
  community: number,
  rows: readonly ScoredRow[],
): Promise<FoundItem[]> {
  if (rows.length === 0) return [];
  const refs = rows.map(({ id }) => ({ community, id }));
  const events = await (elsewhere === undefined
    ? readEventsById(pool, refs)
    : elsewhere.events.byIds(refs, 'search'));
  return rows.flatMap(({ id, createdAt, score }) => {
    const payload = events.get(`${community}/${id}`)?.payload;
    return payload === undefined ? [] : [{ payload, id, createdAt, score }];
  });
}
