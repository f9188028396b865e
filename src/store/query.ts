/**
 * A filter as SQL: which events, newest first. The work grows with the answer: every shape walks an index in the order
 * of the answer, one walk per value asked, each stopping at the limit. The live twin is `core/filter.ts`.
 *
 * Two steps: the first gives the rows' places and sizes, the second their payloads in bounded portions, so that an
 * answer of 5,000 large events never stands in memory as a whole, and what is at hand already is not read again.
 * A short answer to a narrow filter comes with its payloads in one step.
 */
import type { ClientBase, Pool } from 'pg';
import { allowedTopics, type View } from '../core/access.js';
import { KIND_DELETION } from '../core/classify.js';
import { KIND_GIFT_WRAP } from '../core/deletion.js';
import type { Filter, TagCondition } from '../core/filter.js';
import { Keep, keepsOf, REGULAR_KEEPS } from '../core/keep.js';
import { defaultSince, type Retention, sincesOfTopics, topicSince } from '../core/retention.js';
import { toTsquery } from '../core/search.js';
import { findsBound, isTopic, TOPIC_LENGTH_MAX, UNBOUND } from '../core/topic.js';
import { hexArray, int2Array, int4Array, int8Array, textArray } from './binary.js';
import type { TagHash } from './tag-hash.js';
import { windowsOf } from './windows.js';

export interface FoundRow {
  readonly seq: number;
  readonly ingestedAt: number;
  readonly keep: number;
  readonly createdAt: number;
  readonly kind: number;
  readonly expiresAt: number | undefined;
  readonly id: string;
  readonly bytes: number;
  /** Topics that it is bound to beside those it names. */
  readonly bound: readonly string[];
  /** When it came in one step. */
  readonly payload: string | undefined;
}

/** Up to so many rows an answer may come with its payloads. */
const ONE_STEP_ROWS_MAX = 150;

const SERVED_KEEPS: readonly Keep[] = [Keep.current, Keep.request, ...REGULAR_KEEPS];
/** Up to here authors × kinds are walked pair by pair; above, author by author with the kinds checked on the way. */
const PAIRS_MAX = 500;
/** Tags that usually name few events: the better start when authors are given as well. */
const SELECTIVE_TAGS = new Set(['a', 'd', 'e', 'i', 'q']);

/** Collects parameters while the text is written. */
class Parameters {
  readonly values: unknown[] = [];
  add(value: unknown, type: string): string {
    this.values.push(value);
    return `$${this.values.length}::${type}`;
  }
}

/**
 * The event at a known place. The fence (OFFSET 0) keeps every other condition out, so that the unique index on the place is
 * the only way in, whatever the planner believes about a table that was empty when the statement was prepared.
 */
export function eventAt(place: string): string {
  return `CROSS JOIN LATERAL (SELECT * FROM events at
      WHERE at.keep = ${place}.keep AND at.ingested_at = ${place}.ingested_at AND at.seq = ${place}.seq OFFSET 0) e`;
}

/** The dedupe row of a known id, fenced for the same reason. */
export function dedupeOf(community: string, id: string): string {
  return `CROSS JOIN LATERAL (SELECT * FROM event_dedupe at WHERE at.community = ${community} AND at.event_id = ${id} OFFSET 0) d`;
}

const COLUMNS =
  'e.seq, e.ingested_at, e.keep, e.created_at, e.kind, e.expires_at, e.id, octet_length(e.payload) AS bytes, e.bound';
const PAYLOAD_TOO = `${COLUMNS}, e.payload`;
const NEWEST_FIRST = 'ORDER BY created_at DESC, id';

