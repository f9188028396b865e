/**
 * Scores of trust, derived from the grounds (I9): what they add up to, whose are due, what was computed and what was asserted of it. A due
 * row is taken in the transaction that computes; a ground that is written meanwhile waits for it with its own.
 */
import type { ClientBase, Pool } from 'pg';
import { type AccessRules, type PublicTopics, publicTopicsOf } from '../core/access.js';
import { DAY_MS } from '../core/retention.js';
import {
  ASSERTION_GAP,
  CLAIMS,
  type Claim,
  ESTABLISHED_DAYS,
  foundedUntil,
  rankOf,
  renewalMs,
  scoreOf,
  TIE_FULL,
  type TrustSettings,
  windowMs,
  windowStart,
} from '../core/trust.js';
import { hexArray, int2Array, int4Array, int8Array, textArray } from './binary.js';
import { bytes, type Db } from './config-change.js';

// ── What the grounds add up to ────────────────────────────────────────────────────────────────────────────────────

export interface Grounds {
  /** Of the reports, one for each reporter, or of the ties, one for each person at most. */
  readonly weight: number;
  readonly labels: number;
  /** Something counts now. */
  readonly grounded: boolean;
  /** They have been seen here themselves. */
  readonly seen: boolean;
  /** When the weight is another, if nothing is added. */
  readonly changesAt: number | null;
}

type GroundsRow = Grounds & { readonly subject: string };

const bySubject = (rows: readonly GroundsRow[]) => new Map(rows.map((row) => [row.subject, row]));
const SEEN = 'EXISTS (SELECT 1 FROM trust_authors a WHERE a.community = $1 AND a.pubkey = s.subject) AS seen';

/**
 * A label on an event counts where anyone may read the event, by the rule of search: what only members of a topic see is told to nobody
 * else, not even as a number. One on the person always counts. Takes three parameters from this one on.
 */
export const isPublicLabel = (
  first: number,
) => `(target_event IS NULL OR $${first}::text IS NULL OR topics && $${first + 1}::text[]
  OR NOT EXISTS (SELECT 1 FROM unnest(topics) AS t (topic)
    WHERE starts_with(t.topic, $${first}::text) OR t.topic = ANY ($${first + 2}::text[])))`;

export function publicLabelValues(rules: AccessRules): unknown[] {
  const topics = publicTopicsOf(rules);
  return [topics?.prefix ?? null, textArray(topics?.public ?? []), textArray(topics?.plain ?? [])];
}

/** One reporter counts once, with the greatest weight that they have had. */
const RISKS_SQL = `
  SELECT encode(s.subject, 'hex') AS subject, coalesce(r.weight, 0)::float8 AS weight, l.count AS labels, ${SEEN},
    coalesce(r.weight, 0) > 0 OR l.count > 0 AS grounded,
    least(least(r.oldest, l.oldest) + $4::bigint, l.lapses) AS "changesAt"
  FROM unnest($2::bytea[]) AS s (subject)
  CROSS JOIN LATERAL (
    SELECT sum(o.weight) AS weight, min(o.oldest) AS oldest
    FROM (SELECT max(weight)::numeric AS weight, min(at) AS oldest FROM trust_reports
      WHERE community = $1 AND subject = s.subject AND at > $3 AND weight > 0 GROUP BY reporter) o) r
  CROSS JOIN LATERAL (
    SELECT count(*) AS count, min(created_at) AS oldest, min(lapses_at) * 1000 AS lapses FROM labels
    WHERE community = $1 AND target_pubkey = s.subject AND created_at > $3 AND label <> 'safe'
      AND withdrawn_at IS NULL AND lapses_at * 1000 > $5 AND ${isPublicLabel(6)}) l`;

export async function gatherRisks(
  db: Db,
  community: number,
  subjects: readonly string[],
  rules: AccessRules,
  now: number,
): Promise<Map<string, Grounds>> {
  const { settings } = rules;
  const times = [windowStart(now, settings), windowMs(settings), now];
  const { rows } = await db.query<GroundsRow>({
    name: 'trust-risks',
    text: RISKS_SQL,
    values: [community, hexArray(subjects), ...times, ...publicLabelValues(rules)],
  });
  return bySubject(rows);
}

