/**
 * Cases: an event or a person that a moderator should look at, and what was done about it. Reports and rules
 * about the same target share one open case. An action, its audit row and the new status of its case are
 * written in one transaction.
 */
import { randomUUID } from 'node:crypto';
import type { ClientBase, Pool } from 'pg';
import { type Denial, denial, isDenial } from '../api/rules-errors.js';
import { block, isBlocked, unblock } from '../blocks/blocks.sql.js';
import { type Change, changeConfig } from '../communities/config-change.sql.js';
import type { Settings } from '../communities/rules-settings.js';
import type { NostrEvent } from '../events/rules/event.js';
import { factKey } from '../events/rules/facts.js';
import { isAmong } from '../events/rules/kinds.js';
import type { EventRef } from '../events/store.js';
import type { StoredEvents, StoredRow } from '../events/stored-events.js';
import { type LabelTarget, putLabel, withdrawLabel } from '../labels/labels.sql.js';
import type { LabelSpec } from '../labels/rules.js';
import type { Fixed } from '../members/members.sql.js';
import { hexArray } from '../postgres/binary.js';
import { NEWEST_FIRST, type Page, type PageOf, readPage } from '../postgres/page.js';
import { bytes, bytesOrNull, type Db, isUuid } from '../postgres/values.js';
import type { ReportReason } from '../reports/rules.js';
import { allTopics } from '../topics/rules.js';
import { CASE_STEPS, type CaseAction, type CaseStatus } from './rules.js';

export interface Target {
  readonly event: string | undefined;
  readonly pubkey: string;
}

export interface Case {
  readonly caseId: string;
  readonly status: CaseStatus;
  readonly openedAt: number;
  readonly updatedAt: number;
  readonly closedAt: number | null;
  readonly targetEvent: string | null;
  readonly targetPubkey: string;
  readonly reason: string;
  readonly ruleId: string | null;
  /** Topics of the event when the case was opened. */
  readonly topics: readonly string[];
  /** The appeal of the author; it waits for a decision while the case is open or held. */
  readonly appeal: string | null;
  readonly appealedAt: number | null;
  /** Number of reports in this case. */
  readonly reports: number;
  /** Those of them whose reporters had standing when they reported. */
  readonly reportsWithStanding: number;
  /** The sum of the standings of their reporters, each from 0 to 1. */
  readonly reportWeight: number;
}

const COLUMNS = `c.case_id AS "caseId", c.status, c.opened_at AS "openedAt", c.updated_at AS "updatedAt",
  c.closed_at AS "closedAt", encode(c.target_event, 'hex') AS "targetEvent",
  encode(c.target_pubkey, 'hex') AS "targetPubkey", c.reason, c.rule_id AS "ruleId", c.topics, c.appeal,
  c.appealed_at AS "appealedAt", said.reports, said.standing AS "reportsWithStanding",
  said.weight AS "reportWeight"`;

/**
 * The trust consumer weighs each report, under the id of its event or its own id. Until then the report has
 * no weight.
 */
const SAID = `CROSS JOIN LATERAL (
    SELECT count(*) AS reports, count(*) FILTER (WHERE t.weight > 0) AS standing,
      coalesce(round(sum(t.weight)::numeric, 3), 0)::double precision AS weight
    FROM reports r LEFT JOIN trust_reports t ON t.community = r.community AND t.subject = c.target_pubkey
      AND t.source = coalesce(r.event_id, decode(replace(r.report_id::text, '-', ''), 'hex'))
      AND t.target_event = coalesce(c.target_event, '')
    WHERE r.case_id = c.case_id) said`;

export interface CaseFilter {
  readonly community: number;
  readonly status?: CaseStatus | undefined;
  readonly topic?: string | undefined;
  readonly author?: string | undefined;
  /** The reason of one of its reports. */
  readonly reason?: ReportReason | undefined;
  readonly ruleId?: string | undefined;
  /** Opened at this time or later, in milliseconds. */
  readonly since?: number | undefined;
  /** Opened before this time, in milliseconds. */
  readonly until?: number | undefined;
  /** Whether an appeal waits for a decision. */
  readonly appealed?: boolean | undefined;
}

/**
 * Conditions on `c`. `taken` parameters come before theirs. Only conditions of the filter are in the text, so
 * that PostgreSQL uses their index.
 */
