/**
 * Batches: what moderators do to many stored events as one, and what undoes it. A batch is a row with a cursor; each step locks it, looks at one
 * portion, writes its actions and moves the cursor in one transaction, so that a killed worker neither skips nor repeats (I14: portions,
 * events of a batch and open batches have their bounds). What changes the view is an order that goes through the lane.
 */
import { randomUUID } from 'node:crypto';
import type { ClientBase, Pool } from 'pg';
import { type Denial, denial } from '../core/errors.js';
import type { NostrEvent } from '../core/event.js';
import { isAmong } from '../core/kinds.js';
import type { LabelSpec } from '../core/labels.js';
import {
  BATCH_EVENTS_MAX,
  BATCHES_OPEN_MAX,
  type BatchAction,
  type BatchSpec,
  type BatchStatus,
  type Conditions,
} from '../core/moderation.js';
import { DAY_MS } from '../core/retention.js';
import { askRules, type CompiledRule, compileRule } from '../core/rule-match.js';
import { Trial, type TrialResult } from '../core/rule-trial.js';
import type { Settings } from '../core/settings.js';
import { allTopics, asMatched, type MatchedEvent, UNBOUND } from '../core/topic.js';
import { inTurns, Turns } from '../turns.js';
import { hexArray } from './binary.js';
import { bytes, bytesOrNull, type Change, changeConfig, type Db, isUuid } from './config-change.js';
import { putLabel } from './labels.js';
import { ownKeys, readSettled } from './moderation.js';
import { moveCase, openCase } from './moderation-cases.js';
import { NEWEST_FIRST, type Page, type PageOf, readPage } from './page.js';
import { NOT_VANISHED } from './query.js';
import { BEGIN_BRIEFLY, inTransaction } from './transaction.js';

const PORTION_ROWS = 200;
/** Events that a preview looks at, at most. */
export const PREVIEW_EVENTS_MAX = 20_000;

export interface Batch {
  readonly batchId: string;
  readonly community: number;
  readonly status: BatchStatus;
  readonly action: BatchAction | 'release';
  readonly conditions: Conditions;
  readonly label: LabelSpec | null;
  readonly byRule: boolean;
  /** Of `created_at`, in seconds. */
  readonly since: number | null;
  readonly until: number | null;
  readonly note: string;
  readonly actor: string | null;
  readonly createdAt: number;
  readonly updatedAt: number;
  readonly lookedAt: number;
  readonly matched: number;
  readonly stoppedEarly: boolean;
  /** How many of its actions became what, by `action: outcome`; `waiting` for those not carried out yet. */
  readonly outcomes: Readonly<Record<string, number>>;
}

const COLUMNS = `b.batch_id AS "batchId", b.community, b.status, b.action, b.conditions, b.label, b.by_rule AS "byRule", b.since, b.until,
  b.note, encode(b.actor, 'hex') AS actor, b.created_at AS "createdAt", b.updated_at AS "updatedAt", b.looked_at AS "lookedAt", b.matched,
  b.stopped_early AS "stoppedEarly"`;