/** Contacts of one person, and of one with another, that are looked at: the newest. */
const CONTACTS_READ = 1_000;
/** Standing that an operator took away. */
export const NEVER = Number.MAX_SAFE_INTEGER;

/** From when on the ties of an author `a` count for others; null: not so far. `founded`: the parameter of when founding ended. */
const countsFrom = (founded: string) => `coalesce(a.stands_from,
  CASE WHEN a.first_seen_at <= ${founded} THEN a.first_seen_at + ${ESTABLISHED_DAYS * DAY_MS} END)`;

/** The greatest contact of each day, and when the oldest was. Takes the columns that a row is grouped by beside the day. */
const byDay = (columns: string, contacts: string) => `
  SELECT ${columns} max(round(w.weight / c.shared, 3)) AS weight, min(c.at) AS oldest
  FROM (SELECT * FROM trust_contacts WHERE community = $1 AND at > $3 AND kind = ANY ($5) AND ${contacts}
    ORDER BY at DESC LIMIT ${CONTACTS_READ}) c
  JOIN unnest($5::int[], $6::numeric[]) AS w (kind, weight) ON w.kind = c.kind GROUP BY ${columns} c.at / ${DAY_MS}`;

/**
 * Ties with people of standing: whom they named, as far as these named them too. It begins with what a person said, because what others say
 * about somebody has no bound. It changes when the oldest contact leaves the window, or when somebody else comes to stand.
 */
const TIES_SQL = `
  SELECT encode(s.subject, 'hex') AS subject, coalesce(t.ties, 0)::float8 AS weight, 0 AS labels, ${SEEN},
    coalesce(t.ties, 0) > 0 AS grounded, t.changes AS "changesAt"
  FROM unnest($2::bytea[]) AS s (subject)
  CROSS JOIN LATERAL (
    SELECT sum(round(least(1, least(p.given, i.got) / ${TIE_FULL}), 3)) FILTER (WHERE p.counts_from <= $7::bigint) AS ties,
      least(min(least(p.oldest, i.oldest)) + $4::bigint, min(p.counts_from) FILTER (WHERE p.counts_from > $7::bigint)) AS changes
    FROM (
      SELECT d.named, d.given, d.oldest, ${countsFrom('$8::bigint')} AS counts_from
      FROM (SELECT named, sum(weight) AS given, min(oldest) AS oldest
        FROM (${byDay('c.named,', 'author = s.subject')}) o GROUP BY named) d
      JOIN trust_authors a ON a.community = $1 AND a.pubkey = d.named) p
    CROSS JOIN LATERAL (
      SELECT sum(weight) AS got, min(oldest) AS oldest FROM (${byDay('', 'named = s.subject AND author = p.named')}) o) i
    WHERE p.counts_from < ${NEVER} AND i.got IS NOT NULL) t`;

export async function gatherTies(
  db: Db,
  community: number,
  subjects: readonly string[],
  { settings }: Pick<AccessRules, 'settings'>,
  now: number,
): Promise<Map<string, Grounds>> {
  const weights = Object.entries(settings['trust.kindWeights']);
  const { rows } = await db.query<GroundsRow>({
    name: 'trust-ties',
    text: TIES_SQL,
    values: [
      community,
      hexArray(subjects),
      windowStart(now, settings),
      windowMs(settings),
      int4Array(weights.map(([kind]) => Number(kind))),
      weights.map(([, weight]) => String(weight)),
      now,
      await readFounded(db, community, settings),
    ],
  });
  return bySubject(rows);
}

/** Keys that were first seen up to then are founders'. */
export async function readFounded(db: Db, community: number, settings: TrustSettings): Promise<number> {
  const { rows } = await db.query<{ at: number }>({
    name: 'trust-founded',
    text: 'SELECT created_at AS at FROM communities WHERE id = $1',
    values: [community],
  });
  return foundedUntil(rows[0]?.at ?? 0, settings);
}

