/**
 * Searching: the words find documents, the events themselves decide. Every condition of the filter and of its view is checked on
 * the event by the same SQL as a REQ, so what is deleted, expired or aged is gone from search with its commit, however far the
 * index is behind (I6, I7, I8). What the index has not read yet is read from the outbox (search-ahead.ts).
 *
 * The newest matches are the candidates; they are scored by their words and their age, and the best of them by how often others
 * refer to them, in events that the client may see. All of it is bounded (I14): candidates, documents that are looked at, changes that are read ahead of the index, time.
 */
import type { Pool } from 'pg';
import { type AccessRules, allowedTopics, publicView, type View } from '../core/access.js';
import { type Denial, denial, isDenial } from '../core/errors.js';
import { type Filter, matchesNothing } from '../core/filter.js';
import { toRankQuery, toTsquery } from '../core/search.js';
import { REFERENCES_MAX, scoreOf } from '../core/search-score.js';
import { WORDS_VERSION } from '../core/search-words.js';
import { hexArray, int4Array, textArray } from './binary.js';
import { bytes } from './config-change.js';
import { countReferences, type FoundRow, findEvents, readEventsById } from './query.js';
import { readAhead } from './search-ahead.js';
import { openPlace, type Seal, sealPlace } from './search-cursor.js';
import { topicMarks } from './search-documents.js';
import type { TagHash } from './tag-hash.js';

/** So many of the newest matches are scored. */
export const CANDIDATES_MAX = 1_000;
/** Documents of one portion, and of one search. */
const PORTION = 1_000;
const DOCUMENTS_MAX = 20_000;
const SEARCH_MS_MAX = 10_000;
/** So many of the best by words and age have their references counted. */
const REFERRED_MAX = 100;
/** The index may be replaced by a newer one under a search, which then begins again. */
const TRIES_MAX = 3;

export class SearchTooLong extends Error {}

export interface SearchPools {
  /** Events by walks along indexes, as for a REQ. */
  readonly pool: Pool;
  /** Documents by plans of their own. */
  readonly searchPool: Pool;
  readonly tagHash: TagHash;
}

export interface PagePools extends SearchPools {
  /** What cursors are sealed with. */
  readonly cursorSecret: string;
}

export interface SearchedCommunity extends AccessRules {
  readonly id: number;
}

/** Where a page ended. */
export interface Position {
  readonly score: number;
  readonly createdAt: number;
  readonly id: string;
}

export interface SearchOf {
  readonly limit: number;
  /** Milliseconds. */
  readonly now: number;
  /** Seconds: age is counted from here. Now, unless told. */
  readonly asOf?: number;
  /** What came after this number is not found, and does not raise a score. The last one, unless told. */
  readonly cut?: number;
  readonly after?: Position;
}

export interface ScoredRow extends FoundRow {
  readonly score: number;
}

/** What an answer may lack. */
export interface IndexState {
  /** Changes that neither the index has nor were read ahead of it. */
  readonly behind: number;
  /** Its words were cut by older rules than those of the query; one by the rules of today is being built. */
  readonly isOutdated: boolean;
}

export interface Searched extends IndexState {
  /** The best first. */
  readonly rows: readonly ScoredRow[];
  readonly asOf: number;
  readonly cut: number;
}

// ── A search ──────────────────────────────────────────────────────────────────────────────────────────────────────

/** The best matches of a filter that searches, in the order of their scores. */
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
  const found = new Set<number>();
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
    for (const { seq } of 'rows' in rows ? rows.rows : rows) found.add(seq);
  }
  return { count: found.size, behind, isOutdated };
}

/** Best first; the same score: newest first, lowest id first. */
function compare(a: Position, b: Position): number {
  return b.score - a.score || b.createdAt - a.createdAt || (a.id < b.id ? -1 : a.id > b.id ? 1 : 0);
}

// ── Candidates ────────────────────────────────────────────────────────────────────────────────────────────────────

interface Index {
  readonly generation: number;
  /** It holds what came up to here. */
  readonly lastSeq: number;
  readonly cut: number;
}

