/**
 * Cases: what a moderator should look at, and what was done about it. Reports and rules about the same target share one open case. An
 * action is written with its audit row and with the step of its case, in one transaction.
 */
import { randomUUID } from 'node:crypto';
import type { ClientBase, Pool } from 'pg';
import { type Denial, denial, isDenial } from '../core/errors.js';
import type { NostrEvent } from '../core/event.js';
import { isAmong } from '../core/kinds.js';
import type { LabelSpec } from '../core/labels.js';
import { CASE_STEPS, type CaseAction, type CaseStatus } from '../core/moderation.js';
import type { ReportReason } from '../core/report.js';
import type { Settings } from '../core/settings.js';
import { allTopics, UNBOUND } from '../core/topic.js';
import { hexArray, int4Array } from './binary.js';
import { block, unblock } from './blocks.js';
import { bytes, bytesOrNull, type Change, changeConfig, type Db, isUuid } from './config-change.js';
import { type LabelTarget, putLabel, withdrawLabel } from './labels.js';
import type { Fixed } from './members.js';
import { NEWEST_FIRST, type Page, type PageOf, readPage } from './page.js';
import { dedupeOf } from './query.js';
import type { EventRef } from './restore.js';

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
  /** Of its event when it was opened. */
  readonly topics: readonly string[];
  /** Of the person whom it is about; waiting while the case is open or held. */
  readonly appeal: string | null;
  readonly appealedAt: number | null;
  /** How many reports are part of it. */
  readonly reports: number;
  /** Of them, by reporters who had standing when they reported. */
  readonly reportsWithStanding: number;
  /** The sum of the standings of their reporters, each from 0 to 1. */
  readonly reportWeight: number;
}

const COLUMNS = `c.case_id AS "caseId", c.status, c.opened_at AS "openedAt", c.updated_at AS "updatedAt", c.closed_at AS "closedAt",
  encode(c.target_event, 'hex') AS "targetEvent", encode(c.target_pubkey, 'hex') AS "targetPubkey", c.reason, c.rule_id AS "ruleId",
  c.topics, c.appeal, c.appealed_at AS "appealedAt", said.reports, said.standing AS "reportsWithStanding", said.weight AS "reportWeight"`;

/** A report is weighed by the trust consumer, under the id of its event or its own; until then it has no weight. */
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
  /** Of one of its reports. */
  readonly reason?: ReportReason | undefined;
  readonly ruleId?: string | undefined;
  /** Opened at this time or later, in milliseconds. */
  readonly since?: number | undefined;
  /** Opened before this time, in milliseconds. */
  readonly until?: number | undefined;
  /** Its appeal waits. */
  readonly appealed?: boolean | undefined;
}