const GATHER = { 'report-based': gatherRisks, 'communication-density': gatherTies } as const;

// ── Whose are due ─────────────────────────────────────────────────────────────────────────────────────────────────

export interface DueScore {
  readonly community: number;
  readonly claim: Claim;
  readonly subject: string;
}

/** Those of whom a ground has left the window are due as well. */
export async function takeDue(tx: ClientBase, now: number, limit: number): Promise<DueScore[]> {
  await tx.query({
    name: 'trust-passed',
    text: `INSERT INTO trust_due (community, claim, due_at, subject)
      SELECT community, claim, changes_at, subject FROM
        (SELECT * FROM trust_scores WHERE changes_at <= $1 ORDER BY changes_at LIMIT $2) s
      ORDER BY community, subject, claim ON CONFLICT DO NOTHING`,
    values: [now, limit],
  });
  const { rows } = await tx.query<DueScore>({
    name: 'trust-take-due',
    text: `DELETE FROM trust_due WHERE (community, subject, claim) IN
        (SELECT community, subject, claim FROM trust_due WHERE due_at <= $1 ORDER BY due_at LIMIT $2 FOR UPDATE SKIP LOCKED)
      RETURNING community, claim, encode(subject, 'hex') AS subject`,
    values: [now, limit],
  });
  return rows;
}

/** These people's scores of both claims. */
export async function markDue(
  db: Db,
  community: number,
  subjects: readonly string[],
  now: number,
): Promise<void> {
  await db.query(
    `INSERT INTO trust_due (community, claim, due_at, subject)
     SELECT $1, claim, $2, subject FROM unnest($3::bytea[]) AS s (subject), unnest($4::text[]) AS c (claim)
     ORDER BY subject, claim ON CONFLICT DO NOTHING`,
    [community, now, hexArray(subjects), textArray(CLAIMS)],
  );
}

// ── Computing ─────────────────────────────────────────────────────────────────────────────────────────────────────

export interface ComputedScore {
  readonly subject: string;
  readonly score: number;
  readonly rank: number;
  readonly grounded: boolean;
  readonly changesAt: number | null;
  /** May be asserted: whom nobody has seen here could be anybody's invention. */
  readonly asserted: boolean;
}

export interface ScoresOf {
  readonly community: number;
  readonly claim: Claim;
  readonly subjects: readonly string[];
}

/** From the grounds alone. */
export async function computeScores(
  db: Db,
  { community, claim, subjects }: ScoresOf,
  rules: AccessRules,
  now: number,
): Promise<ComputedScore[]> {
  const { settings } = rules;
  const found = await GATHER[claim](db, community, subjects, rules, now);
  return subjects.map((subject) => {
    const { grounded, seen, changesAt, ...weights } = found.get(subject)!;
    const score = scoreOf(claim, weights, settings);
    const asserted = grounded && (claim === 'report-based' || seen);
    return { subject, score, rank: rankOf(claim, score), grounded, changesAt, asserted };
  });
}

export async function saveScores(
  tx: ClientBase,
  { community, claim }: Pick<ScoresOf, 'community' | 'claim'>,
  scores: readonly ComputedScore[],
  settings: TrustSettings,
  now: number,
): Promise<void> {
  const values = [
    community,
    claim,
    now,
    settings['trust.publish'],
    Math.floor(renewalMs(settings)),
    hexArray(scores.map((s) => s.subject)),
    scores.map((s) => s.score),
    int2Array(scores.map((s) => s.rank)),
    scores.map((s) => s.grounded),
    scores.map((s) => s.changesAt),
    scores.map((s) => s.asserted),
  ];
  await tx.query({ name: 'trust-save', text: SAVE_SQL, values });
}

