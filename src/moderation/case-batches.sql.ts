/**
 * One action on many cases, undone as one. The batch is written first, with the status of each case. A case
 * that somebody has changed since is skipped, so that undoing knows the status to return to. Each case is
 * acted on in its own transaction, which also counts it in the batch; a process that is killed between two
 * cases leaves a batch that can be undone.
 */
import { randomUUID } from 'node:crypto';
import type { ClientBase, Pool } from 'pg';
import { type Denial, denial } from '../api/rules-errors.js';
import type { Change } from '../communities/config-change.sql.js';
import { DAY_MS } from '../events/rules/retention.js';
import { putLabel } from '../labels/labels.sql.js';
import type { LabelSpec } from '../labels/rules.js';
import type { Fixed } from '../members/members.sql.js';
import { bytesOrNull } from '../postgres/values.js';
import { type Acting, type Action, act } from './cases.sql.js';
import type { BatchAction, CaseAction, CaseStatus } from './rules.js';

/** Cases in one batch. */
export const BATCH_CASES_MAX = 10_000;

export interface CaseBatchSpec extends Pick<Acting, 'community' | 'action' | 'note' | 'label' | 'actor'> {
  readonly caseIds: readonly string[];
}

export interface CaseBatch {
  readonly batchId: string;
  /** The status of each case when the batch began. */
  readonly statuses: ReadonlyMap<string, CaseStatus>;
}

/** The column allows only actions on events. The action on the cases is in `conditions`. */
const COLUMN: Partial<Record<CaseAction, BatchAction>> = { remove: 'remove', label: 'label' };

export async function openCaseBatch(
  pool: Pool,
  { community, action, note, label, actor, caseIds }: CaseBatchSpec,
  now: number,
): Promise<CaseBatch> {
  const { rows } = await pool.query<{ caseId: string; status: CaseStatus }>(
    `SELECT case_id AS "caseId", status FROM moderation_cases
     WHERE community = $1 AND case_id = ANY ($2::uuid[])`,
    [community, caseIds.slice(0, BATCH_CASES_MAX)],
  );
  const cases: Partial<Record<CaseStatus, string[]>> = {};
  for (const { caseId, status } of rows) cases[status] = [...(cases[status] ?? []), caseId];
  const batchId = randomUUID();
  await pool.query(
    `INSERT INTO moderation_batches (batch_id, community, status, action, created_at, updated_at, cursor_at,
       by_rule, conditions, label, actor, note, looked_at)
     VALUES ($1, $2, 'done', $3, $4, $4, 0, false, $5, $6, $7, $8, $9)`,
    [
      batchId,
      community,
      COLUMN[action] ?? 'release',
      now,
      JSON.stringify({ case_action: action, cases }),
      label === undefined ? null : JSON.stringify(label),
      bytesOrNull(actor),
      note,
      rows.length,
    ],
  );
  return { batchId, statuses: new Map(rows.map(({ caseId, status }) => [caseId, status])) };
}

export async function actInBatch(
  pool: Pool,
  { batchId, statuses }: CaseBatch,
  acting: Acting,
  fixed: Fixed,
  now: number,
): Promise<Action | Denial> {
  const was = statuses.get(acting.caseId);
  if (was === undefined) return denial('NOT_FOUND');
  return act(pool, { ...acting, batch: { batchId, was } }, fixed, now);
}

/** Deletes a batch in which nothing was done. */
export async function closeCaseBatch(pool: Pool, { batchId }: CaseBatch): Promise<string | undefined> {
  const { rowCount } = await pool.query(
    `DELETE FROM moderation_batches WHERE batch_id = $1 AND matched = 0
       AND NOT EXISTS (SELECT 1 FROM moderation_actions WHERE batch_id = $1)`,
    [batchId],
  );
  return rowCount === 0 ? batchId : undefined;
}

// ── Undoing ────────────────────────────────────────────────────────────────────────────────────────────────

/** As `banReason` writes it. */
const BAN_REASON = `'case ' || a.case_id || CASE WHEN a.note = '' THEN '' ELSE ': ' || a.note END`;

/** Writes an action and its audit row for each row of `undone`, which has the case, event and author. */
const noted = (action: 'ban' | 'unban', audited: 'author.block' | 'author.unblock') => `, acted AS (
    INSERT INTO moderation_actions (action_id, community, batch_id, case_id, action, at, done_at, outcome,
      actor, note, target_event, target_pubkey)
    SELECT gen_random_uuid(), $2, $1, case_id, '${action}', $3::bigint, $3::bigint, 'done', $4::bytea,
      'undone', target_event, target_pubkey
    FROM undone)
  INSERT INTO audit_log (community, at, actor, action, target, details)
  SELECT $2, $3::bigint, $4::bytea, '${audited}', encode(target_pubkey, 'hex'),
    jsonb_build_object('batch_id', $1::uuid) FROM undone`;

const UNBAN_SQL = `WITH undone AS (
    DELETE FROM blocked_authors b USING moderation_actions a
    WHERE a.batch_id = $1 AND a.action = 'ban' AND b.community = a.community AND b.pubkey = a.target_pubkey
      AND b.reason = ${BAN_REASON}
    RETURNING a.case_id, a.target_event, a.target_pubkey)${noted('unban', 'author.unblock')}`;

