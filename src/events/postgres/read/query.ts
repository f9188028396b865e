/**
 * A filter as SQL: which events, newest first. The work grows with the answer, not with the store: every
 * shape scans an index in the order of the answer, one scan per requested value, and each stops at the limit.
 * The live twin is `events/rules/filter.ts`.
 */
import { hexArray, int4Array, int8Array, textArray } from '../../../postgres/binary.js';
import { bytes } from '../../../postgres/values.js';
import { toTsquery } from '../../../search/rules.js';
import type { Bound } from '../../../sync/rules-negentropy.js';
import { findsBound, isTopic } from '../../../topics/rules.js';
import { KIND_DELETION, type Version } from '../../rules/classify.js';
import type { Filter, TagCondition } from '../../rules/filter.js';
import { Keep, keepsOf, REGULAR_KEEPS } from '../../rules/keep.js';
import { defaultSince, topicSince } from '../../rules/retention.js';
import type { Position, Query } from '../../store.js';
import { dedupeOf, eventAt } from '../places.js';
import type { TagHash } from '../tag-hash.js';
import { NOT_VANISHED, visible, withinDays } from './hidden-at-read.js';
import type { Parameters } from './statement.js';

export const SERVED_KEEPS: readonly Keep[] = [Keep.current, Keep.request, ...REGULAR_KEEPS];
/**
 * Up to this many pairs, each author and kind is one scan. Above it, each author is one scan and the kinds
 * are checked on its rows.
 */
const PAIRS_MAX = 500;
/** Tags that usually match few events: the better driving index when authors are given as well. */
const SELECTIVE_TAGS = new Set(['a', 'd', 'e', 'i', 'q']);

export const COLUMNS =
  'e.seq, e.ingested_at, e.keep, e.created_at, e.kind, e.expires_at, e.id, ' +
  'octet_length(e.payload) AS bytes, e.bound';
export const NEWEST_FIRST = 'ORDER BY created_at DESC, id';

export type SelectOf = Query & {
  /**
   * The generation of the search documents that must match; undefined where the search has matched them
   * already.
   */
  readonly generation?: number | undefined;
  /**
   * Only events that come after this one in the order of the answer. `until` of the filter is its time or
   * earlier.
   */
  readonly after?: Version | undefined;
  /** The oldest first, from `lower` on and below `upper`, of those up to a position (read/records.ts). */
  readonly rising?: { readonly lower: Bound; readonly upper: Bound; readonly upTo: Position } | undefined;
  /**
   * For a count: at most this many rows of all scans together, in the order of the scans; a row may occur
   * twice. Undefined: the newest rows, each once.
   */
  readonly rowsMax?: number | undefined;
};

/** The text that selects `columns` of the events of a query; its values are added to the parameters. */
export function selectRows(query: SelectOf, tagHash: TagHash, params: Parameters, columns: string): string {
  const context = contextOf(query, tagHash, params, columns);
  const { filter } = query;
  if (filter.ids !== undefined) return selectByIds(context);
  const tag = drivingTag(filter);
  if (tag !== undefined) return selectByTag(context, tag);
  if (filter.authors !== undefined) return selectByAuthors(context);
  if (filter.kinds !== undefined) return selectByKinds(context);
  return `SELECT ${columns} FROM events e
    WHERE ${conditions(context, {})} ${orderBy(context, 'e.')} LIMIT ${context.limit}`;
}

/** In the order of the answer. `time`: the table whose index gives the order. */
function orderBy({ query: { rising } }: Context, time: string, id = time): string {
  return `ORDER BY ${time}created_at ${rising === undefined ? 'DESC' : ''}, ${id}id`;
}

interface Context {
  readonly query: SelectOf;
  /** Parameters. */
  readonly community: string;
  readonly limit: string;
  readonly nowSeconds: string;
  readonly params: Parameters;
  readonly tagHash: TagHash;
  readonly columns: string;
}

export function contextOf(query: SelectOf, tagHash: TagHash, params: Parameters, columns: string): Context {
  return {
    query,
    community: params.add(query.community, 'int'),
    limit: params.add(query.limit, 'bigint'),
    nowSeconds: params.add(Math.floor(query.now / 1_000), 'bigint'),
    params,
    tagHash,
    columns,
  };
}

/** Conditions that the driving index already guarantees, so that they are not checked again. */
interface Settled {
  readonly ids?: true;
  readonly authors?: true;
  readonly kinds?: true;
  readonly tag?: TagCondition;
}