const OUTCOMES = `coalesce((SELECT jsonb_object_agg(o.what, o.actions) FROM (
    SELECT a.action || ': ' || coalesce(a.outcome, 'waiting') AS what, count(*) AS actions FROM moderation_actions a
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

// ── Starting and undoing ──────────────────────────────────────────────────────────────────────────────────────────

interface Scope {
  readonly community: number;
  readonly actor?: string | undefined;
}

export function startBatch(pool: Pool, scope: Scope, spec: BatchSpec, now: number): Promise<Batch | Denial> {
  return changeConfig(pool, { ...scope, now }, async (change) => {
    const { rows } = await change.db.query<{ open: number }>(
      `SELECT count(*) AS open FROM moderation_batches WHERE community = $1 AND status IN ('running', 'undoing')`,
      [scope.community],
    );
    if (rows[0]!.open >= BATCHES_OPEN_MAX) return denial('BATCH_LIMIT_REACHED', { limit: BATCHES_OPEN_MAX });
    const batchId = await writeBatch(change, spec, 'running');
    await change.audit('moderation.batch', batchId, { ...spec });
    return findBatch(change.db, scope.community, batchId);
  });
}

export async function writeBatch(
  { db, community, actor, now }: Change,
  {
    action,
    conditions,
    label,
    byRule,
    since,
    until,
    note,
  }: Omit<BatchSpec, 'action'> & Pick<Batch, 'action'>,
  status: BatchStatus,
): Promise<string> {
  const batchId = randomUUID();
  await db.query(
    `INSERT INTO moderation_batches (batch_id, community, status, action, created_at, updated_at, since, until, cursor_at, by_rule,
       conditions, label, actor, note) VALUES ($1, $2, $3, $4, $5, $5, $6, $7, $8, $9, $10, $11, $12, $13)`,
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
      JSON.stringify(conditions),
      label === undefined ? null : JSON.stringify(label),
      bytesOrNull(actor),
      note,
    ],
  );
  return batchId;
}

/** What it has done so far is undone, and it does nothing more. */
export function undoBatch(
  pool: Pool,
  { community, batchId, actor }: Scope & { readonly batchId: string },
  undoDays: number,
  now: number,
): Promise<Batch | Denial> {
  return changeConfig(pool, { community, actor, now }, async ({ db, audit }) => {
    if (!isUuid(batchId)) return denial('NOT_FOUND');
    await db.query('SELECT 1 FROM moderation_batches WHERE batch_id = $1 FOR UPDATE', [batchId]);
    const found = await findBatch(db, community, batchId);
    if ('denied' in found) return found;
    const { status, createdAt } = found;
    if (status === 'undoing' || status === 'undone') return denial('STATUS_CONFLICT', { status });
    if (createdAt < now - undoDays * DAY_MS) return denial('STATUS_CONFLICT', { undo_days: undoDays });
    await db.query(
      `UPDATE moderation_batches SET status = 'undoing', updated_at = $2, undo_after = 0, undone_by = $3, undo_until =
         (SELECT coalesce(max(position), 0) FROM moderation_actions WHERE batch_id = $1) WHERE batch_id = $1`,
      [batchId, now, bytesOrNull(actor)],
    );
    await audit('moderation.undo', batchId, {});
    return findBatch(db, community, batchId);
  });
}

// ── Looking at what is stored ─────────────────────────────────────────────────────────────────────────────────────

interface Place {
  readonly cursorAt: number;
  readonly cursorId: string;
}

interface Row {
  readonly createdAt: number;
  readonly id: string;
  readonly payload: string;
  readonly bound: string[] | null;
}

interface Looking {
  readonly community: number;
  readonly conditions: Conditions;
  readonly since?: number | null | undefined;
  /** Milliseconds: what came in later is not looked at. */
  readonly cameUntil: number;
}

/** The newest first; of few authors along their index. */
async function nextRows(
  db: Db,
  { community, conditions: { authors }, since, cameUntil }: Looking,
  { cursorAt, cursorId }: Place,
): Promise<Row[]> {
  const ofAuthors = authors === undefined ? '' : 'AND e.pubkey = ANY ($7::bytea[])';
  const { rows } = await db.query<Row>({
    text: `SELECT e.created_at AS "createdAt", encode(e.id, 'hex') AS id, e.payload, e.bound FROM events e
      WHERE e.community = $1 AND e.hidden IS NULL AND e.created_at <= $2 AND (e.created_at < $2 OR e.id > $3)
        AND e.created_at >= $4 AND e.ingested_at <= $5 AND ${NOT_VANISHED} ${ofAuthors}
      ORDER BY e.created_at DESC, e.id LIMIT $6`,
    values: [
      community,
      cursorAt,
      bytes(cursorId),
      since ?? 0,
      cameUntil,
      PORTION_ROWS,
      ...(authors === undefined ? [] : [hexArray(authors)]),
    ],
  });
  return rows;
}

const eventOf = ({ payload, bound }: Row): MatchedEvent =>
  asMatched(JSON.parse(payload) as NostrEvent, bound ?? UNBOUND);

function compiledOf(conditions: Conditions): CompiledRule {
  const spec = { name: '', priority: 0, conditions, action: 'hide' as const, label: null };
  return compileRule({ ...spec, ruleId: '', version: 0, enabledAt: null });
}

export interface Preview extends TrialResult {
  readonly stoppedEarly: boolean;
}

/** In numbers, and nothing is done. */
export async function previewBatch(
  db: Db,
  { id: community, settings }: { readonly id: number; readonly settings: Settings },
  { conditions, since, until }: BatchSpec,
  now: number,
): Promise<Preview> {
  const trial = new Trial(compiledOf(conditions), settings);
  const looking = { community, conditions, since, cameUntil: now };
  let place: Place = { cursorAt: until ?? Number.MAX_SAFE_INTEGER, cursorId: '' };
  for (let left = PREVIEW_EVENTS_MAX; left > 0; left -= PORTION_ROWS) {
    const rows = await nextRows(db, looking, place);
    const turns = new Turns();
    for (const row of rows) {
      await inTurns(trial.look(eventOf(row)), turns);
      await turns.rest();
    }
    if (rows.length < PORTION_ROWS) return { ...trial.result(), stoppedEarly: false };
    const last = rows.at(-1)!;
    place = { cursorAt: last.createdAt, cursorId: last.id };
  }
  return { ...trial.result(), stoppedEarly: true };
}

// ── Steps of a worker ─────────────────────────────────────────────────────────────────────────────────────────────

interface OpenBatch extends Omit<Batch, 'outcomes'>, Place {
  readonly undoAfter: number | null;
  readonly undoUntil: number | null;
  readonly undoneBy: string | null;
}

type SettingsOf = (community: number) => Settings | undefined;

/** One portion of the batch that has waited longest; true when there may be more. */
export async function stepBatch(pool: Pool, settingsOf: SettingsOf, now: number): Promise<boolean> {
  const more = await inTransaction(pool, BEGIN_BRIEFLY, async (tx) => {
    const { rows } = await tx.query<OpenBatch>(
      `SELECT ${COLUMNS}, b.cursor_at AS "cursorAt", encode(b.cursor_id, 'hex') AS "cursorId", b.undo_after AS "undoAfter",
         b.undo_until AS "undoUntil", encode(b.undone_by, 'hex') AS "undoneBy"
       FROM moderation_batches b WHERE b.status IN ('running', 'undoing') ORDER BY b.updated_at LIMIT 1 FOR UPDATE SKIP LOCKED`,
    );
    const [batch] = rows;
    if (batch === undefined) return false;
    if (batch.status === 'undoing') return undoPortion(tx, batch, now);
    const settings = settingsOf(batch.community);
    if (settings === undefined) {
      // A community that is not known here waits, and no other waits with it.
      await tx.query('UPDATE moderation_batches SET updated_at = $2 WHERE batch_id = $1', [
        batch.batchId,
        now,
      ]);
      return false;
    }
    await takePortion(tx, batch, settings, now);
    return true;
  });
  return more === true;
}

async function takePortion(tx: ClientBase, batch: OpenBatch, settings: Settings, now: number): Promise<void> {
  const { batchId, community, conditions, since, createdAt: cameUntil } = batch;
  const rows = await nextRows(tx, { community, conditions, since, cameUntil }, batch);
  const met = await matching(tx, batch, settings, rows);
  const taken = met.slice(0, Math.max(0, BATCH_EVENTS_MAX - batch.matched));
  if (batch.action === 'label') await labelAll(tx, batch, taken, now);
  else await removeAll(tx, batch, taken, now);
  const last = rows.at(-1);
  const isFull = batch.matched + taken.length >= BATCH_EVENTS_MAX;
  await tx.query(
    `UPDATE moderation_batches SET cursor_at = $2, cursor_id = $3, looked_at = looked_at + $4, matched = matched + $5,
       status = $6, stopped_early = $7, updated_at = $8 WHERE batch_id = $1`,
    [
      batchId,
      last?.createdAt ?? batch.cursorAt,
      bytes(last?.id ?? batch.cursorId),
      rows.length,
      taken.length,
      isFull || rows.length < PORTION_ROWS ? 'done' : 'running',
      isFull,
      now,
    ],
  );
}

/** Neither what the node signs itself, nor labels on private kinds, nor for a rule what a moderator has restored. */
async function matching(
  tx: ClientBase,
  { community, conditions, action, byRule }: OpenBatch,
  settings: Settings,
  rows: readonly Row[],
): Promise<MatchedEvent[]> {
  const compiled = compiledOf(conditions);
  const own = await ownKeys(tx);
  const turns = new Turns();
  const met: MatchedEvent[] = [];
  for (const row of rows) {
    const event = eventOf(row);
    const isPrivate = action === 'label' && isAmong(event.kind, settings['auth.privateKinds']);
    const isAsked = !isPrivate && !own.has(`${community}/${event.pubkey}`);
    if (isAsked && (await inTurns(askRules(event, settings, [compiled]), turns)).length > 0) met.push(event);
    await turns.rest();
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
  const isOrder = action === 'remove';
  await tx.query(
    `INSERT INTO moderation_actions (action_id, community, batch_id, action, at, done_at, outcome, actor, note, target_event, target_pubkey)
     SELECT gen_random_uuid(), $1, $2, $3, $4, $5, $6, $7, $8, target_event, target_pubkey
     FROM unnest($9::bytea[], $10::bytea[]) AS n (target_event, target_pubkey)`,
    [
      community,
      batchId,
      action,
      now,
      isOrder ? null : now,
      isOrder ? null : 'done',
      bytesOrNull(actor ?? undefined),
      note,
      hexArray(events.map(({ id }) => id)),
      hexArray(events.map(({ pubkey }) => pubkey)),
    ],
  );
}

/** Held ones get their case; an open case about one that is removed is resolved with it. */
async function removeAll(
  tx: ClientBase,
  batch: OpenBatch,
  events: readonly MatchedEvent[],
  now: number,
): Promise<void> {
  await writeActions(tx, batch, 'remove', events, now);
  const { batchId, community, note } = batch;
  if (batch.action === 'hold')
    for (const { id: event, pubkey } of events) {
      const reason = note === '' ? 'held by a moderator' : note;
      const { caseId } = await openCase(tx, { community, event, pubkey, reason }, now);
      await moveCase(tx, caseId, 'held', now);
    }
  await tx.query(
    `WITH linked AS (
       UPDATE moderation_actions a SET case_id = c.case_id FROM moderation_cases c
       WHERE a.batch_id = $1 AND a.target_event = ANY ($3::bytea[]) AND c.community = $2 AND c.target_event = a.target_event
         AND c.status IN ('open', 'held') RETURNING c.case_id)
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
 * What had an effect and what nobody has decided about since: removed is restored, restored is removed, a label is withdrawn, and cases are
 * as they were. What its author deleted meanwhile stays away, as the outcome of its order says.
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
  // Its orders are carried out first, so that it is known which had an effect.
  if (rows.some(({ waits }) => waits)) return false;
  await tx.query(
    `INSERT INTO moderation_actions (action_id, community, batch_id, case_id, action, at, actor, note, target_event, target_pubkey)
     SELECT gen_random_uuid(), a.community, a.batch_id, a.case_id, CASE a.action WHEN 'remove' THEN 'restore' ELSE 'remove' END, $4, $5,
       'undone', a.target_event, a.target_pubkey
     FROM (${portion}) a WHERE a.outcome IN ('removed', 'restored') AND NOT EXISTS (SELECT 1 FROM moderation_actions later
       WHERE later.community = a.community AND later.target_event = a.target_event AND later.position > a.position
         AND later.action IN ('remove', 'restore'))`,
    [...between, now, bytesOrNull(batch.undoneBy ?? undefined)],
  );
  await tx.query(
    `UPDATE labels l SET withdrawn_at = $4 FROM (${portion}) a
     WHERE a.action = 'label' AND l.batch_id = a.batch_id AND l.target_event = a.target_event AND l.withdrawn_at IS NULL`,
    [...between, now],
  );
  await tx.query(
    `UPDATE moderation_cases c SET status = $5, updated_at = $4, closed_at = CASE WHEN $5 = 'resolved' THEN $4::bigint END
     FROM (${portion}) a WHERE c.case_id = a.case_id AND c.status = $6
       AND ($5 = 'resolved' OR NOT EXISTS (SELECT 1 FROM moderation_cases other WHERE other.community = c.community
         AND other.target_event = c.target_event AND other.status IN ('open', 'held')))`,
    [...between, now, ...CASES_UNDONE[batch.action]],
  );
  const isOver = rows.length < PORTION_ROWS;
  await tx.query(
    'UPDATE moderation_batches SET undo_after = $2, status = $3, updated_at = $4 WHERE batch_id = $1',
    [batchId, rows.at(-1)?.position ?? undoAfter, isOver ? 'undone' : 'undoing', now],
  );
  return true;
}