function narrowed(filter: CaseFilter, taken: number): { readonly where: string; readonly values: unknown[] } {
  const { status, topic, author, reason, ruleId, since, until, appealed } = filter;
  const all: [string, unknown][] = [
    ['c.status = ?', status],
    ['c.topics @> ARRAY[?::text]', topic],
    ['c.target_pubkey = ?', author === undefined ? undefined : bytes(author)],
    ['EXISTS (SELECT 1 FROM reports r WHERE r.case_id = c.case_id AND r.reason = ?)', reason],
    ['c.rule_id = ?', ruleId],
    ['c.opened_at >= ?', since],
    ['c.opened_at < ?', until],
    [
      `(c.appealed_at IS NOT NULL AND c.status IN ('open', 'held')) = ?`,
      appealed === true ? undefined : appealed,
    ],
  ];
  const given = all.filter(([, value]) => value !== undefined);
  const where = given.map(([condition], at) => `AND ${condition.replace('?', `$${taken + at + 1}`)}`);
  if (appealed === true) where.push(`AND c.appealed_at IS NOT NULL AND c.status IN ('open', 'held')`);
  return { where: where.join(' '), values: given.map(([, value]) => value) };
}

/** The newest first. */
export function listCases(db: Db, filter: CaseFilter, page: PageOf): Promise<Page<Case> | Denial> {
  const { where, values } = narrowed(filter, 4);
  return readPage(
    page,
    NEWEST_FIRST,
    ({ openedAt, caseId }: Case) => [openedAt, caseId],
    async ([before, beforeId], limit) => {
      const { rows } = await db.query<Case>(
        // The inner query limits the rows first, so that reports are counted for one page only.
        `SELECT ${COLUMNS} FROM (SELECT * FROM moderation_cases c
           WHERE c.community = $1 AND (c.opened_at, c.case_id) < ($2, $3) ${where}
           ORDER BY c.opened_at DESC, c.case_id DESC LIMIT $4) c ${SAID}
         ORDER BY c.opened_at DESC, c.case_id DESC`,
        [filter.community, before, beforeId, limit, ...values],
      );
      return rows;
    },
  );
}

export async function findCase(db: Db, community: number, caseId: string): Promise<Case | Denial> {
  if (!isUuid(caseId)) return denial('NOT_FOUND');
  const { rows } = await db.query<Case>(
    `SELECT ${COLUMNS} FROM moderation_cases c ${SAID} WHERE c.community = $1 AND c.case_id = $2`,
    [community, caseId],
  );
  return rows[0] ?? denial('NOT_FOUND');
}

/**
 * Locks the case and reads it. A rule may hold the case while this waits for the lock, so a second statement
 * reads it, with a newer snapshot.
 */
async function lockCase(tx: ClientBase, community: number, caseId: string): Promise<Case | Denial> {
  if (!isUuid(caseId)) return denial('NOT_FOUND');
  await tx.query('SELECT 1 FROM moderation_cases WHERE community = $1 AND case_id = $2 FOR UPDATE', [
    community,
    caseId,
  ]);
  return findCase(tx, community, caseId);
}

// ── Opening ────────────────────────────────────────────────────────────────────────────────────────────────

/** The one open case about a target. */
export const OPEN_EVENT = `(community, target_event)
  WHERE status IN ('open', 'held') AND target_event IS NOT NULL`;
export const OPEN_PERSON = `(community, target_pubkey)
  WHERE status IN ('open', 'held') AND target_event IS NULL`;

export interface Opening extends Target {
  readonly community: number;
  readonly reason: string;
  readonly ruleId?: string | undefined;
  /** The topics of the event, where the caller knows them. */
  readonly topics?: readonly string[] | undefined;
}

/** Returns the open case about the target, or opens one. The caller sets another status afterwards. */
export async function openCase(
  tx: ClientBase,
  events: StoredEvents,
  opening: Opening,
  now: number,
): Promise<{ readonly caseId: string; readonly isNew: boolean }> {
  const { community, event, pubkey, reason, ruleId } = opening;
  const made = randomUUID();
  const values = [
    made,
    community,
    now,
    bytesOrNull(event),
    bytes(pubkey),
    reason,
    ruleId ?? null,
    await topicsElsewhere(tx, events, opening),
  ];
  const conflict = event === undefined ? OPEN_PERSON : OPEN_EVENT;
  const { rows } = await tx.query<{ case_id: string }>(
    `INSERT INTO moderation_cases AS c (case_id, community, status, opened_at, updated_at, target_event,
       target_pubkey, reason, rule_id, topics)
     VALUES ($1, $2, 'open', $3, $3, $4, $5, $6, $7, coalesce($8::text[], topics_of_event($2, $4)))
     ON CONFLICT ${conflict} DO UPDATE SET updated_at = excluded.updated_at RETURNING c.case_id`,
    values,
  );
  const caseId = rows[0]!.case_id;
  return { caseId, isNew: caseId === made };
}

