/**
 * Batches: one action on many stored events, undone as one. A batch is a row with a cursor. Each step locks
 * the row, reads one portion of events, writes their actions and moves the cursor in one transaction, so that
 * a killed worker neither skips nor repeats. Portions, events of a batch and open batches are limited (I14).
 * Actions that change the view stay pending and are carried out through the lane.
 */
import { randomUUID } from 'node:crypto';
import type { ClientBase, Pool } from 'pg';
import { type Denial, denial } from '../api/rules-errors.js';
import { type Change, changeConfig } from '../communities/config-change.sql.js';
import type { Settings } from '../communities/rules-settings.js';
import { isAmong } from '../events/rules/kinds.js';
import { DAY_MS } from '../events/rules/retention.js';
import type { ServedEvent, StoredEvents } from '../events/stored-events.js';
import { putLabel } from '../labels/labels.sql.js';
import type { LabelSpec } from '../labels/rules.js';
import { rest } from '../limits/time-slices.js';
import { hexArray } from '../postgres/binary.js';
import { NEWEST_FIRST, type Page, type PageOf, readPage } from '../postgres/page.js';
import { BEGIN_BRIEFLY, inTransaction } from '../postgres/transaction.js';
import { bytes, bytesOrNull, type Db, isUuid } from '../postgres/values.js';
import { allTopics, type MatchedEvent, UNBOUND } from '../topics/rules.js';
import { undoBans, undoCases } from './case-batches.sql.js';
import { moveCase, openCase } from './cases.sql.js';
import { ownKeys, readSettled } from './judge.sql.js';
import { inSteps } from './patterns/thread.js';
import {
  BATCH_EVENTS_MAX,
  BATCHES_OPEN_MAX,
  type BatchAction,
  type BatchSpec,
  type BatchStatus,
  type CaseAction,
  type Conditions,
  type Selection,
} from './rules.js';
import { matchRules } from './rules-match.js';
import { compiledOf, eventOf, listedRows, nextRows, type Place, PORTION_ROWS } from './selection.sql.js';

/** The selection of a batch as it is stored, without its lists, which may be long. */
export interface KeptSelection extends Selection {
  /** Milliseconds: events that arrived later are not part of the batch. Default: its start. */
  readonly as_of?: number;
  /** For a search: how far the index was behind. */
  readonly index?: { readonly behind: number; readonly rebuilding: boolean };
  /** For a batch of cases: the action on each case. */
  readonly case_action?: CaseAction;
}

export interface Batch {
  readonly batchId: string;
  readonly community: number;
  readonly status: BatchStatus;
  readonly action: BatchAction | 'release' | CaseAction;
  readonly conditions: KeptSelection;
  readonly label: LabelSpec | null;
  readonly byRule: boolean;
  /** `since` and `until` limit `created_at`, in seconds. */
  readonly since: number | null;
  readonly until: number | null;
  readonly note: string;
  readonly actor: string | null;
  readonly createdAt: number;
  readonly updatedAt: number;
  readonly lookedAt: number;
  readonly matched: number;
  readonly stoppedEarly: boolean;
  /** Number of actions by `action: outcome`; `waiting` stands for the outcome of a pending action. */
  readonly outcomes: Readonly<Record<string, number>>;
}

/** A batch of cases has its action in `conditions`, because the column allows only actions on events. */
const COLUMNS = `b.batch_id AS "batchId", b.community, b.status,
  coalesce(b.conditions ->> 'case_action', b.action) AS action,
  b.conditions - 'ids' - 'cases' AS conditions, b.label, b.by_rule AS "byRule", b.since, b.until, b.note,
  encode(b.actor, 'hex') AS actor, b.created_at AS "createdAt", b.updated_at AS "updatedAt",
  b.looked_at AS "lookedAt", b.matched, b.stopped_early AS "stoppedEarly"`;
const OUTCOMES = `coalesce((SELECT jsonb_object_agg(o.what, o.actions) FROM (
    SELECT a.action || ': ' || coalesce(a.outcome, 'waiting') AS what, count(*) AS actions
    FROM moderation_actions a
    WHERE a.batch_id = b.batch_id GROUP BY 1) o), '{}') AS outcomes`;

