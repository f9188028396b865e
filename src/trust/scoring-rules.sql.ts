/**
 * The rules by which contacts were selected and scores computed. After a change all scores are computed
 * again.
 */
import type { ClientBase } from 'pg';
import type { PublicTopics } from '../events/rules/access.js';
import { int4Array, textArray } from '../postgres/binary.js';
import { bytes, type Db } from '../postgres/values.js';
import { CLAIMS, type Claim } from './rules.js';
import { markDue } from './scores.sql.js';

/** The rules of the scores of each community, as one text, and whether all scores follow them. */
export async function readSweeps(db: Db): Promise<Map<number, { rules: string; isDone: boolean }>> {
  const { rows } = await db.query<{ community: number; rules: string; isDone: boolean }>(
    `SELECT community, rules #>> '{}' AS rules, after IS NULL AS "isDone" FROM trust_sweeps`,
  );
  return new Map(rows.map(({ community, rules, isDone }) => [community, { rules, isDone }]));
}

/** Starts to compute all scores of a community again. */
export async function startSweep(db: Db, community: number, rules: string): Promise<void> {
  await db.query(
    `INSERT INTO trust_sweeps (community, rules, after) VALUES ($1, to_jsonb($2::text), '')
     ON CONFLICT (community) DO UPDATE SET rules = excluded.rules, after = ''`,
    [community, rules],
  );
}

/** Marks the next `limit` people as due. Returns whether there was something to do. */
export async function sweepOn(tx: ClientBase, now: number, limit: number): Promise<boolean> {
  const { rows } = await tx.query<{ community: number; after: Buffer }>(
    'SELECT community, after FROM trust_sweeps WHERE after IS NOT NULL ORDER BY community LIMIT 1 FOR UPDATE',
  );
  if (rows[0] === undefined) return false;
  const { community, after } = rows[0];
  const found = await tx.query<{ subject: string }>(
    `SELECT DISTINCT encode(subject, 'hex') AS subject FROM
       (SELECT subject FROM trust_scores WHERE community = $1 AND subject > $2 ORDER BY subject LIMIT $3) s
     ORDER BY 1`,
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

/** The rules by which events became contacts. */
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
/** Leaves existing rows unchanged. */
export const addContactRules = writeRules('DO NOTHING');

/** The first of these topics that has events. */
export async function firstUsedTopic(
  db: Db,
  community: number,
  topics: readonly string[],
): Promise<string | undefined> {
  const { rows } = await db.query<{ topic: string }>(
    `SELECT topic FROM topic_totals WHERE community = $1 AND topic = ANY ($2) AND events > 0
     ORDER BY topic LIMIT 1`,
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