/** Null where SQL finds the event itself. */
async function topicsElsewhere(
  db: Db,
  events: StoredEvents,
  { community, event, topics }: Opening,
): Promise<readonly string[] | null> {
  if (events.inDatabase || event === undefined) return null;
  return (
    topics ??
    (await topicsOfEvents(db, events, [{ community, id: event }])).get(factKey(community, event)) ??
    []
  );
}

/** The topics of stored events in any state, by `factKey`. */
export async function topicsOfEvents(
  db: Db,
  events: StoredEvents,
  refs: readonly EventRef[],
): Promise<Map<string, string[]>> {
  const rows = await events.byIds(db, refs);
  return new Map([...rows].map(([key, row]) => [key, topicsOfRow(row)]));
}

const topicsOfRow = ({ payload, bound }: Pick<StoredRow, 'payload' | 'bound'>) =>
  allTopics(JSON.parse(payload) as NostrEvent, bound);

export async function moveCase(tx: ClientBase, caseId: string, to: CaseStatus, now: number): Promise<void> {
  await tx.query(
    `UPDATE moderation_cases SET status = $2, updated_at = $3,
       closed_at = CASE WHEN $2 IN ('open', 'held') THEN NULL ELSE $3::bigint END WHERE case_id = $1`,
    [caseId, to, now],
  );
}

/** The author of an event that this node has received, also of one that it no longer serves. */
export async function authorOf(db: Db, events: StoredEvents, ref: EventRef): Promise<string | undefined> {
  return (await events.known(db, [ref])).get(factKey(ref.community, ref.id))?.author;
}

/** A moderator opens a case, or gets the one that is open. NOT_FOUND for an event that never arrived. */
export function openByHand(
  pool: Pool,
  events: StoredEvents,
  {
    community,
    event,
    pubkey,
    note,
    actor,
  }: {
    readonly community: number;
    readonly event: string | undefined;
    readonly pubkey: string | undefined;
    readonly note: string;
    readonly actor?: string | undefined;
  },
  now: number,
): Promise<Case | Denial> {
  return changeConfig(pool, { community, actor, now }, async ({ db, audit }) => {
    const author = event === undefined ? pubkey : await authorOf(db, events, { community, id: event });
    if (author === undefined) return denial('NOT_FOUND');
    const reason = note === '' ? 'opened by a moderator' : note;
    const { caseId } = await openCase(db, events, { community, event, pubkey: author, reason }, now);
    await audit('moderation.open', caseId, { pubkey: author, event: event ?? null, note });
    return findCase(db, community, caseId);
  });
}

// ── Actions ────────────────────────────────────────────────────────────────────────────────────────────────

export interface Action {
  readonly actionId: string;
  readonly action: CaseAction;
  readonly at: number;
  readonly doneAt: number | null;
  readonly outcome: string | null;
  readonly ruleId: string | null;
  /** Null for a rule, and for the command line on the machine of the node. */
  readonly actor: string | null;
  readonly note: string | null;
}

const ACTION_COLUMNS = `action_id AS "actionId", action, at, done_at AS "doneAt", outcome,
  rule_id AS "ruleId", encode(actor, 'hex') AS actor, note`;
const ACTIONS_MAX = 200;

/** Actions of the case, and actions of rules on its event that opened no case; the oldest first. */
export async function listActions(
  db: Db,
  { caseId, targetEvent }: Case,
  community: number,
): Promise<Action[]> {
  const { rows } = await db.query<Action>(
    `SELECT ${ACTION_COLUMNS} FROM (SELECT * FROM moderation_actions WHERE case_id = $1
       UNION SELECT * FROM moderation_actions WHERE community = $2 AND target_event = $3) a
     ORDER BY position LIMIT ${ACTIONS_MAX}`,
    [caseId, community, bytesOrNull(targetEvent ?? undefined)],
  );
  return rows;
}

export async function findAction(db: Db, actionId: string): Promise<Action> {
  const { rows } = await db.query<Action>(
    `SELECT ${ACTION_COLUMNS} FROM moderation_actions WHERE action_id = $1`,
    [actionId],
  );
  return rows[0]!;
}