/** The newest first. */
export function listBatches(db: Db, community: number, page: PageOf): Promise<Page<Batch> | Denial> {
  return readPage(
    page,
    NEWEST_FIRST,
    ({ createdAt, batchId }: Batch) => [createdAt, batchId],
    async ([before, beforeId], limit) => {
      const { rows } = await db.query<Batch>(
        `SELECT ${COLUMNS}, ${OUTCOMES} FROM moderation_batches b
         WHERE b.community = $1 AND (b.created_at, b.batch_id) < ($2, $3)
         ORDER BY b.created_at DESC, b.batch_id DESC LIMIT $4`,
        [community, before, beforeId, limit],
      );
      return rows;
    },
  );
}

export async function findBatch(db: Db, community: number, batchId: string): Promise<Batch | Denial> {
  if (!isUuid(batchId)) return denial('NOT_FOUND');
  const { rows } = await db.query<Batch>(
    `SELECT ${COLUMNS}, ${OUTCOMES} FROM moderation_batches b WHERE b.community = $1 AND b.batch_id = $2`,
    [community, batchId],
  );
  return rows[0] ?? denial('NOT_FOUND');
}

// ── Starting and undoing ───────────────────────────────────────────────────────────────────────────────────

interface Scope {
  readonly community: number;
  readonly actor?: string | undefined;
}

export function startBatch(pool: Pool, scope: Scope, spec: BatchSpec, now: number): Promise<Batch | Denial> {
  return changeConfig(pool, { ...scope, now }, async (change) => {
    const { rows } = await change.db.query<{ open: number }>(
      `SELECT count(*) AS open FROM moderation_batches
       WHERE community = $1 AND status IN ('running', 'undoing')`,
      [scope.community],
    );
    if (rows[0]!.open >= BATCHES_OPEN_MAX) return denial('BATCH_LIMIT_REACHED', { limit: BATCHES_OPEN_MAX });
    const batchId = await writeBatch(change, spec, 'running');
    const { found, ...details } = spec;
    await change.audit('moderation.batch', batchId, details);
    return findBatch(change.db, scope.community, batchId);
  });
}

export async function writeBatch(
  { db, community, actor, now }: Change,
  spec: Omit<BatchSpec, 'action'> & { readonly action: BatchAction | 'release' },
  status: BatchStatus,
): Promise<string> {
  const { action, label, byRule, since, until, note, found } = spec;
  const batchId = randomUUID();
  await db.query(
    `INSERT INTO moderation_batches (batch_id, community, status, action, created_at, updated_at, since,
       until, cursor_at, by_rule, conditions, label, actor, note, stopped_early)
     VALUES ($1, $2, $3, $4, $5, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)`,
    [
      batchId,
      community,
      status,
      action,
      now,
      since ?? null,
      until ?? null,
      until ?? Number.MAX_SAFE_INTEGER,
      byRule,
      JSON.stringify(keptOf(spec)),
      label === undefined ? null : JSON.stringify(label),
      bytesOrNull(actor),
      note,
      found?.isMore ?? false,
    ],
  );
  return batchId;
}

/** The ids that a search has found are stored until the batch is done. */
function keptOf({
  conditions,
  asOf,
  found,
}: Pick<BatchSpec, 'conditions' | 'asOf' | 'found'>): KeptSelection & { readonly ids?: readonly string[] } {
  const listed = found && {
    ids: found.ids,
    index: { behind: found.behind, rebuilding: found.isRebuilding },
  };
  return { ...conditions, ...(asOf === undefined ? {} : { as_of: asOf }), ...listed };
}