const BAN_AGAIN_SQL = `WITH undone AS (
    INSERT INTO blocked_authors AS b (community, pubkey, reason, created_at)
    SELECT DISTINCT ON (a.target_pubkey) a.community, a.target_pubkey,
      'case ' || a.case_id || ': unban undone', $3::bigint
    FROM moderation_actions a WHERE a.batch_id = $1 AND a.action = 'unban' ON CONFLICT DO NOTHING
    RETURNING NULL::uuid AS case_id, NULL::bytea AS target_event,
      b.pubkey AS target_pubkey)${noted('ban', 'author.block')}`;

/**
 * Unbans the authors that the batch banned, or bans those that it unbanned. A block that somebody has changed
 * since is left alone.
 */
export async function undoBans(change: Change, batchId: string): Promise<void> {
  const { db, community, actor, now } = change;
  const { rows } = await db.query<{ action: string | null }>(
    `SELECT conditions ->> 'case_action' AS action FROM moderation_batches WHERE batch_id = $1`,
    [batchId],
  );
  const action = rows[0]?.action;
  if (action !== 'ban' && action !== 'unban') return;
  const text = action === 'ban' ? UNBAN_SQL : BAN_AGAIN_SQL;
  const { rowCount } = await db.query(text, [batchId, community, now, bytesOrNull(actor)]);
  if ((rowCount ?? 0) > 0) change.raiseVersion();
}

interface Undoing {
  readonly batchId: string;
  readonly label: LabelSpec | null;
  /** SQL that selects the actions to undo now; `between` are its parameters. */
  readonly portion: string;
  readonly between: readonly unknown[];
}

/**
 * Gives each case the status that it had, unless somebody has decided about it since, and puts withdrawn
 * labels again.
 */
export async function undoCases(tx: ClientBase, undoing: Undoing, now: number): Promise<void> {
  const { portion, between } = undoing;
  await labelAgain(tx, undoing, now);
  await tx.query(
    `WITH was AS (SELECT s.key AS status, i.id::uuid AS case_id
       FROM moderation_batches b, jsonb_each(b.conditions -> 'cases') s,
         jsonb_array_elements_text(s.value) i (id) WHERE b.batch_id = $1)
     UPDATE moderation_cases c SET status = was.status, updated_at = $4,
       closed_at = CASE WHEN was.status IN ('resolved', 'dismissed') THEN $4::bigint END
     FROM (${portion}) a JOIN was USING (case_id)
     WHERE c.case_id = a.case_id AND c.status <> was.status AND a.action IN (${DECIDING})
       AND NOT EXISTS (SELECT 1 FROM moderation_actions later WHERE later.case_id = c.case_id
         AND later.position > a.position
         AND later.batch_id IS DISTINCT FROM a.batch_id AND later.action IN (${DECIDING}))
       AND (was.status IN ('resolved', 'dismissed') OR NOT EXISTS (SELECT 1 FROM moderation_cases other
         WHERE other.community = c.community AND other.target_event IS NOT DISTINCT FROM c.target_event
           AND other.target_pubkey = c.target_pubkey AND other.case_id <> c.case_id
           AND other.status IN ('open', 'held')))`,
    [...between, now],
  );
}

/** Actions that change the status of a case. */
const DECIDING = `'remove', 'restore', 'dismiss', 'reopen'`;

interface Withdrawn {
  readonly community: number;
  readonly event: string | null;
  readonly pubkey: string;
  readonly topics: string[];
  readonly confidence: number;
  readonly policy: string;
  readonly lapsesAt: number;
  readonly caseId: string;
}

/** Puts the labels that the batch withdrew again, for the days that were left. */
async function labelAgain(
  tx: ClientBase,
  { batchId, label, portion, between }: Undoing,
  now: number,
): Promise<void> {
  if (label === null) return;
  const { rows } = await tx.query<Withdrawn>(
    `SELECT DISTINCT ON (a.position) l.community, encode(l.target_event, 'hex') AS event,
       encode(l.target_pubkey, 'hex') AS pubkey, l.topics, l.confidence, l.policy, l.lapses_at AS "lapsesAt",
       a.case_id AS "caseId"
     FROM (${portion}) a JOIN labels l ON l.community = a.community
       AND l.target_event IS NOT DISTINCT FROM a.target_event
       AND l.target_pubkey = a.target_pubkey AND l.withdrawn_at = a.at AND l.label = $4
     WHERE a.action = 'unlabel' AND l.lapses_at * 1000 > $5::bigint ORDER BY a.position, l.created_at DESC`,
    [...between, label.label, now],
  );
  for (const { event, lapsesAt, caseId, confidence, policy, ...same } of rows) {
    const target = { ...same, event: event ?? undefined };
    const days = Math.ceil((lapsesAt * 1_000 - now) / DAY_MS);
    const spec = { label: label.label, confidence: Number(confidence.toPrecision(6)), policy, days };
    await putLabel(tx, target, spec, { caseId, batchId }, now);
  }
}