function selectRows(
  community: number,
  filter: Filter,
  limit: number,
  tagHash: TagHash,
  nowSeconds: number,
  retention: ReadRetention | undefined,
  params: Parameters,
  columns: string,
  generation?: number,
): string {
  const context = {
    community: params.add(community, 'int'),
    limit: params.add(limit, 'bigint'),
    nowSeconds: params.add(nowSeconds, 'bigint'),
    params,
    tagHash,
    retention,
    columns,
    generation,
  };
  if (filter.ids !== undefined) return selectByIds(context, community, filter);
  const tag = drivingTag(filter);
  if (tag !== undefined) return selectByTag(context, community, filter, tag);
  if (filter.authors !== undefined) return selectByAuthors(context, community, filter);
  if (filter.kinds !== undefined) return selectByKinds(context, community, filter);
  return `SELECT ${columns} FROM events e
    WHERE ${conditions(context, community, filter, {})} ORDER BY e.created_at DESC, e.id LIMIT ${context.limit}`;
}

interface Context {
  readonly community: string;
  readonly limit: string;
  readonly nowSeconds: string;
  readonly params: Parameters;
  readonly tagHash: TagHash;
  readonly retention: ReadRetention | undefined;
  readonly columns: string;
  /** Of the documents of search whose words decide; undefined where they have decided already. */
  readonly generation: number | undefined;
}

/**
 * A request to vanish hides at once, before its events are erased. The first subquery runs once per statement, so while no
 * erasure is under way the check costs nothing per row. Gift wraps to the vanished are known by their `p` tag, looked for in
 * the payload: a subquery on the tags would be set up anew for every partition of every query, needed or not.
 */
export const NOT_VANISHED = `(NOT (SELECT EXISTS (SELECT 1 FROM vanish_marks WHERE erased_at IS NULL)) OR NOT EXISTS (
    SELECT 1 FROM vanish_marks v WHERE v.erased_at IS NULL AND v.community = e.community AND e.created_at <= v.until
      AND (v.pubkey = e.pubkey OR (e.kind = ${KIND_GIFT_WRAP}
        AND strpos(e.payload, '["p","' || encode(v.pubkey, 'hex') || '"') > 0))))`;

/**
 * Retention, exact at read (I8), by the rules as they are and not by the bucket: an event is served as long as one of its topics
 * keeps it. Where a topic is asked for, it is that topic's own time that counts (`askedTags`).
 *
 * Only rows that are older than some rule keeps, and younger than another does, are looked at more closely. What the default keeps
 * may have a topic of shorter days, and no other that keeps it; what it does not keep may have a topic of longer days. Few such
 * topics are looked for in the payload; all topics of a payload are read only where that does not settle it.
 */
function withinDays({ params, retention }: Context, { tags }: Filter): string {
  if (retention === undefined || tags.some((tag) => tag.name === 't')) return 'true';
  const { rules, now } = retention;
  const byDefault = defaultSince(rules, now);
  const sinces = [...sincesOfTopics(rules, now)];
  const surelyKept = Math.max(byDefault, ...sinces.map(([, since]) => since));
  if (surelyKept === 0) return 'true';
  const isKept = `e.keep < ${Keep.days30} OR e.ingested_at >= ${params.add(surelyKept, 'bigint')}`;
  if (sinces.length === 0) return `(${isKept})`;
  const shorter = sinces.filter(([, since]) => since > byDefault);
  const longer = sinces.filter(([, since]) => since < byDefault);
  const isFew = (topics: readonly TopicSince[]) => topics.length <= FEW_TOPICS;
  const otherwise = params.add(byDefault, 'bigint');
  const byAny = keptByAny(params, sinces, otherwise);
  const young = isFew(shorter) ? `NOT ${namesOne(params, shorter, 'true')} OR ${byAny}` : byAny;
  const old = isFew(longer) ? namesOne(params, longer, 'e.ingested_at >= named.since') : byAny;
  return `(${isKept} OR CASE WHEN e.ingested_at >= ${otherwise} THEN ${young} ELSE ${old} END)`;
}

/** So many topics are looked for one by one. */
const FEW_TOPICS = 16;
type TopicSince = readonly [topic: string, since: number];

function namesOne(params: Parameters, topics: readonly TopicSince[], which: string): string {
  const needles = params.add(textArray(topics.map(([topic]) => `["t",${JSON.stringify(topic)}`)), 'text[]');
  const sinces = params.add(int8Array(topics.map(([, since]) => since)), 'bigint[]');
  return `EXISTS (SELECT 1 FROM unnest(${needles}, ${sinces}) AS named (needle, since)
      WHERE ${which} AND strpos(e.payload, named.needle) > 0)`;
}