/** Stops the batch and undoes what it has done so far. */
export function undoBatch(
  pool: Pool,
  { community, batchId, actor }: Scope & { readonly batchId: string },
  undoDays: number,
  now: number,
): Promise<Batch | Denial> {
  return changeConfig(pool, { community, actor, now }, async (change) => {
    const { db, audit } = change;
    if (!isUuid(batchId)) return denial('NOT_FOUND');
    await db.query('SELECT 1 FROM moderation_batches WHERE batch_id = $1 FOR UPDATE', [batchId]);
    const found = await findBatch(db, community, batchId);
    if ('denied' in found) return found;
    const { status, createdAt } = found;
    if (status === 'undoing' || status === 'undone') return denial('STATUS_CONFLICT', { status });
    if (createdAt < now - undoDays * DAY_MS) return denial('STATUS_CONFLICT', { undo_days: undoDays });
    await db.query(
      `UPDATE moderation_batches SET status = 'undoing', updated_at = $2, undo_after = 0, undone_by = $3,
         undo_until = (SELECT coalesce(max(position), 0) FROM moderation_actions WHERE batch_id = $1)
       WHERE batch_id = $1`,
      [batchId, now, bytesOrNull(actor)],
    );
    await audit('moderation.undo', batchId, {});
    await undoBans(change, batchId);
    return findBatch(db, community, batchId);
  });
}

// ── Steps of a worker ──────────────────────────────────────────────────────────────────────────────────────

interface OpenBatch extends Omit<Batch, 'outcomes' | 'action'>, Place {
  readonly action: BatchAction | 'release';
  /** Null for a batch of events. */
  readonly caseAction: CaseAction | null;
  /** The next ids of the list that a search found; null without a search. */
  readonly listed: readonly string[] | null;
  readonly undoAfter: number | null;
  readonly undoUntil: number | null;
  readonly undoneBy: string | null;
}

const NEXT_LISTED = `jsonb_path_query_array(b.conditions -> 'ids', '$[$from to $to]',
  jsonb_build_object('from', b.looked_at, 'to', b.looked_at + ${PORTION_ROWS - 1}))`;

type SettingsOf = (community: number) => Settings | undefined;

/** Handles one portion of the batch that has waited longest. Returns true when there may be more. */
export async function stepBatch(
  pool: Pool,
  events: StoredEvents,
  settingsOf: SettingsOf,
  now: number,
): Promise<boolean> {
  const more = await inTransaction(pool, BEGIN_BRIEFLY, async (tx) => {
    const { rows } = await tx.query<OpenBatch>(
      `SELECT ${COLUMNS}, b.action, b.conditions ->> 'case_action' AS "caseAction", b.cursor_at AS "cursorAt",
         encode(b.cursor_id, 'hex') AS "cursorId", b.undo_after AS "undoAfter", b.undo_until AS "undoUntil",
         encode(b.undone_by, 'hex') AS "undoneBy", ${NEXT_LISTED} AS listed
       FROM moderation_batches b WHERE b.status IN ('running', 'undoing')
       ORDER BY b.updated_at LIMIT 1 FOR UPDATE SKIP LOCKED`,
    );
    const [batch] = rows;
    if (batch === undefined) return false;
    if (batch.status === 'undoing') return undoPortion(tx, batch, now);
    const settings = settingsOf(batch.community);
    if (settings === undefined) {
      // This process has not loaded the community yet: let the next batch go first.
      await tx.query('UPDATE moderation_batches SET updated_at = $2 WHERE batch_id = $1', [
        batch.batchId,
        now,
      ]);
      return false;
    }
    await takePortion(tx, events, batch, settings, now);
    return true;
  });
  return more === true;
}

