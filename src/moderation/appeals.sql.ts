/**
 * Decisions about a member and their events, as the member sees them, and their appeals. A member never sees
 * who decided, who reported, or what moderators wrote to one another. An appeal reopens the case of the
 * decision or opens a new one; the next decision about that case settles it.
 */
import type { ClientBase, Pool } from 'pg';
import { type Denial, denial } from '../api/rules-errors.js';
import { DAY_MS } from '../events/rules/retention.js';
import type { StoredEvents } from '../events/stored-events.js';
import { NEWEST_POSITION, type Page, type PageOf, readPage } from '../postgres/page.js';
import { BEGIN_BRIEFLY, inTransaction } from '../postgres/transaction.js';
import { bytes, bytesOrNull, type Db } from '../postgres/values.js';
import { moveCase, openCase } from './cases.sql.js';
import type { CaseStatus } from './rules.js';

/** Appeals of one member in a day. */
export const APPEALS_PER_DAY = 10;

export const DECISIONS = ['remove', 'restore', 'label', 'unlabel', 'ban', 'unban'] as const;

export interface Decision {
  readonly position: number;
  readonly action: (typeof DECISIONS)[number];
  readonly at: number;
  /** Null when the decision is about the member. */
  readonly event: string | null;
  readonly byRule: boolean;
  /** Hidden until a moderator decides. */
  readonly held: boolean;
  readonly appeal: string | null;
  readonly appealedAt: number | null;
  /** Status of the case that the appeal belongs to. */
  readonly appealStatus: CaseStatus | null;
}

const HAD_EFFECT = `a.outcome IN ('removed', 'restored', 'done')`;
const IS_DECISION = `a.action IN (${DECISIONS.map((one) => `'${one}'`).join(', ')}) AND ${HAD_EFFECT}`;

/** The newest first. */
export function listDecisions(
  db: Db,
  { community, pubkey }: { readonly community: number; readonly pubkey: string },
  page: PageOf,
): Promise<Page<Decision> | Denial> {
  return readPage(
    page,
    NEWEST_POSITION,
    ({ at, position }: Decision) => [at, position],
    async ([before, beforePosition], limit) => {
      const { rows } = await db.query<Decision>(
        `SELECT a.position, a.action, a.at, a.actor IS NULL AND a.rule_id IS NOT NULL AS "byRule",
           CASE WHEN a.action NOT IN ('ban', 'unban') THEN encode(a.target_event, 'hex') END AS event,
           a.action = 'remove' AND coalesce(c.status = 'held', false) AS held,
           appealed.appeal, appealed.appealed_at AS "appealedAt", appealed.status AS "appealStatus"
         FROM moderation_actions a LEFT JOIN moderation_cases c USING (case_id)
         LEFT JOIN moderation_cases appealed ON appealed.community = a.community
           AND appealed.target_pubkey = a.target_pubkey
           AND appealed.appeal_of = a.action_id
         WHERE a.community = $1 AND a.target_pubkey = $2 AND (a.at, a.position) < ($3, $4) AND ${IS_DECISION}
         ORDER BY a.at DESC, a.position DESC LIMIT $5`,
        [community, bytes(pubkey), before, beforePosition, limit],
      );
      return rows;
    },
  );
}

export interface Appeal {
  readonly community: number;
  readonly pubkey: string;
  /** Undefined for an appeal against a ban. */
  readonly event: string | undefined;
  readonly text: string;
}

interface Standing {
  readonly actionId: string;
  readonly caseId: string | null;
}