export interface Acting {
  readonly community: number;
  readonly caseId: string;
  readonly action: CaseAction;
  readonly note: string;
  /** Only for `label` and `unlabel`. */
  readonly label?: LabelSpec | undefined;
  readonly actor?: string | undefined;
  /** Events of these kinds get no label: a label is public and would reveal that the event exists. */
  readonly privateKinds: Settings['auth.privateKinds'];
  /** For the topics of the event that gets a label. */
  readonly events: StoredEvents;
  /** The batch that this is part of, and the status of the case when the batch began. */
  readonly batch?: { readonly batchId: string; readonly was: CaseStatus } | undefined;
}

/** Does what a moderator chose for a case. A ban is a block of the author whose reason names the case. */
export async function act(pool: Pool, acting: Acting, fixed: Fixed, now: number): Promise<Action | Denial> {
  const { community, caseId, action, note, actor, batch } = acting;
  if (action !== 'ban' && action !== 'unban') return writeAct(pool, acting, now);
  const found = await findCase(pool, community, caseId);
  if (isDenial(found)) return found;
  const author = { kind: 'author', community, value: found.targetPubkey, actor } as const;
  if (batch !== undefined && batch.was !== found.status)
    return denial('STATUS_CONFLICT', { status: found.status });
  // Otherwise undoing the batch would remove a block that somebody else made.
  if (batch !== undefined && action === 'ban' && (await isBlocked(pool, author)))
    return denial('STATUS_CONFLICT', { author: 'is blocked already' });
  const reason = `case ${caseId}${note === '' ? '' : `: ${note}`}`;
  const blocked =
    action === 'ban'
      ? await block(pool, { ...author, reason }, fixed, now)
      : await unblock(pool, author, now);
  return isDenial(blocked) ? blocked : writeAct(pool, acting, now);
}

/** An action that changes the view is pending until it is carried out through the lane. */
function writeAct(pool: Pool, acting: Acting, now: number): Promise<Action | Denial> {
  const { community, caseId, action, actor } = acting;
  return changeConfig(pool, { community, actor, now }, async (change) => {
    const found = await lockCase(change.db, community, caseId);
    if (isDenial(found)) return found;
    const next = CASE_STEPS[action][found.status];
    const isChanged = acting.batch !== undefined && acting.batch.was !== found.status;
    if (next === undefined || isChanged) return denial('STATUS_CONFLICT', { status: found.status });
    if (acting.batch !== undefined && !(await countInBatch(change.db, acting.batch.batchId, now)))
      return denial('STATUS_CONFLICT', { batch: 'is being undone' });
    const refused = await takeStep(change, found, acting, next);
    if (refused !== undefined) return refused;
    const actionId = await writeAction(change, found, acting);
    await change.audit(`moderation.${action}`, caseId, {
      pubkey: found.targetPubkey,
      event: found.targetEvent,
      note: acting.note,
      ...(acting.label ? { label: acting.label.label } : {}),
      ...(acting.batch ? { batch_id: acting.batch.batchId } : {}),
    });
    return findAction(change.db, actionId);
  });
}

/** False when the batch is being undone. */
async function countInBatch(db: ClientBase, batchId: string, now: number): Promise<boolean> {
  const { rowCount } = await db.query(
    `UPDATE moderation_batches SET matched = matched + 1, updated_at = $2
     WHERE batch_id = $1 AND status = 'done'`,
    [batchId, now],
  );
  return rowCount === 1;
}

const changesView = (action: CaseAction) => action === 'remove' || action === 'restore';

async function takeStep(
  { db, community, now }: Change,
  found: Case,
  { action, label, privateKinds, batch, events }: Acting,
  next: CaseStatus,
): Promise<Denial | undefined> {
  const { caseId, targetEvent, targetPubkey, status } = found;
  if (changesView(action) && targetEvent === null)
    return denial('STATUS_CONFLICT', { case_is_about: 'a person' });
  if (action === 'reopen' && (await hasOpenCase(db, community, found)))
    return denial('STATUS_CONFLICT', { another_case: 'about the same target is open' });
  if (label !== undefined && (action === 'label' || action === 'unlabel')) {
    const target = await labelTarget(db, events, community, {
      event: targetEvent ?? undefined,
      pubkey: targetPubkey,
    });
    if (target === undefined) return denial('NOT_FOUND', { event: targetEvent });
    if (action === 'label' && target.kind !== undefined && isAmong(target.kind, privateKinds))
      return denial('STATUS_CONFLICT', {
        kind: target.kind,
        labels: 'are public, and events of this kind are private',
      });
    const done =
      action === 'label'
        ? (await putLabel(db, target, label, { caseId, batchId: batch?.batchId }, now)) !== undefined
        : (await withdrawLabel(db, target, label.label, now)) > 0;
    if (!done) return denial('STATUS_CONFLICT', { label: label.label });
  }
  if (next !== status) await moveCase(db, caseId, next, now);
  return undefined;
}