/** By one of its topics, or by the default when it names none. */
function keptByAny(params: Parameters, topics: readonly TopicSince[], otherwise: string): string {
  const spelt = topics.map(([topic, since]) => [JSON.stringify(topic), since]);
  const sinces = params.add(JSON.stringify(Object.fromEntries(spelt)), 'jsonb');
  return `e.ingested_at >= coalesce((SELECT min(coalesce((${sinces} ->> found[1])::bigint, ${otherwise}))
      FROM regexp_matches(e.payload, '${TOPIC_TAG}', 'g') AS found WHERE ${IS_TOPIC}), ${otherwise})`;
}

/** The rules of the community that is asked, and the time. */
export interface ReadRetention {
  readonly rules: Retention;
  readonly now: number;
}

/** What the driving index has settled already, so that it is not checked again. */
interface Settled {
  readonly ids?: true;
  readonly authors?: true;
  readonly kinds?: true;
  readonly tag?: TagCondition;
}

function conditions(context: Context, community: number, filter: Filter, settled: Settled): string {
  const { params } = context;
  const all = [
    `e.community = ${context.community}`,
    'e.hidden IS NULL',
    `e.keep IN (${servedKeeps(filter)})`,
    `(e.expires_at IS NULL OR e.expires_at > ${context.nowSeconds})`,
    NOT_VANISHED,
    withinDays(context, filter),
  ];
  if (filter.since !== undefined) all.push(`e.created_at >= ${params.add(filter.since, 'bigint')}`);
  if (filter.until !== undefined) all.push(`e.created_at <= ${params.add(filter.until, 'bigint')}`);
  if (filter.authors !== undefined && !settled.authors) {
    all.push(`e.pubkey = ANY (${params.add(hexArray([...filter.authors]), 'bytea[]')})`);
  }
  if (filter.kinds !== undefined && !settled.kinds) {
    all.push(`e.kind = ANY (${params.add(int4Array([...filter.kinds]), 'int[]')})`);
  }
  for (const tag of filter.tags) {
    if (tag === settled.tag) continue;
    all.push(`EXISTS (SELECT 1 FROM ${askedTags(context, community, tag)} JOIN event_tags g
      ON g.tag = asked.tag AND g.created_at = e.created_at AND g.seq = e.seq
      WHERE g.keep = e.keep AND g.ingested_at = e.ingested_at AND ${carries(tag, filter)})`);
  }
  if (filter.view !== undefined) all.push(...visible(params, filter.view));
  if (filter.search !== undefined && context.generation !== undefined) {
    all.push(`EXISTS (SELECT 1 FROM post_search_documents doc WHERE doc.generation = ${params.add(context.generation, 'int')}
      AND doc.community = ${context.community} AND doc.event_id = e.id AND doc.deleted_at IS NULL
      AND doc.words @@ ${params.add(toTsquery(filter.search, undefined), 'tsquery')})`);
  }
  return all.join(' AND ');
}

/** A `t` tag in a payload, with its value as JSON spells it. */
const TOPIC_TAG = String.raw`\["t",("(?:[^"\\]|\\.)*")`;

/**
 * The SQL twin of `isTopic`, of a value as JSON spells it: what needs an escape is a quote, a backslash or a control character. Lengths are those of JavaScript, where some characters count twice.
 */
const IS_TOPIC = String.raw`found[1] ~ '^"(?:[^"\\\u007f]|\\["\\])+"$'
      AND (char_length(found[1]) <= ${TOPIC_LENGTH_MAX / 2 + 2} OR char_length(regexp_replace(regexp_replace(found[1],
        '\\.', 'x', 'g'), '[\U00010000-\U0010ffff]', 'xx', 'g')) <= ${TOPIC_LENGTH_MAX + 2})`;