async function takePortion(
  tx: ClientBase,
  events: StoredEvents,
  batch: OpenBatch,
  settings: Settings,
  now: number,
): Promise<void> {
  const { batchId, community, conditions, since, createdAt, listed } = batch;
  const looking = { community, conditions, since, arrivedUntil: conditions.as_of ?? createdAt };
  const { rows, next } =
    listed === null
      ? await nextRows(tx, events, looking, batch)
      : { rows: await listedRows(tx, events, looking, listed), next: undefined };
  const looked = listed?.length ?? rows.length;
  const met = await matching(tx, batch, settings, rows);
  const taken = met.slice(0, Math.max(0, BATCH_EVENTS_MAX - batch.matched));
  if (batch.action === 'label') await labelAll(tx, batch, taken, now);
  else await removeAll(tx, events, batch, taken, now);
  const last = next ?? rows.at(-1);
  const isFull = batch.matched + taken.length >= BATCH_EVENTS_MAX;
  const isEnd = listed === null ? next === undefined : looked < PORTION_ROWS;
  const isOver = isFull || isEnd;
  await tx.query(
    `UPDATE moderation_batches SET cursor_at = $2, cursor_id = $3, looked_at = looked_at + $4,
       matched = matched + $5, status = $6, stopped_early = stopped_early OR $7, updated_at = $8,
       conditions = CASE WHEN $9 THEN conditions - 'ids' ELSE conditions END WHERE batch_id = $1`,
    [
      batchId,
      last?.createdAt ?? batch.cursorAt,
      bytes(last?.id ?? batch.cursorId),
      looked,
      taken.length,
      isOver ? 'done' : 'running',
      isFull,
      now,
      isOver && listed !== null,
    ],
  );
}

/**
 * Events that match the conditions, without those that the node signed itself, for labels without private
 * kinds, and for a rule without what a moderator has restored.
 */
async function matching(
  tx: ClientBase,
  { community, conditions, action, byRule }: OpenBatch,
  settings: Settings,
  rows: readonly Pick<ServedEvent, 'payload' | 'bound'>[],
): Promise<MatchedEvent[]> {
  const compiled = compiledOf(conditions);
  const own = (await ownKeys(tx)).get(community);
  const met: MatchedEvent[] = [];
  for (const row of rows) {
    const event = eventOf(row);
    const isPrivate = action === 'label' && isAmong(event.kind, settings['auth.privateKinds']);
    const isAllowed = !isPrivate && !own?.has(event.pubkey);
    if (isAllowed && (await inSteps(matchRules(event, settings, [compiled]))).length > 0) met.push(event);
    await rest();
  }
  if (!byRule || met.length === 0) return met;
  const { restored } = await readSettled(
    tx,
    met.map(({ id }) => ({ community, id })),
  );
  return met.filter(({ id }) => !restored.has(`${community}/${id}`));
}

async function writeActions(
  tx: ClientBase,
  { batchId, community, actor, note }: OpenBatch,
  action: 'remove' | 'label',
  events: readonly MatchedEvent[],
  now: number,
): Promise<void> {
  if (events.length === 0) return;
  const isPending = action === 'remove';
  await tx.query(
    `INSERT INTO moderation_actions (action_id, community, batch_id, action, at, done_at, outcome, actor,
       note, target_event, target_pubkey)
     SELECT gen_random_uuid(), $1, $2, $3, $4, $5, $6, $7, $8, target_event, target_pubkey
     FROM unnest($9::bytea[], $10::bytea[]) AS n (target_event, target_pubkey)`,
    [
      community,
      batchId,
      action,
      now,
      isPending ? null : now,
      isPending ? null : 'done',
      bytesOrNull(actor ?? undefined),
      note,
      hexArray(events.map(({ id }) => id)),
      hexArray(events.map(({ pubkey }) => pubkey)),
    ],
  );
}

/** A held event gets a case; removing an event resolves the open case about it. */
async function removeAll(
  tx: ClientBase,
  stored: StoredEvents,
  batch: OpenBatch,
  events: readonly MatchedEvent[],
  now: number,
): Promise<void> {
  await writeActions(tx, batch, 'remove', events, now);
  const { batchId, community, note } = batch;
  if (batch.action === 'hold')
    for (const one of events) {
      const { id: event, pubkey } = one;
      const reason = note === '' ? 'held by a moderator' : note;
      const topics = allTopics(one, one.bound ?? UNBOUND);
      const { caseId } = await openCase(tx, stored, { community, event, pubkey, reason, topics }, now);
      await moveCase(tx, caseId, 'held', now);
    }
  await tx.query(
    `WITH linked AS (
       UPDATE moderation_actions a SET case_id = c.case_id FROM moderation_cases c
       WHERE a.batch_id = $1 AND a.target_event = ANY ($3::bytea[]) AND c.community = $2
         AND c.target_event = a.target_event AND c.status IN ('open', 'held') RETURNING c.case_id)
     UPDATE moderation_cases c SET status = 'resolved', updated_at = $4, closed_at = $4 FROM linked l
     WHERE c.case_id = l.case_id AND $5`,
    [batchId, community, hexArray(events.map(({ id }) => id)), now, batch.action === 'remove'],
  );
}