export function conditions(context: Context, settled: Settled): string {
  const { params } = context;
  const { filter, rules, now, generation, after, rising } = context.query;
  const all = [
    `e.community = ${context.community}`,
    'e.hidden IS NULL',
    `e.keep IN (${servedKeeps(filter)})`,
    `(e.expires_at IS NULL OR e.expires_at > ${context.nowSeconds})`,
    NOT_VANISHED,
    withinDays(params, rules, now, filter),
  ];
  if (filter.since !== undefined) all.push(`e.created_at >= ${params.add(filter.since, 'bigint')}`);
  if (filter.until !== undefined) all.push(`e.created_at <= ${params.add(filter.until, 'bigint')}`);
  if (after !== undefined) {
    const time = params.add(after.created_at, 'bigint');
    all.push(`(e.created_at < ${time} OR e.id > ${params.add(bytes(after.id), 'bytea')})`);
  }
  if (rising !== undefined) all.push(...within(params, rising));
  if (filter.authors !== undefined && !settled.authors) {
    all.push(`e.pubkey = ANY (${params.add(hexArray([...filter.authors]), 'bytea[]')})`);
  }
  if (filter.kinds !== undefined && !settled.kinds) {
    all.push(`e.kind = ANY (${params.add(int4Array([...filter.kinds]), 'int[]')})`);
  }
  for (const tag of filter.tags) {
    if (tag === settled.tag) continue;
    all.push(`EXISTS (SELECT 1 FROM ${requestedTags(context, tag)} JOIN event_tags g
      ON g.tag = asked.tag AND g.created_at = e.created_at AND g.seq = e.seq
      WHERE g.keep = e.keep AND g.ingested_at = e.ingested_at AND ${carries(tag, filter)})`);
  }
  if (filter.view !== undefined) all.push(...visible(params, filter.view));
  if (filter.search !== undefined && generation !== undefined) {
    all.push(`EXISTS (SELECT 1 FROM post_search_documents doc
      WHERE doc.generation = ${params.add(generation, 'int')}
      AND doc.community = ${context.community} AND doc.event_id = e.id AND doc.deleted_at IS NULL
      AND doc.words @@ ${params.add(toTsquery(filter.search, undefined), 'tsquery')})`);
  }
  return all.join(' AND ');
}

/** `since` and `until` of the filter are the times of the bounds or closer. */
function within(params: Parameters, { lower, upper, upTo }: NonNullable<SelectOf['rising']>): string[] {
  const idOf = ({ id }: Bound) => params.add(Buffer.from(id), 'bytea');
  const time = ({ time: seconds }: Bound) => params.add(seconds, 'bigint');
  return [
    `e.seq <= ${params.add(upTo, 'bigint')}`,
    ...(lower.id.length === 0 ? [] : [`(e.created_at > ${time(lower)} OR e.id >= ${idOf(lower)})`]),
    ...(upper.id.length === 0 ? [] : [`(e.created_at < ${time(upper)} OR e.id < ${idOf(upper)})`]),
  ];
}

/** The bucket of a kind is known, so a filter with kinds does not read the other partitions. */
export function servedKeeps({ kinds }: Filter): string {
  const keeps =
    kinds === undefined ? SERVED_KEEPS : [...new Set([...kinds].flatMap(keepsOf))].sort((a, b) => a - b);
  return keeps.join(', ');
}

/**
 * The hash finds the rows, and the needle confirms the value. A payload is written by JSON.stringify, so it
 * contains `["t","value"` exactly when it has such a tag: inside a string the quotes would be escaped.
 */
export function requestedTags({ params, tagHash, query }: Context, { name, values }: TagCondition): string {
  const { community, rules, now } = query;
  const list = [...values];
  const hashes = params.add(int8Array(list.map((value) => tagHash(community, name, value))), 'bigint[]');
  const needles = params.add(textArray(list.map((value) => `["${name}",${JSON.stringify(value)}`)), 'text[]');
  if (name !== 't') return `unnest(${hashes}, ${needles}) AS asked (tag, needle)`;
  const boundSince = rules === undefined ? 0 : defaultSince(rules, now);
  const since = (topic: string) => (rules === undefined ? 0 : topicSince(rules, topic, now));
  const columns = [
    // A value that is not a topic has no bound events, and may hold characters that text cannot store.
    params.add(textArray(list.map((topic) => (isTopic(topic) ? topic : ''))), 'text[]'),
    params.add(int8Array(list.map(since)), 'bigint[]'),
    params.add(int8Array(list.map(() => boundSince)), 'bigint[]'),
  ];
  return `unnest(${hashes}, ${needles}, ${columns.join(', ')})
    AS asked (tag, needle, topic, kept_since, bound_since)`;
}

const HAS_TAG = 'strpos(e.payload, asked.needle) > 0';
/** Only regular events have days. An event with two topics may be visible in one and not in the other. */
const keptSince = (time: string) => `(g.keep < ${Keep.days30} OR g.ingested_at >= ${time})`;
/**
 * A topic may also be bound to the event without a tag (topics/rules.ts); then the days of an event without
 * topics apply. An event past both is not read.
 */