/** A member can appeal once against each decision that is in force. */
export function appeal(
  pool: Pool,
  events: StoredEvents,
  given: Appeal,
  now: number,
): Promise<{ appealedAt: number } | Denial> {
  const { community, pubkey, text } = given;
  return inTransaction(pool, BEGIN_BRIEFLY, async (tx) => {
    const standing = await standingDecision(tx, given);
    if (standing === undefined) return denial('NOT_FOUND');
    const refused = await refusalOf(tx, given, standing, now);
    if (refused !== undefined) return refused;
    const caseId = await caseOf(tx, events, given, standing, now);
    const { rowCount } = await tx.query(
      `UPDATE moderation_cases SET appeal = $2, appealed_at = $3, appeal_of = $4, updated_at = $3
       WHERE case_id = $1 AND appeal_of IS DISTINCT FROM $4`,
      [caseId, text, now, standing.actionId],
    );
    if (rowCount === 0) return denial('STATUS_CONFLICT', { appeal: 'was made already' });
    await tx.query(
      `INSERT INTO audit_log (community, at, actor, action, target, details)
       VALUES ($1, $2, $3, 'moderation.appeal', $4, '{}')`,
      [community, now, bytes(pubkey), caseId],
    );
    return { appealedAt: now };
  });
}

/** The last decision of its sort, unless it was reversed. */
async function standingDecision(
  tx: ClientBase,
  { community, pubkey, event }: Appeal,
): Promise<Standing | undefined> {
  const about =
    event === undefined
      ? `a.action IN ('ban', 'unban') AND $3::bytea IS NULL`
      : `a.action IN ('remove', 'restore', 'label', 'unlabel') AND a.target_event = $3`;
  const { rows } = await tx.query<Standing & { action: string }>(
    `SELECT a.action_id AS "actionId", a.case_id AS "caseId", a.action FROM moderation_actions a
     WHERE a.community = $1 AND a.target_pubkey = $2 AND ${about} AND ${HAD_EFFECT}
     ORDER BY a.position DESC LIMIT 1`,
    [community, bytes(pubkey), bytesOrNull(event)],
  );
  const [last] = rows;
  return last !== undefined && ['remove', 'label', 'ban'].includes(last.action) ? last : undefined;
}

async function refusalOf(
  tx: ClientBase,
  { community, pubkey }: Appeal,
  { actionId }: Standing,
  now: number,
): Promise<Denial | undefined> {
  const { rows } = await tx.query<{ same: boolean; recent: boolean }>(
    `SELECT appeal_of = $3 AS same, appealed_at > $4 AS recent FROM moderation_cases
     WHERE community = $1 AND target_pubkey = $2 AND appealed_at IS NOT NULL
       AND (appeal_of = $3 OR appealed_at > $4)
     LIMIT ${APPEALS_PER_DAY + 1}`,
    [community, bytes(pubkey), actionId, now - DAY_MS],
  );
  if (rows.some(({ same }) => same)) return denial('STATUS_CONFLICT', { appeal: 'was made already' });
  if (rows.filter(({ recent }) => recent).length < APPEALS_PER_DAY) return undefined;
  return denial('RATE_LIMITED', { retry_after_seconds: DAY_MS / 1_000 });
}

/** The open or held case about the target, or the case of the decision, reopened, or a new case. */
async function caseOf(
  tx: ClientBase,
  events: StoredEvents,
  { community, pubkey, event }: Appeal,
  { caseId }: Standing,
  now: number,
): Promise<string> {
  const { rows } = await tx.query<{ caseId: string; isOpen: boolean }>(
    `SELECT case_id AS "caseId", status IN ('open', 'held') AS "isOpen" FROM moderation_cases
     WHERE community = $1 AND target_pubkey = $2 AND target_event IS NOT DISTINCT FROM $3
       AND (case_id = $4 OR status IN ('open', 'held')) ORDER BY 2 DESC LIMIT 1 FOR UPDATE`,
    [community, bytes(pubkey), bytesOrNull(event), caseId],
  );
  const [known] = rows;
  if (known === undefined)
    return (await openCase(tx, events, { community, event, pubkey, reason: 'appeal' }, now)).caseId;
  if (!known.isOpen) await moveCase(tx, known.caseId, 'open', now);
  return known.caseId;
}