interface Bounds {
  readonly limit: number;
  /** Documents that are looked at. */
  readonly documentsMax: number;
  readonly tooLong: AbortSignal;
}

interface Candidates extends IndexState {
  readonly index: Index;
  /** The newest first. */
  readonly rows: readonly FoundRow[];
  /** The words of those that the index does not hold yet, by id. */
  readonly ahead: ReadonlyMap<string, string>;
}

interface IndexRow extends Omit<Index, 'cut'> {
  readonly head: number;
  readonly isOutdated: boolean;
}

async function readIndex({ pool }: SearchPools, community: number): Promise<IndexRow> {
  const { rows } = await pool.query<IndexRow>({
    name: 'search-index',
    text: `SELECT coalesce(o.generation, 0) AS generation, coalesce(o.last_seq, 0) AS "lastSeq", s.last_seq AS head,
        coalesce((r.rules ->> 'words')::int <> $2, false) AS "isOutdated"
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
  bounds: Bounds,
): Promise<Candidates | Denial> {
  const { limit } = bounds;
  for (let tries = 1; ; tries += 1) {
    const { generation, lastSeq, head, isOutdated } = await readIndex(pools, community.id);
    if (generation === 0) return denial('SEARCH_NOT_READY');
    const index = { generation, lastSeq, cut: Math.min(cut ?? head, head) };
    const asked = { community: community.id, filter, ...index };
    const { words: ahead, behind } = await readAhead(pools.pool, asked);
    const indexed = isDrivenByEvents(filter)
      ? await find(pools, community, filter, limit, now, generation)
      : await findByDocuments(pools, community, filter, index, now, bounds);
    const isStill = (await readIndex(pools, community.id)).generation === generation;
    if (!isStill && tries < TRIES_MAX) continue;
    const others = await find(pools, community, among(filter, ahead), limit, now);
    return { index, rows: merge([...indexed, ...others], index.cut, limit), ahead, behind, isOutdated };
  }
}

/** An event that was indexed meanwhile is found twice. */
function merge(rows: readonly FoundRow[], cut: number, limit: number): FoundRow[] {
  const unique = new Map(rows.filter(({ seq }) => seq <= cut).map((row) => [row.seq, row]));
  const newest = [...unique.values()].sort((a, b) => b.createdAt - a.createdAt || (a.id < b.id ? -1 : 1));
  return newest.slice(0, limit);
}

/** By the conditions of a REQ; with a generation, by the words of its documents too. */
async function find(
  { pool, tagHash }: SearchPools,
  community: SearchedCommunity,
  filter: Filter,
  limit: number,
  now: number,
  generation?: number,
): Promise<FoundRow[]> {
  if (matchesNothing(filter)) return [];
  const retention = { rules: community, now };
  const seconds = Math.floor(now / 1_000);
  return findEvents(pool, community.id, filter, limit, tagHash, seconds, retention, generation);
}

/** Tags that usually name few events. */
const FEW = new Set(['a', 'd', 'e', 'i', 'p', 'q']);

/** It names few events: they are walked, and their words checked. Else the words are the best start. */
function isDrivenByEvents({ ids, authors, tags }: Filter): boolean {
  return ids !== undefined || authors !== undefined || tags.some(({ name }) => FEW.has(name));
}

/** The newest documents with these words, portion by portion, until enough of their events pass. */
async function findByDocuments(
  pools: SearchPools,
  community: SearchedCommunity,
  filter: Filter,
  index: Index,
  now: number,
  { limit, documentsMax, tooLong }: Bounds,
): Promise<FoundRow[]> {
  const found: FoundRow[] = [];
  let after: Pick<Position, 'createdAt' | 'id'> | undefined;
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

/** The planner chooses: by the words where they are rare, along the newest where they are common. */
async function readDocuments(
  searchPool: Pool,
  community: number,
  { search, kinds, since, until, tags, view }: Filter,
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

// ── Scores ────────────────────────────────────────────────────────────────────────────────────────────────────────

interface Scoring {
  readonly rows: readonly FoundRow[];
  readonly ahead: ReadonlyMap<string, string>;
  readonly index: Index;
  readonly asOf: number;
  readonly now: number;
}

/** Of the weights D, C, B and A. */
const WEIGHTS = '{0.1, 0.3, 0.5, 1.0}';
/** Long texts hold more words of any kind. */
const BY_LENGTH = 1;

/** Those that are not among the best without their references are not raised by them either. */
async function score(
  pools: SearchPools,
  community: SearchedCommunity,
  { search, view }: Filter,
  scoring: Scoring,
): Promise<ScoredRow[]> {
  if (scoring.rows.length === 0) return [];
  const { settings } = community;
  const texts = await rank(pools, community.id, toRankQuery(search!) ?? '', scoring);
  const scoreBy = (row: FoundRow, references: number) =>
    scoreOf({ text: texts.get(row.id) ?? 0, references }, row.createdAt, scoring.asOf, settings);
  const scored = scoring.rows.map((row) => ({ ...row, score: scoreBy(row, 0) })).sort(compare);
  if (settings['search.popularityWeight'] === 0) return scored;
  const best = scored.slice(0, REFERRED_MAX);
  const counts = await referencesOf(pools, community, best, view, scoring);
  const raised = best.map((row, place) => ({ ...row, score: scoreBy(row, counts[place] ?? 0) }));
  return [...raised, ...scored.slice(REFERRED_MAX)].sort(compare);
}

/** How well the words of each fit, by id. */
async function rank(
  { pool }: SearchPools,
  community: number,
  query: string,
  { rows, ahead, index }: Scoring,
): Promise<Map<string, number>> {
  const result = await pool.query<[number, number | null]>({
    name: 'search-scores',
    text: `SELECT a.place::int, ts_rank('${WEIGHTS}', coalesce(a.words::tsvector, d.words), $5::tsquery, ${BY_LENGTH})
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
  { pool, tagHash }: SearchPools,
  community: SearchedCommunity,
  rows: readonly ScoredRow[],
  view: View | undefined,
  { index, now }: Scoring,
): Promise<number[]> {
  const asked = {
    ids: rows.map(({ id }) => id),
    max: REFERENCES_MAX,
    cut: index.cut,
    // Whatever the client may see, of any kind.
    view: view === undefined ? publicView(community) : { ...view, kinds: undefined },
  };
  return countReferences(pool, community.id, asked, tagHash, { rules: community, now });
}

// ── Pages ─────────────────────────────────────────────────────────────────────────────────────────────────────────

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
  /** As the page before gave it. */
  readonly cursor: string | undefined;
  /** Milliseconds. */
  readonly now: number;
}

/**
 * One page of what a client may find, the best first. The filter has its `search` (core/filter.ts) and the view of the client.
 * INVALID_REQUEST: the cursor is not one of ours; SEARCH_NOT_READY: the index is not whole yet.
 *
 * The first page fixes from when age is counted and what is old enough to count, so that later pages go on in the same order.
 */
export async function searchPage(
  pools: PagePools,
  community: SearchedCommunity,
  filter: Filter,
  { limit, cursor, now }: SearchPageOf,
): Promise<SearchPage | Denial> {
  const seal = { secret: pools.cursorSecret, community: community.id };
  const from = cursor === undefined ? {} : goOn(seal, cursor);
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
  return { items: await withTexts(pools.pool, community.id, rows), nextCursor, behind, isOutdated };
}

function goOn(seal: Seal, cursor: string): Pick<Required<SearchOf>, 'asOf' | 'cut' | 'after'> | undefined {
  const place = openPlace(seal, cursor);
  return place && { asOf: place.asOf, cut: place.cut, after: place };
}

function invalid(path: string, message: string): Denial {
  return denial('INVALID_REQUEST', { problems: [{ path, message }] });
}

/** One that went a moment ago is left out. */
async function withTexts(pool: Pool, community: number, rows: readonly ScoredRow[]): Promise<FoundItem[]> {
  if (rows.length === 0) return [];
  const events = await readEventsById(
    pool,
    rows.map(({ id }) => ({ community, id })),
  );
  return rows.flatMap(({ id, createdAt, score }) => {
    const payload = events.get(`${community}/${id}`)?.payload;
    return payload === undefined ? [] : [{ payload, id, createdAt, score }];
  });
}