/** Conditions on `c`, whose parameters begin after `taken` others. Only what is asked stands there, so that its index is used. */
function narrowed(filter: CaseFilter, taken: number): { readonly where: string; readonly values: unknown[] } {
  const { status, topic, author, reason, ruleId, since, until, appealed } = filter;
  const asked: [string, unknown][] = [
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
  const given = asked.filter(([, value]) => value !== undefined);
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
        // Reports are counted for the page alone.
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

/** As it is when nobody else can change it any more: a rule may be about to hold it. Read by a second statement, which sees that. */
async function lockCase(tx: ClientBase, community: number, caseId: string): Promise<Case | Denial> {
  if (!isUuid(caseId)) return denial('NOT_FOUND');
  await tx.query('SELECT 1 FROM moderation_cases WHERE community = $1 AND case_id = $2 FOR UPDATE', [
    community,
    caseId,
  ]);
  return findCase(tx, community, caseId);
}

// ── Opening ───────────────────────────────────────────────────────────────────────────────────────────────────────

/** The one open case about a target. */
const OPEN_EVENT = `(community, target_event) WHERE status IN ('open', 'held') AND target_event IS NOT NULL`;
const OPEN_PERSON = `(community, target_pubkey) WHERE status IN ('open', 'held') AND target_event IS NULL`;

export interface Opening extends Target {
  readonly community: number;
  readonly reason: string;
  readonly ruleId?: string | undefined;
}

/** The open case about the target, or a new one. What it is held by or resolved by is the caller's to say afterwards. */
export async function openCase(
  tx: ClientBase,
  opening: Opening,
  now: number,
): Promise<{ readonly caseId: string; readonly isNew: boolean }> {
  const { community, event, pubkey, reason, ruleId } = opening;
  const made = randomUUID();
  const values = [made, community, now, bytesOrNull(event), bytes(pubkey), reason, ruleId ?? null];
  const conflict = event === undefined ? OPEN_PERSON : OPEN_EVENT;
  const { rows } = await tx.query<{ case_id: string }>(
    `INSERT INTO moderation_cases AS c (case_id, community, status, opened_at, updated_at, target_event, target_pubkey, reason, rule_id,
       topics)
     VALUES ($1, $2, 'open', $3, $3, $4, $5, $6, $7, topics_of_event($2, $4))
     ON CONFLICT ${conflict} DO UPDATE SET updated_at = excluded.updated_at RETURNING c.case_id`,
    values,
  );
  const caseId = rows[0]!.case_id;
  return { caseId, isNew: caseId === made };
}

export async function moveCase(tx: ClientBase, caseId: string, to: CaseStatus, now: number): Promise<void> {
  await tx.query(
    `UPDATE moderation_cases SET status = $2, updated_at = $3,
       closed_at = CASE WHEN $2 IN ('open', 'held') THEN NULL ELSE $3::bigint END WHERE case_id = $1`,
    [caseId, to, now],
  );
}

/** Whose event this is, as it is known here; also of one that is no longer served. */
export async function authorOf(db: Db, community: number, event: string): Promise<string | undefined> {
  const { rows } = await db.query<{ author: string }>(
    `SELECT encode(author, 'hex') AS author FROM event_dedupe WHERE community = $1 AND event_id = $2`,
    [community, bytes(event)],
  );
  return rows[0]?.author;
}

/** By hand; the one that is open already, if there is one. Of an event that never came there is nothing to say. */
export function openByHand(
  pool: Pool,
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
    const author = event === undefined ? pubkey : await authorOf(db, community, event);
    if (author === undefined) return denial('NOT_FOUND');
    const reason = note === '' ? 'opened by a moderator' : note;
    const { caseId } = await openCase(db, { community, event, pubkey: author, reason }, now);
    await audit('moderation.open', caseId, { pubkey: author, event: event ?? null, note });
    return findCase(db, community, caseId);
  });
}

/**
 * Reports that are part of no case yet; each opens one or joins it. What is unknown here cannot be moderated here. One statement,
 * however many they are: a flood of reports costs the consumer little for each. The first report of a target gives the reason.
 */
const caseSql = (asked: string) => `
  WITH found AS (
    SELECT asked.place, r.report_id, r.community, r.target_event, r.reason,
      CASE WHEN r.target_event IS NULL THEN r.target_pubkey
        ELSE (SELECT d.author FROM event_dedupe d WHERE d.community = r.community AND d.event_id = r.target_event)
      END AS target_pubkey
    FROM ${asked} WHERE r.case_id IS NULL
  ), of_events AS (
    INSERT INTO moderation_cases AS c (case_id, community, status, opened_at, updated_at, target_event, target_pubkey, reason,
      topics)
    SELECT DISTINCT ON (community, target_event) gen_random_uuid(), community, 'open', $1::bigint, $1::bigint, target_event,
      target_pubkey, 'reported: ' || reason, topics_of_event(community, target_event)
    FROM found WHERE target_event IS NOT NULL AND target_pubkey IS NOT NULL
    ORDER BY community, target_event, place, report_id
    ON CONFLICT ${OPEN_EVENT} DO UPDATE SET updated_at = excluded.updated_at
    RETURNING c.case_id, c.community, c.target_event, c.target_pubkey
  ), of_people AS (
    INSERT INTO moderation_cases AS c (case_id, community, status, opened_at, updated_at, target_pubkey, reason)
    SELECT DISTINCT ON (community, target_pubkey) gen_random_uuid(), community, 'open', $1::bigint, $1::bigint, target_pubkey,
      'reported: ' || reason
    FROM found WHERE target_event IS NULL
    ORDER BY community, target_pubkey, place, report_id
    ON CONFLICT ${OPEN_PERSON} DO UPDATE SET updated_at = excluded.updated_at
    RETURNING c.case_id, c.community, c.target_event, c.target_pubkey
  )
  UPDATE reports r SET case_id = o.case_id
  FROM found f JOIN (SELECT * FROM of_events UNION ALL SELECT * FROM of_people) o ON o.community = f.community
    AND o.target_event IS NOT DISTINCT FROM f.target_event AND (f.target_event IS NOT NULL OR o.target_pubkey = f.target_pubkey)
  WHERE r.report_id = f.report_id`;