/** To which status the cases of a batch go when it is undone, and from which. */
const CASES_UNDONE: Record<Batch['action'], readonly ['open' | 'held' | 'resolved', 'resolved' | 'held']> = {
  remove: ['open', 'resolved'],
  hold: ['resolved', 'held'],
  label: ['open', 'held'],
  release: ['held', 'resolved'],
};

// ── A rule that was a mistake ─────────────────────────────────────────────────────────────────────────────────────

export interface Releasing {
  readonly ruleId: string;
  readonly name: string;
  readonly conditions: Conditions;
  /** What it has hidden too, not only what it holds. */
  readonly hidden: boolean;
}

/**
 * Before a rule is deleted: what it keeps out of view and nobody else has decided about is restored, and its labels are withdrawn. Nothing
 * is written when there is nothing to release.
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
    `INSERT INTO moderation_actions (action_id, community, batch_id, case_id, action, at, actor, note, target_event, target_pubkey)
     SELECT gen_random_uuid(), a.community, $2, a.case_id, 'restore', $3, $4, $5, a.target_event, a.target_pubkey
     FROM moderation_actions a JOIN moderation_cases c USING (case_id)
     WHERE a.rule_id = $1 AND a.action = 'remove' AND (c.status = 'held' OR $6) AND NOT EXISTS (
       SELECT 1 FROM moderation_actions other WHERE other.community = a.community AND other.target_event = a.target_event
         AND other.action IN ('remove', 'restore') AND other.position > a.position)
     ORDER BY a.position RETURNING case_id`,
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