/** From when on a rank may be asserted that is another than the one before. */
const gapAfter = (before: string, rank: string) => `(s.asserted_at * 1000 + CASE
  WHEN s.claim = 'report-based' AND ${before} - ${rank} >= ${ASSERTION_GAP.fall} THEN ${ASSERTION_GAP.fallMs}
  ELSE ${ASSERTION_GAP.usualMs} END)`;

/**
 * Who was never named, reported, labelled or seen to name somebody has no row. An assertion is wanted where what was said is not true any more, or was said by a key of before; else when it grows old. Of one who
 * has no grounds left what was said is set right once, and then left to expire. Two of one key are ASSERTION_GAP apart.
 */
const SAVE_SQL = `
  WITH n AS (
    SELECT * FROM unnest($6::bytea[], $7::float8[], $8::smallint[], $9::boolean[], $10::bigint[], $11::boolean[])
      AS n (subject, score, rank, grounded, changes_at, asserted)
    WHERE grounded OR EXISTS (SELECT 1 FROM trust_scores s WHERE s.community = $1::int AND s.claim = $2::text AND s.subject = n.subject)
      OR EXISTS (SELECT 1 FROM trust_contacts c WHERE c.community = $1::int AND c.author = n.subject)
      OR EXISTS (SELECT 1 FROM trust_contacts c WHERE c.community = $1::int AND c.named = n.subject)
      OR EXISTS (SELECT 1 FROM trust_reports r WHERE r.community = $1::int AND r.subject = n.subject)
      OR EXISTS (SELECT 1 FROM labels l WHERE l.community = $1::int AND l.target_pubkey = n.subject)),
  k AS (SELECT (SELECT pubkey FROM node_keys WHERE community = $1::int AND purpose = $2::text AND retired_at IS NULL) AS pubkey)
  INSERT INTO trust_scores AS s (community, claim, score, computed_at, changes_at, publish_at, rank, grounded, subject)
  SELECT $1::int, $2::text, n.score, $3::bigint, n.changes_at, CASE WHEN $4::boolean AND n.asserted THEN $3::bigint END, n.rank, n.grounded, n.subject FROM n
  ORDER BY n.subject
  ON CONFLICT (community, subject, claim) DO UPDATE
  SET score = excluded.score, computed_at = excluded.computed_at, changes_at = excluded.changes_at, rank = excluded.rank,
    grounded = excluded.grounded, publish_at = CASE
      WHEN NOT $4::boolean THEN NULL
      WHEN s.asserted_rank IS NULL THEN excluded.publish_at
      WHEN s.asserted_by IS DISTINCT FROM (SELECT pubkey FROM k) THEN greatest($3::bigint, (s.asserted_at + 1) * 1000)
      WHEN s.asserted_rank <> excluded.rank THEN greatest($3::bigint, ${gapAfter('s.asserted_rank', 'excluded.rank')})
      WHEN excluded.publish_at IS NOT NULL THEN s.asserted_at * 1000 + $5::bigint END`;

// ── Asserting ─────────────────────────────────────────────────────────────────────────────────────────────────────

export interface Unasserted extends DueScore {
  readonly rank: number;
  /** Seconds. */
  readonly assertedAt: number;
}

/** One that was not made, for whatever reason, is tried again after so long. */
const RETRY_MS = 60_000;

export type ClaimOf = Pick<DueScore, 'community' | 'claim'>;

/** What is due is computed first. Takes the second before it is said: should this process end before it is said, nothing that is said later has the same one. */
export async function takeUnasserted(
  pool: Pool,
  now: number,
  limit: number,
  except: readonly ClaimOf[],
): Promise<Unasserted[]> {
  const { rows } = await pool.query<Unasserted>({
    name: 'trust-unasserted',
    text: `UPDATE trust_scores SET asserted_at = $2, publish_at = $3 WHERE (community, subject, claim) IN
        (SELECT community, subject, claim FROM trust_scores WHERE publish_at <= $1 AND (asserted_at IS NULL OR asserted_at < $2)
           AND (changes_at IS NULL OR changes_at > $1)
           AND (community, claim) NOT IN (SELECT * FROM unnest($5::int[], $6::text[]))
         ORDER BY publish_at LIMIT $4 FOR UPDATE SKIP LOCKED)
      RETURNING community, claim, encode(subject, 'hex') AS subject, rank, asserted_at AS "assertedAt"`,
    values: [
      now,
      Math.floor(now / 1_000),
      now + RETRY_MS,
      limit,
      int4Array(except.map(({ community }) => community)),
      textArray(except.map(({ claim }) => claim)),
    ],
  });
  return rows;
}