const OF_EVENTS_SQL =
  caseSql(`unnest($2::int[], $3::bytea[]) WITH ORDINALITY AS asked (community, event_id, place)
    JOIN reports r ON r.community = asked.community AND r.event_id = asked.event_id`);
const OF_REPORT_SQL = caseSql(`(SELECT $2::int AS community, $3::uuid AS report_id, 1 AS place) asked
    JOIN reports r ON r.community = asked.community AND r.report_id = asked.report_id`);

/** Those that came as these events. */
export async function caseReports(tx: ClientBase, events: readonly EventRef[], now: number): Promise<void> {
  if (events.length === 0) return;
  await tx.query({
    name: 'case-reports',
    text: OF_EVENTS_SQL,
    values: [now, int4Array(events.map(({ community }) => community)), hexArray(events.map(({ id }) => id))],
  });
}

/** One that came over HTTP. */
export async function caseReport(
  tx: ClientBase,
  { community, reportId }: { readonly community: number; readonly reportId: string },
  now: number,
): Promise<void> {
  await tx.query({ name: 'case-report', text: OF_REPORT_SQL, values: [now, community, reportId] });
}

// ── Actions ───────────────────────────────────────────────────────────────────────────────────────────────────────

export interface Action {
  readonly actionId: string;
  readonly action: CaseAction;
  readonly at: number;
  readonly doneAt: number | null;
  readonly outcome: string | null;
  readonly ruleId: string | null;
  /** Nobody: a rule, or the command line on the node's own machine. */
  readonly actor: string | null;
  readonly note: string | null;
}

const ACTION_COLUMNS = `action_id AS "actionId", action, at, done_at AS "doneAt", outcome, rule_id AS "ruleId",
  encode(actor, 'hex') AS actor, note`;
const ACTIONS_MAX = 200;

/** About the case, or about its event by a rule that made no case; the first one first. */
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
  /** Of `label` and `unlabel`. */
  readonly label?: LabelSpec | undefined;
  readonly actor?: string | undefined;
  /** A label is public, and that such an event exists is not. */
  readonly privateKinds: Settings['auth.privateKinds'];
}

/** What a moderator does about a case. A ban is a block of the author, which says because of which case. */
export async function act(pool: Pool, acting: Acting, fixed: Fixed, now: number): Promise<Action | Denial> {
  const { community, caseId, action, note, actor } = acting;
  if (action !== 'ban' && action !== 'unban') return writeAct(pool, acting, now);
  const found = await findCase(pool, community, caseId);
  if (isDenial(found)) return found;
  const author = { kind: 'author', community, value: found.targetPubkey, actor } as const;
  const reason = `case ${caseId}${note === '' ? '' : `: ${note}`}`;
  const blocked =
    action === 'ban'
      ? await block(pool, { ...author, reason }, fixed, now)
      : await unblock(pool, author, now);
  return isDenial(blocked) ? blocked : writeAct(pool, acting, now);
}

