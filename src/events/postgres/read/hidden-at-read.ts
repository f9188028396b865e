/**
 * Conditions that hide stored rows at read time, on an event named `e`: rows that time or a mark hides before
 * a job has purged them (I6, I8), and rows that the reader may not see.
 */
import type { Pool } from 'pg';
import { hexArray, int8Array, textArray } from '../../../postgres/binary.js';
import { TOPIC_LENGTH_MAX } from '../../../topics/rules.js';
import { allowedTopics, type View } from '../../rules/access.js';
import { KIND_VANISH } from '../../rules/classify.js';
import { KIND_GIFT_WRAP } from '../../rules/deletion.js';
import type { Filter } from '../../rules/filter.js';
import { Keep } from '../../rules/keep.js';
import { defaultSince, type Retention, sincesOfTopics } from '../../rules/retention.js';
import type { PendingMark, Position } from '../../store.js';
import type { Parameters } from './statement.js';

/**
 * A request to vanish hides events at once, before they are erased. The first subquery runs once per
 * statement, so the check costs nothing per row while no erasure is running. Gift wraps to a vanished key are
 * found by their `p` tag in the payload: a subquery on the tags would be set up for every partition of every
 * query, needed or not.
 */
export const NOT_VANISHED = `(NOT (SELECT EXISTS (SELECT 1 FROM vanish_marks WHERE erased_at IS NULL))
  OR NOT EXISTS (
    SELECT 1 FROM vanish_marks v
    WHERE v.erased_at IS NULL AND v.community = e.community AND e.created_at <= v.until
      AND (v.pubkey = e.pubkey OR (e.kind = ${KIND_GIFT_WRAP}
        AND strpos(e.payload, '["p","' || encode(v.pubkey, 'hex') || '"') > 0))))`;

/**
 * Retention, exact at read time (I8), by the current rules and not by the bucket: an event is served as long
 * as one of its topics keeps it. Where a filter names a topic, the days of that topic count
 * (`requestedTags`).
 *
 * Only rows that one rule keeps and another does not are checked more closely. A row that the default keeps
 * may have only topics with shorter days. A row that the default does not keep may have a topic with longer
 * days. Few such topics are searched in the payload. All topics of a payload are read only where that does
 * not decide it.
 */
export function withinDays(
  params: Parameters,
  rules: Retention | undefined,
  now: number,
  { tags }: Filter,
): string {
  if (rules === undefined || tags.some((tag) => tag.name === 't')) return 'true';
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

/** Up to this many topics are searched one by one. */
const FEW_TOPICS = 16;
type TopicSince = readonly [topic: string, since: number];

function namesOne(params: Parameters, topics: readonly TopicSince[], which: string): string {
  const needles = params.add(textArray(topics.map(([topic]) => `["t",${JSON.stringify(topic)}`)), 'text[]');
  const sinces = params.add(int8Array(topics.map(([, since]) => since)), 'bigint[]');
  return `EXISTS (SELECT 1 FROM unnest(${needles}, ${sinces}) AS named (needle, since)
      WHERE ${which} AND strpos(e.payload, named.needle) > 0)`;
}

/** Kept by one of its topics, or by the default when it names none. */
function keptByAny(params: Parameters, topics: readonly TopicSince[], otherwise: string): string {
  const spelt = topics.map(([topic, since]) => [JSON.stringify(topic), since]);
  const sinces = params.add(JSON.stringify(Object.fromEntries(spelt)), 'jsonb');
  return `e.ingested_at >= coalesce((SELECT min(coalesce((${sinces} ->> found[1])::bigint, ${otherwise}))
      FROM regexp_matches(e.payload, '${TOPIC_TAG}', 'g') AS found WHERE ${IS_TOPIC}), ${otherwise})`;
}

/** A `t` tag in a payload, with its value as written in JSON. */
const TOPIC_TAG = String.raw`\["t",("(?:[^"\\]|\\.)*")`;

/**
 * The SQL twin of `isTopic`, for a value as written in JSON: only a quote, a backslash or a control character
 * is escaped. Lengths are those of JavaScript, where some characters count twice.
 */
const IS_TOPIC = String.raw`found[1] ~ '^"(?:[^"\\\u007f]|\\["\\])+"$'
      AND (char_length(found[1]) <= ${TOPIC_LENGTH_MAX / 2 + 2}
        OR char_length(regexp_replace(regexp_replace(found[1],
        '\\.', 'x', 'g'), '[\U00010000-\U0010ffff]', 'xx', 'g')) <= ${TOPIC_LENGTH_MAX + 2})`;

/** The SQL twin of `sees` in events/rules/access.ts. */
export function visible(params: Parameters, { parties, topics, kinds }: View): string[] {
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
    // One pass over the tags, however many topics are allowed. Topics are compared as written in JSON.
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

// ── Positions of the outbox without a row: requests to vanish, fences of erasures, scrubbed rows ───────────

/** Where more are missing, nobody looks what they were. */
const POSITIONS_MAX = 1_000;

/** A mark without a request is a fence, of which there are as many as erasures under way. */
const MARKS_SQL = `
  SELECT v.community, encode(v.pubkey, 'hex') AS pubkey, v.until FROM vanish_marks v
  WHERE v.erased_at IS NULL AND (v.request IS NULL OR v.pubkey = ANY (ARRAY(
    SELECT e.pubkey FROM events e
    WHERE e.keep = ${Keep.request} AND e.seq = ANY ($1::bigint[]) AND e.kind = ${KIND_VANISH})))`;

/**
 * Marks that hold now, those of these positions among them; undefined when a row was scrubbed before it was
 * read.
 */
export async function readMarks(
  pool: Pool,
  positions: readonly Position[],
): Promise<readonly PendingMark[] | undefined> {
  if (positions.length > POSITIONS_MAX) return undefined;
  const values = [int8Array(positions)];
  const { rows: scrubbed } = await pool.query<{ found: boolean }>({
    name: 'scrubbed',
    // The last offset of a scrubbed range stays. A range may grow, so its end may lie after these positions.
    text: "SELECT EXISTS (SELECT 1 FROM events_outbox WHERE seq >= $1 AND op = 'scrubbed') AS found",
    values: [Math.min(...positions)],
  });
  if (scrubbed[0]!.found) return undefined;
  return (await pool.query<PendingMark>({ name: 'pending-marks', text: MARKS_SQL, values })).rows;
}