export interface AssertedScore extends Unasserted {
  readonly eventId: string;
  readonly by: string;
  /** When it grows old. */
  readonly renewAt: number;
}

/** The rank may be another by now: then it is said again when it may be. */
export async function saveAsserted(pool: Pool, asserted: readonly AssertedScore[]): Promise<void> {
  if (asserted.length === 0) return;
  await pool.query({
    name: 'trust-asserted',
    text: `UPDATE trust_scores s SET asserted_rank = n.rank, assertion = n.assertion, asserted_by = n.asserted_by, publish_at = CASE
        WHEN s.rank <> n.rank THEN ${gapAfter('n.rank', 's.rank')} WHEN s.grounded AND (s.claim = 'report-based'
          OR EXISTS (SELECT 1 FROM trust_authors a WHERE a.community = s.community AND a.pubkey = s.subject)) THEN n.renew_at END
      FROM unnest($1::int[], $2::bytea[], $3::text[], $4::smallint[], $5::bytea[], $6::bytea[], $7::bigint[])
        AS n (community, subject, claim, rank, assertion, asserted_by, renew_at)
      WHERE s.community = n.community AND s.subject = n.subject AND s.claim = n.claim`,
    values: [
      int4Array(asserted.map((a) => a.community)),
      hexArray(asserted.map((a) => a.subject)),
      textArray(asserted.map((a) => a.claim)),
      int2Array(asserted.map((a) => a.rank)),
      hexArray(asserted.map((a) => a.eventId)),
      hexArray(asserted.map((a) => a.by)),
      int8Array(asserted.map((a) => a.renewAt)),
    ],
  });
}

// ── Reading ───────────────────────────────────────────────────────────────────────────────────────────────────────

export interface Score {
  readonly score: number;
  readonly rank: number;
  readonly computedAt: number;
  readonly assertion: string | null;
}

export async function readScore(db: Db, { community, claim, subject }: DueScore): Promise<Score | undefined> {
  const { rows } = await db.query<Score>({
    name: 'trust-score',
    text: `SELECT score, rank, computed_at AS "computedAt", encode(assertion, 'hex') AS assertion FROM trust_scores
      WHERE community = $1 AND claim = $2 AND subject = $3`,
    values: [community, claim, bytes(subject)],
  });
  return rows[0];
}

// ── Rules ─────────────────────────────────────────────────────────────────────────────────────────────────────────

/** By which rules scores are computed, as one text. */
export async function readSweeps(db: Db): Promise<Map<number, { rules: string; isDone: boolean }>> {
  const { rows } = await db.query<{ community: number; rules: string; isDone: boolean }>(
    `SELECT community, rules #>> '{}' AS rules, after IS NULL AS "isDone" FROM trust_sweeps`,
  );
  return new Map(rows.map(({ community, rules, isDone }) => [community, { rules, isDone }]));
}

/** Everybody's scores of a community are to be computed anew. */
export async function startSweep(db: Db, community: number, rules: string): Promise<void> {
  await db.query(
    `INSERT INTO trust_sweeps (community, rules, after) VALUES ($1, to_jsonb($2::text), '')
     ON CONFLICT (community) DO UPDATE SET rules = excluded.rules, after = ''`,
    [community, rules],
  );
}