async function labelAll(
  tx: ClientBase,
  batch: OpenBatch,
  events: readonly MatchedEvent[],
  now: number,
): Promise<void> {
  const { batchId, community, label } = batch;
  if (label === null) return;
  const labelled: MatchedEvent[] = [];
  for (const event of events) {
    const { id, pubkey, bound } = event;
    const target = { community, event: id, pubkey, topics: allTopics(event, bound ?? UNBOUND) };
    if ((await putLabel(tx, target, label, { batchId }, now)) !== undefined) labelled.push(event);
  }
  await writeActions(tx, batch, 'label', labelled, now);
}

interface Undone {
  readonly position: number;
}

/**
 * Undoes actions that had an effect, unless somebody has decided about the event since: removed events are
 * restored, restored ones removed, labels withdrawn, and cases get their earlier status. An event that its
 * author deleted meanwhile stays hidden; the outcome of the restoration says so.
 */
async function undoPortion(tx: ClientBase, batch: OpenBatch, now: number): Promise<boolean> {
  const { batchId, undoAfter, undoUntil } = batch;
  const between = [batchId, undoAfter ?? 0, undoUntil ?? 0];
  const portion = `SELECT * FROM moderation_actions WHERE batch_id = $1 AND position > $2 AND position <= $3
    ORDER BY position LIMIT ${PORTION_ROWS}`;
  const { rows } = await tx.query<Undone & { waits: boolean }>(
    `SELECT a.position, a.done_at IS NULL AS waits FROM (${portion}) a ORDER BY a.position`,
    between,
  );
  // Its pending actions are carried out first, so that it is known which had an effect.
  if (rows.some(({ waits }) => waits)) return false;
  await tx.query(
    `INSERT INTO moderation_actions (action_id, community, batch_id, case_id, action, at, actor, note,
       target_event, target_pubkey)
     SELECT gen_random_uuid(), a.community, a.batch_id, a.case_id,
       CASE a.action WHEN 'remove' THEN 'restore' ELSE 'remove' END, $4, $5, 'undone', a.target_event,
       a.target_pubkey
     FROM (${portion}) a
     WHERE a.outcome IN ('removed', 'restored') AND NOT EXISTS (SELECT 1 FROM moderation_actions later
       WHERE later.community = a.community AND later.target_event = a.target_event
         AND later.position > a.position AND later.action IN ('remove', 'restore'))
       AND a.action IS DISTINCT FROM (SELECT before.action FROM moderation_actions before
         WHERE before.community = a.community AND before.target_event = a.target_event
           AND before.position < a.position AND before.outcome IN ('removed', 'restored')
         ORDER BY before.position DESC LIMIT 1)`,
    [...between, now, bytesOrNull(batch.undoneBy ?? undefined)],
  );
  await tx.query(
    `UPDATE labels l SET withdrawn_at = $4 FROM (${portion}) a
     WHERE a.action = 'label' AND l.batch_id = a.batch_id
       AND l.target_event IS NOT DISTINCT FROM a.target_event
       AND l.target_pubkey = a.target_pubkey AND l.withdrawn_at IS NULL`,
    [...between, now],
  );
  if (batch.caseAction === null) await undoCasesOfEvents(tx, batch.action, portion, [...between, now]);
  else await undoCases(tx, { ...batch, portion, between }, now);
  const isOver = rows.length < PORTION_ROWS;
  await tx.query(
    `UPDATE moderation_batches SET undo_after = $2, status = $3, updated_at = $4,
       conditions = CASE WHEN $5 THEN conditions - 'ids' - 'cases' ELSE conditions END WHERE batch_id = $1`,
    [batchId, rows.at(-1)?.position ?? undoAfter, isOver ? 'undone' : 'undoing', now, isOver],
  );
  return true;
}