export function carries({ name }: TagCondition, filter: Filter): string {
  if (name !== 't') return HAS_TAG;
  const bound = [
    'e.bound IS NOT NULL',
    'asked.topic = ANY (e.bound)',
    keptSince('asked.bound_since'),
    ...(findsBound(filter, KIND_DELETION) ? [] : [`e.kind <> ${KIND_DELETION}`]),
  ];
  return `${keptSince('least(asked.kept_since, asked.bound_since)')} AND (
    (${HAS_TAG} AND ${keptSince('asked.kept_since')}) OR (${bound.join(' AND ')}))`;
}

export function drivingTag({ tags, authors }: Filter): TagCondition | undefined {
  const usable = authors === undefined ? tags : tags.filter((tag) => SELECTIVE_TAGS.has(tag.name));
  const rank = (tag: TagCondition) => (SELECTIVE_TAGS.has(tag.name) ? 0 : tag.name === 't' ? 2 : 1);
  return [...usable].sort((a, b) => rank(a) - rank(b) || a.values.size - b.values.size)[0];
}

/** One index scan per requested value, each in order and up to the limit. */
function perValue(context: Context, asked: string, from: string, where: string): string {
  return ofAllScans(
    context,
    asked,
    `SELECT ${context.columns} FROM ${from} WHERE ${where} ${orderBy(context, 'e.')}`,
  );
}

/**
 * The newest rows of all scans; or, for a count, the rows of one scan after another, so that the last scans
 * are skipped once there are enough.
 */
function ofAllScans(context: Context, asked: string, scan: string): string {
  const { params, limit, query } = context;
  const { rowsMax } = query;
  const scans = `FROM ${asked} CROSS JOIN LATERAL (${scan} LIMIT ${limit}) r`;
  if (rowsMax !== undefined) return `SELECT r.seq ${scans} LIMIT ${params.add(rowsMax, 'bigint')}`;
  return `SELECT DISTINCT ON (created_at, id) r.* ${scans} ${orderBy(context, '')} LIMIT ${limit}`;
}

function selectByIds(context: Context): string {
  const { filter } = context.query;
  const ids = context.params.add(hexArray([...(filter.ids ?? [])]), 'bytea[]');
  return `SELECT ${context.columns} FROM unnest(${ids}) AS asked (id)
    ${dedupeOf(context.community, 'asked.id')}
    ${eventAt('d')}
    WHERE ${conditions(context, { ids: true })}
    ${orderBy(context, '')} LIMIT ${context.limit}`;
}

function selectByTag(context: Context, tag: TagCondition): string {
  const { params } = context;
  const { filter } = context.query;
  const range = [
    filter.since === undefined ? '' : `AND g.created_at >= ${params.add(filter.since, 'bigint')}`,
    filter.until === undefined ? '' : `AND g.created_at <= ${params.add(filter.until, 'bigint')}`,
  ].join(' ');
  const rest = conditions(context, { tag });
  return ofAllScans(
    context,
    requestedTags(context, tag),
    `SELECT ${context.columns.replace('e.created_at', 'g.created_at')} FROM event_tags g
      ${eventAt('g')}
      WHERE g.tag = asked.tag AND g.keep IN (${servedKeeps(filter)}) ${range}
        AND ${carries(tag, filter)} AND ${rest}
      ${orderBy(context, 'g.', 'e.')}`,
  );
}

function selectByAuthors(context: Context): string {
  const { filter } = context.query;
  const authors = [...(filter.authors ?? [])];
  const kinds = filter.kinds === undefined ? [] : [...filter.kinds];
  const asked = `unnest(${context.params.add(hexArray(authors), 'bytea[]')}) AS author (pubkey)`;
  // One kind takes as many scans as no kind.
  if (kinds.length === 0 || (kinds.length > 1 && authors.length * kinds.length > PAIRS_MAX)) {
    const where = conditions(context, { authors: true });
    return perValue(context, asked, 'events e', `e.pubkey = author.pubkey AND ${where}`);
  }
  const askedKinds = `unnest(${context.params.add(int4Array(kinds), 'int[]')}) AS asked (kind)`;
  const where = conditions(context, { authors: true, kinds: true });
  return perValue(
    context,
    `${asked} CROSS JOIN ${askedKinds}`,
    'events e',
    `e.pubkey = author.pubkey AND e.kind = asked.kind AND ${where}`,
  );
}

function selectByKinds(context: Context): string {
  const { filter } = context.query;
  const kinds = context.params.add(int4Array([...(filter.kinds ?? [])]), 'int[]');
  const asked = `unnest(${kinds}) AS asked (kind)`;
  const where = conditions(context, { kinds: true });
  return perValue(context, asked, 'events e', `e.kind = asked.kind AND ${where}`);
}