/** Marks the next so many as due. Returns whether there was something to do. */
export async function sweepOn(tx: ClientBase, now: number, limit: number): Promise<boolean> {
  const { rows } = await tx.query<{ community: number; after: Buffer }>(
    'SELECT community, after FROM trust_sweeps WHERE after IS NOT NULL ORDER BY community LIMIT 1 FOR UPDATE',
  );
  if (rows[0] === undefined) return false;
  const { community, after } = rows[0];
  const found = await tx.query<{ subject: string }>(
    `SELECT DISTINCT encode(subject, 'hex') AS subject FROM
       (SELECT subject FROM trust_scores WHERE community = $1 AND subject > $2 ORDER BY subject LIMIT $3) s ORDER BY 1`,
    [community, after, limit],
  );
  const subjects = found.rows.map(({ subject }) => subject);
  await markDue(tx, community, subjects, now);
  const last = subjects.at(-1);
  await tx.query('UPDATE trust_sweeps SET after = $2 WHERE community = $1', [
    community,
    last === undefined ? null : bytes(last),
  ]);
  return true;
}

/** By which rules contacts were taken in. */
export interface ContactRules {
  readonly kinds: readonly string[];
  readonly privateKinds: readonly (number | string)[];
  readonly topics: PublicTopics | null;
}

export async function readContactRules(db: Db, generation: number): Promise<Map<number, ContactRules>> {
  const { rows } = await db.query<{ community: number; rules: ContactRules }>(
    'SELECT community, rules FROM trust_rules WHERE generation = $1',
    [generation],
  );
  return new Map(rows.map(({ community, rules }) => [community, rules]));
}

const writeRules =
  (onConflict: string) => (db: Db, generation: number, rules: ReadonlyMap<number, ContactRules>) =>
    db.query(
      `INSERT INTO trust_rules (generation, community, rules)
     SELECT $1, community, rules::jsonb FROM unnest($2::int[], $3::text[]) AS n (community, rules)
     ON CONFLICT (generation, community) ${onConflict}`,
      [
        generation,
        int4Array([...rules.keys()]),
        textArray([...rules.values()].map((each) => JSON.stringify(each))),
      ],
    );

export const saveContactRules = writeRules('DO UPDATE SET rules = excluded.rules');
/** Those that are there stay. */
export const addContactRules = writeRules('DO NOTHING');

/** The first of these topics that an event is in. */
export async function firstUsedTopic(
  db: Db,
  community: number,
  topics: readonly string[],
): Promise<string | undefined> {
  const { rows } = await db.query<{ topic: string }>(
    'SELECT topic FROM topic_totals WHERE community = $1 AND topic = ANY ($2) AND events > 0 ORDER BY topic LIMIT 1',
    [community, textArray(topics)],
  );
  return rows[0]?.topic;
}

export async function dropContactRules(db: Db, generation: number): Promise<void> {
  await db.query('DELETE FROM trust_rules WHERE generation = $1', [generation]);
}

/** The current keys of the claims, of all communities. */
export async function readClaimKeys(db: Db): Promise<Map<string, string>> {
  const { rows } = await db.query<{ community: number; purpose: Claim; pubkey: string }>(
    `SELECT community, purpose, encode(pubkey, 'hex') AS pubkey FROM node_keys
     WHERE retired_at IS NULL AND purpose = ANY ($1)`,
    [textArray(CLAIMS)],
  );
  return new Map(rows.map(({ community, purpose, pubkey }) => [`${community}/${purpose}`, pubkey]));
}

// ── The pass over all ─────────────────────────────────────────────────────────────────────────────────────────────