/** The SQL twin of `sees` in core/access.ts. */
function visible(params: Parameters, { parties, topics, kinds }: View): string[] {
  const holdsOne = (needles: string[]) =>
    `EXISTS (SELECT 1 FROM unnest(${params.add(textArray(needles), 'text[]')}) AS held (needle)
      WHERE strpos(e.payload, held.needle) > 0)`;
  const conditions: string[] = [];
  if (kinds !== undefined) {
    const ranges = kinds.map(([from, to]) => `e.kind BETWEEN ${from} AND ${to}`);
    conditions.push(ranges.length === 0 ? 'false' : `(${ranges.join(' OR ')})`);
  }
  if (parties !== undefined) {
    const ranges = parties.ranges.map(([from, to]) => `e.kind BETWEEN ${from} AND ${to}`);
    const pubkeys = [...parties.pubkeys];
    const isParty =
      pubkeys.length === 0
        ? 'false'
        : `e.pubkey = ANY (${params.add(hexArray(pubkeys), 'bytea[]')})
          OR ${holdsOne(pubkeys.map((pubkey) => `["p","${pubkey}"`))}`;
    conditions.push(`(NOT (${ranges.join(' OR ')}) OR ${isParty})`);
  }
  if (topics !== undefined) {
    // One pass over the tags, however many topics are allowed. Topics are compared as JSON spells them.
    const spelt = (list: Iterable<string>) =>
      params.add(textArray([...list].map((topic) => JSON.stringify(topic))), 'text[]');
    const prefix = params.add(JSON.stringify(topics.carried.prefix).slice(0, -1), 'text');
    conditions.push(`((e.bound IS NULL AND strpos(e.payload, '["t","') = 0) OR (
      SELECT coalesce(bool_or(t.topic = ANY (${spelt(allowedTopics(topics))})), true)
      FROM (SELECT found[1] AS topic FROM regexp_matches(e.payload, '${TOPIC_TAG}', 'g') AS found
        UNION ALL SELECT to_json(bound.topic)::text FROM unnest(e.bound) AS bound (topic)) t
      WHERE starts_with(t.topic, ${prefix}) OR t.topic = ANY (${spelt(topics.carried.plain)})))`);
  }
  return conditions;
}

/** A kind's bucket is known, so a filter with kinds leaves the other partitions alone. */
function servedKeeps({ kinds }: Filter): string {
  const keeps =
    kinds === undefined ? SERVED_KEEPS : [...new Set([...kinds].flatMap(keepsOf))].sort((a, b) => a - b);
  return keeps.join(', ');
}

/**
 * The hash finds, the needle makes sure. A payload is written by JSON.stringify, so `["t","value"` stands in it
 * exactly when such a tag is there: inside any string the quotes would be escaped.
 */
function askedTags(
  { params, tagHash, retention }: Context,
  community: number,
  { name, values }: TagCondition,
): string {
  const list = [...values];
  const hashes = params.add(int8Array(list.map((value) => tagHash(community, name, value))), 'bigint[]');
  const needles = params.add(textArray(list.map((value) => `["${name}",${JSON.stringify(value)}`)), 'text[]');
  if (name !== 't') return `unnest(${hashes}, ${needles}) AS asked (tag, needle)`;
  const boundSince = retention === undefined ? 0 : defaultSince(retention.rules, retention.now);
  const since = (topic: string) =>
    retention === undefined ? 0 : topicSince(retention.rules, topic, retention.now);
  const columns = [
    // What is no topic has nothing bound to it, and may hold what text cannot.
    params.add(textArray(list.map((topic) => (isTopic(topic) ? topic : ''))), 'text[]'),
    params.add(int8Array(list.map(since)), 'bigint[]'),
    params.add(int8Array(list.map(() => boundSince)), 'bigint[]'),
  ];
  return `unnest(${hashes}, ${needles}, ${columns.join(', ')}) AS asked (tag, needle, topic, kept_since, bound_since)`;
}

const HAS_TAG = 'strpos(e.payload, asked.needle) > 0';
/** Only regular events age; an event with two topics may be seen in one and not in the other. */
const keptSince = (time: string) => `(g.keep < ${Keep.days30} OR g.ingested_at >= ${time})`;
/**
 * A topic may also be bound to the event without a tag (core/topic.ts); then its days are those of an event without topics.
 * What is past both is not even looked up.
 */
function carries({ name }: TagCondition, filter: Filter): string {
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

function drivingTag({ tags, authors }: Filter): TagCondition | undefined {
  const usable = authors === undefined ? tags : tags.filter((tag) => SELECTIVE_TAGS.has(tag.name));
  const rank = (tag: TagCondition) => (SELECTIVE_TAGS.has(tag.name) ? 0 : tag.name === 't' ? 2 : 1);
  return [...usable].sort((a, b) => rank(a) - rank(b) || a.values.size - b.values.size)[0];
}

/** One walk along an index per asked value, each in order and up to the limit; then the newest of them all. */
function perValue(context: Context, asked: string, from: string, where: string): string {
  return `SELECT DISTINCT ON (created_at, id) r.* FROM ${asked} CROSS JOIN LATERAL (
      SELECT ${context.columns} FROM ${from} WHERE ${where}
      ORDER BY e.created_at DESC, e.id LIMIT ${context.limit}) r
    ${NEWEST_FIRST} LIMIT ${context.limit}`;
}

function selectByIds(context: Context, community: number, filter: Filter): string {
  const ids = context.params.add(hexArray([...(filter.ids ?? [])]), 'bytea[]');
  return `SELECT ${context.columns} FROM unnest(${ids}) AS asked (id)
    ${dedupeOf(context.community, 'asked.id')}
    ${eventAt('d')}
    WHERE ${conditions(context, community, filter, { ids: true })}
    ${NEWEST_FIRST} LIMIT ${context.limit}`;
}

function selectByTag(context: Context, community: number, filter: Filter, tag: TagCondition): string {
  const { params } = context;
  const range = [
    filter.since === undefined ? '' : `AND g.created_at >= ${params.add(filter.since, 'bigint')}`,
    filter.until === undefined ? '' : `AND g.created_at <= ${params.add(filter.until, 'bigint')}`,
  ].join(' ');
  const rest = conditions(context, community, filter, { tag });
  return `SELECT DISTINCT ON (created_at, id) r.* FROM ${askedTags(context, community, tag)} CROSS JOIN LATERAL (
      SELECT ${context.columns.replace('e.created_at', 'g.created_at')} FROM event_tags g
      ${eventAt('g')}
      WHERE g.tag = asked.tag AND g.keep IN (${servedKeeps(filter)}) ${range}
        AND ${carries(tag, filter)} AND ${rest}
      ORDER BY g.created_at DESC, e.id LIMIT ${context.limit}) r
    ${NEWEST_FIRST} LIMIT ${context.limit}`;
}

function selectByAuthors(context: Context, community: number, filter: Filter): string {
  const authors = [...(filter.authors ?? [])];
  const kinds = filter.kinds === undefined ? [] : [...filter.kinds];
  const asked = `unnest(${context.params.add(hexArray(authors), 'bytea[]')}) AS author (pubkey)`;
  if (kinds.length === 0 || authors.length * kinds.length > PAIRS_MAX) {
    const where = conditions(context, community, filter, { authors: true });
    return perValue(context, asked, 'events e', `e.pubkey = author.pubkey AND ${where}`);
  }
  const askedKinds = `unnest(${context.params.add(int4Array(kinds), 'int[]')}) AS asked (kind)`;
  const where = conditions(context, community, filter, { authors: true, kinds: true });
  return perValue(
    context,
    `${asked} CROSS JOIN ${askedKinds}`,
    'events e',
    `e.pubkey = author.pubkey AND e.kind = asked.kind AND ${where}`,
  );
}

function selectByKinds(context: Context, community: number, filter: Filter): string {
  const asked = `unnest(${context.params.add(int4Array([...(filter.kinds ?? [])]), 'int[]')}) AS asked (kind)`;
  const where = conditions(context, community, filter, { kinds: true });
  return perValue(context, asked, 'events e', `e.kind = asked.kind AND ${where}`);
}

export interface Statement {
  readonly text: string;
  readonly values: unknown[];
}

export function findStatement(
  community: number,
  filter: Filter,
  limit: number,
  tagHash: TagHash,
  nowSeconds: number,
  retention?: ReadRetention,
  generation?: number,
): Statement {
  const params = new Parameters();
  const inOneStep = limit <= ONE_STEP_ROWS_MAX && isNarrow(filter);
  const columns = inOneStep ? PAYLOAD_TOO : COLUMNS;
  const rows = selectRows(
    community,
    filter,
    limit,
    tagHash,
    nowSeconds,
    retention,
    params,
    columns,
    generation,
  );
  const last = inOneStep ? 'payload' : 'NULL';
  const text = `SELECT seq, ingested_at, keep, created_at, kind, expires_at, encode(id, 'hex'), bytes, bound, ${last}
    FROM (${rows}) r ${NEWEST_FIRST}`;
  return { text, values: params.values };
}

/** One walk along an index, or single places: no payload is read that is not in the answer. */
function isNarrow({ ids, authors, kinds, tags }: Filter): boolean {
  if (ids !== undefined) return ids.size <= ONE_STEP_ROWS_MAX;
  return [authors, kinds, ...tags.map(({ values }) => values)].every((values) => (values?.size ?? 1) === 1);
}

/** The places of the newest events that match, newest first. */
export async function findEvents(
  pool: Pool,
  community: number,
  filter: Filter,
  limit: number,
  tagHash: TagHash,
  nowSeconds: number,
  retention?: ReadRetention,
  generation?: number,
): Promise<FoundRow[]> {
  let rows: FoundTuple[] = [];
  for (const window of windowsOf(filter, nowSeconds)) {
    const statement = findStatement(community, window, limit, tagHash, nowSeconds, retention, generation);
    ({ rows } = await run<FoundTuple>(pool, statement, filter.tags.length <= 2));
    if (rows.length >= limit) break;
  }
  return rows.map(([seq, ingestedAt, keep, createdAt, kind, expiresAt, id, bytes, bound, payload]) => ({
    seq,
    ingestedAt,
    keep,
    createdAt,
    kind,
    expiresAt: expiresAt ?? undefined,
    id,
    bytes,
    bound: bound ?? UNBOUND,
    payload: payload ?? undefined,
  }));
}
type FoundTuple = [
  seq: number,
  ingestedAt: number,
  keep: number,
  createdAt: number,
  kind: number,
  expiresAt: number | null,
  id: string,
  bytes: number,
  bound: string[] | null,
  payload: string | null,
];

/** How many different events match any of the filters, counted up to `max + 1`. */
export async function countEvents(
  pool: Pool,
  community: number,
  filters: readonly Filter[],
  max: number,
  tagHash: TagHash,
  nowSeconds: number,
  retention?: ReadRetention,
): Promise<number> {
  const params = new Parameters();
  const parts = filters.map((filter) => {
    const limit = Math.min(filter.limit ?? max + 1, max + 1);
    return `SELECT seq FROM (${selectRows(community, filter, limit, tagHash, nowSeconds, retention, params, COLUMNS)}) f`;
  });
  if (parts.length === 0) return 0;
  const text = `SELECT count(*) FROM (SELECT DISTINCT seq FROM (${parts.join(' UNION ALL ')}) u) n`;
  // Its shapes are many and large, so their plans are not kept.
  const { rows } = await run<[number]>(pool, { text, values: params.values }, false);
  return rows[0]![0];
}

/** Of one event: rows of tags that are looked at, however many of them lead to what nobody may see. */
const REFERENCES_LOOKED_MAX = 500;

export interface ReferencesOf {
  readonly ids: readonly string[];
  /** Counted up to here. */
  readonly max: number;
  /** What came later does not count. */
  readonly cut: number;
  /** Whose eyes count. */
  readonly view: View;
}

/** How many events that pass the view refer to each of these (`e`), in their order. A hash is enough: nothing is shown. */
export async function countReferences(
  pool: Pool,
  community: number,
  { ids, max, cut, view }: ReferencesOf,
  tagHash: TagHash,
  retention: ReadRetention,
): Promise<number[]> {
  const params = new Parameters();
  const context = {
    community: params.add(community, 'int'),
    limit: params.add(max, 'bigint'),
    nowSeconds: params.add(Math.floor(retention.now / 1_000), 'bigint'),
    params,
    tagHash,
    retention,
    columns: '',
    generation: undefined,
  };
  const tags = params.add(int8Array(ids.map((id) => tagHash(community, 'e', id))), 'bigint[]');
  const text = `SELECT asked.place::int, (SELECT count(*) FROM (
      SELECT 1 FROM (SELECT * FROM event_tags t WHERE t.tag = asked.tag AND t.seq <= ${params.add(cut, 'bigint')}
        ORDER BY t.created_at DESC LIMIT ${REFERENCES_LOOKED_MAX}) g
      ${eventAt('g')}
      WHERE ${conditions(context, community, { tags: [], view }, {})} LIMIT ${context.limit}) r)
    FROM unnest(${tags}) WITH ORDINALITY AS asked (tag, place) ORDER BY asked.place`;
  const { rows } = await run<[number, number]>(pool, { text, values: params.values });
  return rows.map(([, count]) => count);
}

const PAYLOAD_SQL = `
  SELECT asked.place::int, e.payload
  FROM unnest($1::bigint[], $2::bigint[], $3::smallint[]) WITH ORDINALITY AS asked (seq, ingested_at, keep, place)
  ${eventAt('asked')}
  WHERE e.hidden IS NULL`;

/** Payloads in the order asked; undefined where the row is no longer effective. */
export async function readPayloads(
  pool: Pool,
  rows: readonly Pick<FoundRow, 'seq' | 'ingestedAt' | 'keep'>[],
): Promise<(string | undefined)[]> {
  const payloads = new Array<string | undefined>(rows.length).fill(undefined);
  const result = await run<[number, string]>(pool, {
    text: PAYLOAD_SQL,
    values: [
      int8Array(rows.map((r) => r.seq)),
      int8Array(rows.map((r) => r.ingestedAt)),
      int2Array(rows.map((r) => r.keep)),
    ],
  });
  for (const [place, payload] of result.rows) payloads[place - 1] = payload;
  return payloads;
}

export interface ReadEvent {
  /** The number of its upsert. */
  readonly seq: number;
  readonly ingestedAt: number;
  readonly payload: string;
  readonly bound: readonly string[];
}

/** Effective events by id, for readers of the outbox. */
export async function readEventsById(
  pool: Pool | ClientBase,
  asked: readonly { readonly community: number; readonly id: string }[],
): Promise<Map<string, ReadEvent>> {
  const { rows } = await run<[number, string, number, number, string, string[] | null]>(pool, {
    text: `SELECT d.community, encode(d.event_id, 'hex'), e.seq, e.ingested_at, e.payload, e.bound
      FROM unnest($1::int[], $2::bytea[]) AS asked (community, event_id)
      ${dedupeOf('asked.community', 'asked.event_id')}
      ${eventAt('d')}
      WHERE e.hidden IS NULL AND ${NOT_VANISHED}`,
    values: [int4Array(asked.map((a) => a.community)), hexArray(asked.map((a) => a.id))],
  });
  return new Map(
    rows.map(([community, id, seq, ingestedAt, payload, bound]) => [
      `${community}/${id}`,
      { seq, ingestedAt, payload, bound: bound ?? UNBOUND },
    ]),
  );
}

/** Statements are prepared once per shape and connection; the shape is the text, so its hash is the name. */
const names = new Map<string, string>();
const NAMES_MAX = 200;

function run<T extends unknown[]>(pool: Pool | ClientBase, { text, values }: Statement, prepared = true) {
  let name = prepared ? names.get(text) : undefined;
  if (prepared && name === undefined && names.size < NAMES_MAX) {
    name = `q${names.size}`;
    names.set(text, name);
  }
  // Past the bound a shape is planned each time instead of filling the server's memory with prepared statements.
  return pool.query<T>({ ...(name === undefined ? {} : { name }), text, values, rowMode: 'array' });
}