async function hasOpenCase(db: Db, community: number, { targetEvent, targetPubkey }: Case): Promise<boolean> {
  const { rowCount } = await db.query(
    `SELECT 1 FROM moderation_cases WHERE community = $1 AND target_event IS NOT DISTINCT FROM $2
       AND target_pubkey = $3 AND status IN ('open', 'held')`,
    [community, bytesOrNull(targetEvent ?? undefined), bytes(targetPubkey)],
  );
  return (rowCount ?? 0) > 0;
}

async function writeAction(
  { db, now }: Change,
  { targetEvent, targetPubkey }: Case,
  { community, caseId, action, note, actor, batch }: Acting,
): Promise<string> {
  const actionId = randomUUID();
  await db.query(
    `INSERT INTO moderation_actions (action_id, community, case_id, action, at, done_at, outcome, actor,
       target_event, target_pubkey, note, batch_id)
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)`,
    [
      actionId,
      community,
      caseId,
      action,
      now,
      changesView(action) ? null : now,
      changesView(action) ? null : 'done',
      bytesOrNull(actor),
      bytesOrNull(targetEvent ?? undefined),
      bytes(targetPubkey),
      note,
      batch?.batchId ?? null,
    ],
  );
  return actionId;
}

/**
 * The target of a label with the topics of its event, served or hidden. Undefined when the event was purged.
 */
async function labelTarget(
  db: Db,
  events: StoredEvents,
  community: number,
  { event, pubkey }: Target,
): Promise<(LabelTarget & { readonly kind?: number }) | undefined> {
  if (event === undefined) return { community, event, pubkey, topics: [] };
  const row = (await events.byIds(db, [{ community, id: event }])).get(factKey(community, event));
  return row && { community, event, pubkey, kind: row.kind, topics: topicsOfRow(row) };
}

// ── One event ──────────────────────────────────────────────────────────────────────────────────────────────

export interface EventCase {
  readonly caseId: string;
  readonly status: CaseStatus;
  readonly reason: string;
  readonly ruleId: string | null;
  readonly openedAt: number;
  readonly closedAt: number | null;
}

export interface EventAction {
  readonly action: string;
  readonly at: number;
  readonly outcome: string | null;
  readonly caseId: string | null;
  readonly ruleId: string | null;
  readonly actor: string | null;
}

const OF_EVENT_MAX = 100;

/** The oldest first. The author finds them: closed cases have no index by event. */
export async function casesOfEvent(
  db: Db,
  community: number,
  event: string,
  author: string,
): Promise<EventCase[]> {
  const { rows } = await db.query<EventCase>(
    `SELECT case_id AS "caseId", status, reason, rule_id AS "ruleId", opened_at AS "openedAt",
       closed_at AS "closedAt"
     FROM moderation_cases WHERE community = $1 AND target_pubkey = $3 AND target_event = $2
     ORDER BY opened_at, case_id LIMIT ${OF_EVENT_MAX}`,
    [community, bytes(event), bytes(author)],
  );
  return rows;
}

/** The oldest first. */
export async function actionsOnEvent(db: Db, community: number, event: string): Promise<EventAction[]> {
  const { rows } = await db.query<EventAction>(
    `SELECT action, at, outcome, case_id AS "caseId", rule_id AS "ruleId", encode(actor, 'hex') AS actor
     FROM moderation_actions WHERE community = $1 AND target_event = $2
     ORDER BY position LIMIT ${OF_EVENT_MAX}`,
    [community, bytes(event)],
  );
  return rows;
}

/** Which of these events a rule holds until a moderator decides. */
export async function heldAmong(
  db: Db,
  community: number,
  events: readonly string[],
): Promise<ReadonlySet<string>> {
  if (events.length === 0) return new Set();
  const { rows } = await db.query<{ id: string }>(
    `SELECT encode(target_event, 'hex') AS id FROM moderation_cases
     WHERE community = $1 AND target_event = ANY ($2::bytea[]) AND status = 'held'`,
    [community, hexArray(events)],
  );
  return new Set(rows.map(({ id }) => id));
}