/**
 * Gives the cases of events that were removed, held or released the status that they had before the batch.
 */
async function undoCasesOfEvents(
  tx: ClientBase,
  action: OpenBatch['action'],
  portion: string,
  values: readonly unknown[],
): Promise<void> {
  await tx.query(
    `UPDATE moderation_cases c SET status = $5, updated_at = $4,
       closed_at = CASE WHEN $5 = 'resolved' THEN $4::bigint END
     FROM (${portion}) a WHERE c.case_id = a.case_id AND c.status = $6
       AND ($5 = 'resolved' OR NOT EXISTS (SELECT 1 FROM moderation_cases other
         WHERE other.community = c.community AND other.target_event = c.target_event
           AND other.status IN ('open', 'held')))`,
    [...values, ...CASES_UNDONE[action]],
  );
}

/** The status that undoing a batch gives its cases, and the status that they must have for it. */
const CASES_UNDONE: Record<
  OpenBatch['action'],
  readonly ['open' | 'held' | 'resolved', 'resolved' | 'held']
> = {
  remove: ['open', 'resolved'],
  hold: ['resolved', 'held'],
  label: ['open', 'held'],
  release: ['held', 'resolved'],
};

// ── Deleting a rule ────────────────────────────────────────────────────────────────────────────────────────

export interface Releasing {
  readonly ruleId: string;
  readonly name: string;
  readonly conditions: Conditions;
  /** Restore also what the rule has hidden, not only what it holds. */
  readonly hidden: boolean;
}

/** Removals by the rule $1 that nobody has decided about since, with their cases. */
export const RELEASABLE = `moderation_actions a JOIN moderation_cases c USING (case_id)
  WHERE a.rule_id = $1 AND a.action = 'remove' AND NOT EXISTS (
    SELECT 1 FROM moderation_actions other
    WHERE other.community = a.community AND other.target_event = a.target_event
      AND other.action IN ('remove', 'restore') AND other.position > a.position)`;

/**
 * Called before a rule is deleted: restores what it holds and nobody else has decided about, and withdraws
 * its labels. Writes nothing when there is nothing to release.
 */
export async function releaseOf(
  change: Change,
  { ruleId, name, conditions, hidden }: Releasing,
): Promise<string | undefined> {
  const { db, now, actor } = change;
  const note = `rule deleted: ${name}`;
  const spec = { action: 'release' as const, conditions, byRule: true, note };
  const batchId = await writeBatch(change, spec, 'done');
  const released = await db.query<{ case_id: string | null }>(
    `INSERT INTO moderation_actions (action_id, community, batch_id, case_id, action, at, actor, note,
       target_event, target_pubkey)
     SELECT gen_random_uuid(), a.community, $2, a.case_id, 'restore', $3, $4, $5, a.target_event,
       a.target_pubkey
     FROM ${RELEASABLE} AND (c.status = 'held' OR $6) ORDER BY a.position RETURNING case_id`,
    [ruleId, batchId, now, bytesOrNull(actor), note, hidden],
  );
  await db.query(
    `UPDATE moderation_cases SET status = 'resolved', updated_at = $2, closed_at = $2
     WHERE status = 'held' AND case_id IN (SELECT case_id FROM moderation_actions WHERE batch_id = $1)`,
    [batchId, now],
  );
  const labels = await db.query(
    'UPDATE labels SET withdrawn_at = $2 WHERE rule_id = $1 AND withdrawn_at IS NULL AND lapses_at > $3',
    [ruleId, now, Math.floor(now / 1_000)],
  );
  const count = released.rowCount ?? 0;
  if (count + (labels.rowCount ?? 0) === 0) {
    await db.query('DELETE FROM moderation_batches WHERE batch_id = $1', [batchId]);
    return undefined;
  }
  await db.query('UPDATE moderation_batches SET matched = $2 WHERE batch_id = $1', [batchId, count]);
  return batchId;
}