/** One that changes the view is an order until it is carried out. */
function writeAct(pool: Pool, acting: Acting, now: number): Promise<Action | Denial> {
  const { community, caseId, action, actor } = acting;
  return changeConfig(pool, { community, actor, now }, async (change) => {
    const found = await lockCase(change.db, community, caseId);
    if (isDenial(found)) return found;
    const next = CASE_STEPS[action][found.status];
    if (next === undefined) return denial('STATUS_CONFLICT', { status: found.status });
    const refused = await takeStep(change, found, acting, next);
    if (refused !== undefined) return refused;
    const actionId = await writeAction(change, found, acting);
    await change.audit(`moderation.${action}`, caseId, {
      pubkey: found.targetPubkey,
      event: found.targetEvent,
      note: acting.note,
      ...(acting.label ? { label: acting.label.label } : {}),
    });
    return findAction(change.db, actionId);
  });
}

const isOrder = (action: CaseAction) => action === 'remove' || action === 'restore';

async function takeStep(
  { db, community, now }: Change,
  found: Case,
  { action, label, privateKinds }: Acting,
  next: CaseStatus,
): Promise<Denial | undefined> {
  const { caseId, targetEvent, targetPubkey, status } = found;
  if (isOrder(action) && targetEvent === null)
    return denial('STATUS_CONFLICT', { case_is_about: 'a person' });
  if (action === 'reopen' && (await hasOpenCase(db, community, found)))
    return denial('STATUS_CONFLICT', { another_case: 'about the same target is open' });
  if (label !== undefined && (action === 'label' || action === 'unlabel')) {
    const target = await labelTarget(db, community, {
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
        ? (await putLabel(db, target, label, { caseId }, now)) !== undefined
        : (await withdrawLabel(db, target, label.label, now)) > 0;
    if (!done) return denial('STATUS_CONFLICT', { label: label.label });
  }
  if (next !== status) await moveCase(db, caseId, next, now);
  return undefined;
}

async function hasOpenCase(db: Db, community: number, { targetEvent, targetPubkey }: Case): Promise<boolean> {
  const { rowCount } = await db.query(
    `SELECT 1 FROM moderation_cases WHERE community = $1 AND target_event IS NOT DISTINCT FROM $2 AND target_pubkey = $3
       AND status IN ('open', 'held')`,
    [community, bytesOrNull(targetEvent ?? undefined), bytes(targetPubkey)],
  );
  return (rowCount ?? 0) > 0;
}

async function writeAction(
  { db, now }: Change,
  { targetEvent, targetPubkey }: Case,
  { community, caseId, action, note, actor }: Acting,
): Promise<string> {
  const actionId = randomUUID();
  await db.query(
    `INSERT INTO moderation_actions (action_id, community, case_id, action, at, done_at, outcome, actor, target_event, target_pubkey, note)
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`,
    [
      actionId,
      community,
      caseId,
      action,
      now,
      isOrder(action) ? null : now,
      isOrder(action) ? null : 'done',
      bytesOrNull(actor),
      bytesOrNull(targetEvent ?? undefined),
      bytes(targetPubkey),
      note,
    ],
  );
  return actionId;
}

/** With the topics of the event, served or hidden; nothing when the event itself is gone. */
export async function labelTarget(
  db: Db,
  community: number,
  { event, pubkey }: Target,
): Promise<(LabelTarget & { readonly kind?: number }) | undefined> {
  if (event === undefined) return { community, event, pubkey, topics: [] };
  const { rows } = await db.query<{ payload: string; bound: string[] | null }>(
    `SELECT e.payload, e.bound FROM (SELECT $1::int AS community, $2::bytea AS event_id) asked
     ${dedupeOf('asked.community', 'asked.event_id')}
     JOIN events e ON e.keep = d.keep AND e.ingested_at = d.ingested_at AND e.seq = d.seq`,
    [community, bytes(event)],
  );
  const [row] = rows;
  if (row === undefined) return undefined;
  const told = JSON.parse(row.payload) as NostrEvent;
  return { community, event, pubkey, kind: told.kind, topics: allTopics(told, row.bound ?? UNBOUND) };
}
