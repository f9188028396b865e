/**
 * Standing: the ties of people with standing count for others (`trust_authors.stands_from`). It is granted
 * once, to somebody whom an operator approved or who has enough ties with people of standing. It stays until
 * an operator blocks or disables them. A founder has it by the age of the key, without a grant.
 */
import type { ClientBase } from 'pg';
import type { AccessRules } from '../events/rules/access.js';
import { hexArray, int8Array } from '../postgres/binary.js';
import { bytes, type Db } from '../postgres/values.js';
import { isApproved } from './grounds.sql.js';
import { hasTies, isOldEnough, RISK_MAX, STANDS_AFTER_MS, scoreOf } from './rules.js';
import { countsFrom, gatherRisks, gatherTies, NEVER, readFounded } from './weights.sql.js';

type CommunityRules = AccessRules & { readonly id: number };

interface Candidate {
  readonly pubkey: string;
  readonly firstSeenAt: number;
  readonly standsFrom: number | null;
  readonly approved: boolean;
  readonly keptOut: boolean;
}

/** Returns how many gained or lost standing. The scores of those whom they name become due. */
export async function reviewStanding(
  client: ClientBase,
  rules: CommunityRules,
  subjects: readonly string[],
  now: number,
): Promise<number> {
  const candidates = await readCandidates(client, rules, subjects);
  const changed = new Map<string, number | null>();
  for (const { pubkey, keptOut, standsFrom } of candidates)
    if (keptOut) changed.set(pubkey, NEVER);
    else if (standsFrom === NEVER) changed.set(pubkey, null);
  const waiting = candidates.filter(({ keptOut, standsFrom }) => !keptOut && standsFrom === null);
  for (const pubkey of await established(client, rules, waiting, now))
    changed.set(pubkey, now + STANDS_AFTER_MS);
  if (changed.size > 0) await saveStanding(client, rules.id, changed, now);
  return changed.size;
}

/** People whose standing may change. Somebody who never names anybody needs none. */
async function readCandidates(
  client: ClientBase,
  { id, settings }: CommunityRules,
  subjects: readonly string[],
): Promise<Candidate[]> {
  const { rows } = await client.query<Candidate>({
    name: 'trust-candidates',
    text: `SELECT * FROM (
        SELECT encode(a.pubkey, 'hex') AS pubkey, a.first_seen_at AS "firstSeenAt",
          a.stands_from AS "standsFrom", a.first_seen_at <= $3 AS founder,
          ${isApproved('a.pubkey')} AS approved,
          EXISTS (SELECT 1 FROM blocked_authors b WHERE b.community = $1 AND b.pubkey = a.pubkey)
            OR EXISTS (SELECT 1 FROM members m WHERE m.community = $1 AND m.pubkey = a.pubkey
              AND m.status = 'disabled') AS "keptOut"
        FROM trust_authors a WHERE a.community = $1 AND a.pubkey = ANY ($2::bytea[])
          AND EXISTS (SELECT 1 FROM trust_people p JOIN trust_contacts c ON c.author = p.id
            WHERE p.community = $1 AND p.pubkey = a.pubkey)) c
      WHERE CASE WHEN "keptOut" THEN "standsFrom" IS DISTINCT FROM ${NEVER}
        ELSE "standsFrom" = ${NEVER} OR "standsFrom" IS NULL AND NOT founder END`,
    values: [id, hexArray(subjects), await readFounded(client, id, settings)],
  });
  return rows;
}

export interface Standing {
  readonly firstSeenAt: number;
  readonly isFounder: boolean;
  readonly isApproved: boolean;
  /** When their ties begin to count for others: as granted, or by age for a founder; null: not granted. */
  readonly standsFrom: number | null;
  /** An operator blocked or disabled the person. */
  readonly isTakenAway: boolean;
}

/** Undefined for a key that has never posted here. */
export async function readStanding(
  db: Db,
  { id, settings }: CommunityRules,
  pubkey: string,
): Promise<Standing | undefined> {
  const { rows } = await db.query<Standing>({
    name: 'trust-standing-of',
    text: `SELECT a.first_seen_at AS "firstSeenAt", a.first_seen_at <= $3 AS "isFounder",
        ${isApproved('a.pubkey')} AS "isApproved",
        nullif(${countsFrom('$3')}, ${NEVER}) AS "standsFrom",
        coalesce(a.stands_from = ${NEVER}, false) AS "isTakenAway"
      FROM trust_authors a WHERE a.community = $1 AND a.pubkey = $2`,
    values: [id, bytes(pubkey), await readFounded(db, id, settings)],
  });
  return rows[0];
}

async function established(
  client: ClientBase,
  rules: CommunityRules,
  candidates: readonly Candidate[],
  now: number,
): Promise<string[]> {
  const { id, settings } = rules;
  const grown = candidates.filter(({ approved, firstSeenAt }) => approved || isOldEnough(now - firstSeenAt));
  if (grown.length === 0) return [];
  const keys = grown.map(({ pubkey }) => pubkey);
  const ties = await gatherTies(client, id, keys, rules, now);
  const risks = await gatherRisks(client, id, keys, rules, now);
  return grown
    .filter(({ pubkey, approved }) => approved || hasTies(ties.get(pubkey)!.weight, settings))
    .filter(({ pubkey }) => scoreOf('report-based', risks.get(pubkey)!, settings) < RISK_MAX)
    .map(({ pubkey }) => pubkey);
}

async function saveStanding(
  client: ClientBase,
  community: number,
  changed: ReadonlyMap<string, number | null>,
  now: number,
): Promise<void> {
  await client.query({
    name: 'trust-stands',
    text: `WITH changed AS (
        UPDATE trust_authors a SET stands_from = nullif(n.stands_from, 0)
        FROM unnest($2::bytea[], $3::bigint[]) AS n (pubkey, stands_from)
        WHERE a.community = $1 AND a.pubkey = n.pubkey RETURNING a.pubkey)
      INSERT INTO trust_due (community, claim, due_at, subject)
      SELECT DISTINCT n.community, 'communication-density', $4::bigint, n.pubkey
      FROM changed JOIN trust_people p ON p.community = $1 AND p.pubkey = changed.pubkey
      JOIN trust_contacts c ON c.author = p.id JOIN trust_people n ON n.id = c.named
      ORDER BY 4 ON CONFLICT DO NOTHING`,
    values: [
      community,
      hexArray([...changed.keys()]),
      int8Array([...changed.values()].map((from) => from ?? 0)),
      now,
    ],
  });
}