/** The next people after this one, in the order of their keys, of whom there are grounds or a score. */
export async function nextSubjects(
  client: ClientBase,
  community: number,
  after: string,
  limit: number,
): Promise<string[]> {
  const next = (table: string, column: string, than: string) =>
    `(SELECT ${column} AS subject FROM ${table} WHERE community = $1 AND ${column} > ${than} ORDER BY ${column} LIMIT 1)`;
  const least = (than: string) => `(SELECT min(subject) FROM (
    ${[
      next('trust_contacts', 'author', than),
      next('trust_contacts', 'named', than),
      next('trust_reports', 'subject', than),
      next('trust_scores', 'subject', than),
      next('labels', 'target_pubkey', than),
    ].join(' UNION ALL ')}) m)`;
  const { rows } = await client.query<{ subject: string }>(
    `WITH RECURSIVE walk (subject, place) AS (
       SELECT ${least('$2::bytea')}, 1
       UNION ALL SELECT ${least('walk.subject')}, place + 1 FROM walk WHERE walk.subject IS NOT NULL AND place < $3)
     SELECT encode(subject, 'hex') AS subject FROM walk WHERE subject IS NOT NULL ORDER BY place`,
    [community, bytes(after), limit],
  );
  return rows.map(({ subject }) => subject);
}

/** Where the pass stands in each community; of those that it has not come to, nothing. */
export async function readPassed(db: Db): Promise<Map<number, string>> {
  const { rows } = await db.query<{ community: number; passed: string }>(
    `SELECT community, encode(passed, 'hex') AS passed FROM trust_sweeps WHERE passed IS NOT NULL`,
  );
  return new Map(rows.map(({ community, passed }) => [community, passed]));
}

export async function savePassed(db: Db, community: number, passed: string): Promise<void> {
  await db.query('UPDATE trust_sweeps SET passed = $2 WHERE community = $1', [community, bytes(passed)]);
}

/** The next pass begins anew. */
export async function endPass(db: Db): Promise<void> {
  await db.query('UPDATE trust_sweeps SET passed = NULL WHERE passed IS NOT NULL');
}

export interface KeptScore {
  readonly subject: string;
  readonly score: number;
  readonly grounded: boolean;
  readonly changesAt: number | null;
}

/** The scores as they stand, without those that are due anyway. */
export async function settledScores(
  client: ClientBase,
  { community, claim, subjects }: ScoresOf,
  now: number,
): Promise<{ kept: Map<string, KeptScore>; due: Set<string> }> {
  const { rows } = await client.query<KeptScore & { due: boolean }>(
    `SELECT encode(n.subject, 'hex') AS subject, coalesce(s.score, 0) AS score, coalesce(s.grounded, false) AS grounded,
       s.changes_at AS "changesAt", s.changes_at IS NOT NULL AND s.changes_at <= $4 OR d.subject IS NOT NULL AS due
     FROM unnest($3::bytea[]) AS n (subject)
     LEFT JOIN trust_scores s ON s.community = $1 AND s.claim = $2 AND s.subject = n.subject
     LEFT JOIN trust_due d ON d.community = $1 AND d.claim = $2 AND d.subject = n.subject`,
    [community, claim, hexArray(subjects), now],
  );
  return {
    kept: new Map(rows.map((row) => [row.subject, row])),
    due: new Set(rows.filter(({ due }) => due).map(({ subject }) => subject)),
  };
}

/** Scores that stand on nothing any more and whose assertions have expired. */
export async function forgetScores(
  client: ClientBase,
  community: number,
  before: number,
  limit: number,
): Promise<number> {
  const { rowCount } = await client.query(
    `DELETE FROM trust_scores s WHERE (community, subject, claim) IN (
       SELECT community, subject, claim FROM trust_scores o
       WHERE o.community = $1 AND NOT o.grounded AND o.computed_at < $2 AND o.publish_at IS NULL
         AND coalesce(o.asserted_at, 0) * 1000 < $2
         AND NOT EXISTS (SELECT 1 FROM trust_contacts c WHERE c.community = $1 AND c.author = o.subject)
         AND NOT EXISTS (SELECT 1 FROM trust_contacts c WHERE c.community = $1 AND c.named = o.subject)
         AND NOT EXISTS (SELECT 1 FROM trust_reports r WHERE r.community = $1 AND r.subject = o.subject)
       ORDER BY o.computed_at LIMIT $3)`,
    [community, before, limit],
  );
  return rowCount ?? 0;
}
