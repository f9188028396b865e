/**
 * Plans and their members. A plan that has expired is ignored when it is read; no job is needed. A member
 * without a plan, or with one that was removed, is on the free plan. Changes hold the row of
 * `config_version`, like changes of topics that depend on a plan.
 */
import type { Pool } from 'pg';
import { z } from 'zod';
import { type Denial, denial, isDenial } from '../api/rules-errors.js';
import { type Change, changeConfig } from '../communities/config-change.sql.js';
import { ensureMember, readMemberStatus } from '../members/members.sql.js';
import { refuseAccount } from '../members/rules.js';
import { type Order, type Page, type PageOf, readPage } from '../postgres/page.js';
import { bytes, type Db } from '../postgres/values.js';
import { changeLimits, FREE, FREE_PLAN, type LimitChanges, PLAN_ID, type PlanLimits } from './rules.js';

export interface Plan {
  readonly planId: string;
  readonly name: string;
  readonly limits: PlanLimits;
  /** Null for the built-in free plan. */
  readonly createdAt: number | null;
  readonly updatedAt: number | null;
}

const BUILT_IN: Plan = { planId: FREE_PLAN, ...FREE, createdAt: null, updatedAt: null };
const COLUMNS = `plan_id AS "planId", name, limits, created_at AS "createdAt", updated_at AS "updatedAt"`;

async function readOwnPlan(db: Db, community: number, planId: string): Promise<Plan | undefined> {
  const { rows } = await db.query<Plan>(
    `SELECT ${COLUMNS} FROM plans WHERE community = $1 AND plan_id = $2`,
    [community, planId],
  );
  return rows[0];
}

export async function readPlan(db: Db, community: number, planId: string): Promise<Plan | undefined> {
  const own = await readOwnPlan(db, community, planId);
  return own ?? (planId === FREE_PLAN ? BUILT_IN : undefined);
}

const BY_PLAN: Order<[string]> = {
  schema: z.tuple([z.union([z.literal(''), z.string().regex(PLAN_ID)])]),
  start: [''],
};

/** By id. Includes the built-in plan while nothing overrides it. */
export function listPlans(db: Db, community: number, page: PageOf): Promise<Page<Plan> | Denial> {
  return readPage(
    page,
    BY_PLAN,
    ({ planId }: Plan) => [planId],
    async ([after], limit) => {
      const { rows } = await db.query<Plan>(
        `SELECT ${COLUMNS} FROM (
           SELECT plan_id, name, limits, created_at, updated_at FROM plans WHERE community = $1
           UNION ALL SELECT $2, $3, $4::jsonb, NULL, NULL
           WHERE NOT EXISTS (SELECT FROM plans WHERE community = $1 AND plan_id = $2)) p
         WHERE plan_id > $5 ORDER BY plan_id LIMIT $6`,
        [community, FREE_PLAN, FREE.name, JSON.stringify(FREE.limits), after, limit],
      );
      return rows;
    },
  );
}

export interface PlanWrite {
  readonly community: number;
  readonly planId: string;
  readonly name?: string | undefined;
  readonly limits?: LimitChanges | undefined;
  readonly actor?: string | undefined;
}

export function createPlan(pool: Pool, write: PlanWrite, now: number): Promise<Plan | Denial> {
  return changeConfig(pool, { ...write, now }, async (change) => {
    const before = await readOwnPlan(change.db, write.community, write.planId);
    return before === undefined ? insertPlan(change, write) : denial('PLAN_EXISTS');
  });
}

/** Changing the built-in plan creates the community's own version of it. */
export function changePlan(pool: Pool, write: PlanWrite, now: number): Promise<Plan | Denial> {
  return changeConfig(pool, { ...write, now }, async (change) => {
    const before = await readPlan(change.db, write.community, write.planId);
    return before === undefined ? denial('NOT_FOUND') : updatePlan(change, before, write);
  });
}

/** Makes the plan or changes the existing one. */
export function setPlan(pool: Pool, write: PlanWrite, now: number): Promise<Plan | Denial> {
  return changeConfig(pool, { ...write, now }, async (change) => {
    const before = await readPlan(change.db, write.community, write.planId);
    return before === undefined ? insertPlan(change, write) : updatePlan(change, before, write);
  });
}

async function insertPlan(change: Change, { planId, name = planId, limits = {} }: PlanWrite): Promise<Plan> {
  const plan = { ...BUILT_IN, planId, name, limits: changeLimits({}, limits) };
  return storePlan(change, plan, 'plan.create');
}

async function updatePlan(change: Change, before: Plan, { name, limits = {} }: PlanWrite): Promise<Plan> {
  const plan = { ...before, name: name ?? before.name, limits: changeLimits(before.limits, limits) };
  return storePlan(change, plan, before.createdAt === null ? 'plan.create' : 'plan.change');
}

async function storePlan(
  { db, community, now, audit }: Change,
  { planId, name, limits }: Plan,
  action: 'plan.create' | 'plan.change',
): Promise<Plan> {
  const { rows } = await db.query<Plan>(
    `INSERT INTO plans (community, plan_id, name, limits, created_at, updated_at)
     VALUES ($1, $2, $3, $4, $5, $5)
     ON CONFLICT (community, plan_id) DO UPDATE
     SET name = excluded.name, limits = excluded.limits, updated_at = excluded.updated_at
     RETURNING ${COLUMNS}`,
    [community, planId, name, JSON.stringify(limits), now],
  );
  await audit(action, planId, { name, limits });
  return rows[0]!;
}

/** An override of the free plan can be removed at any time: then the built-in plan is used. */
export function deletePlan(
  pool: Pool,
  { community, planId, actor }: { community: number; planId: string; actor?: string | undefined },
  now: number,
): Promise<Plan | Denial> {
  return changeConfig(pool, { community, actor, now }, async (change) => {
    const before = await readOwnPlan(change.db, community, planId);
    if (before === undefined) return denial('NOT_FOUND');
    const members = planId === FREE_PLAN ? 0 : await countMembersOn(change, planId);
    if (members > 0) return denial('PLAN_IN_USE', { members });
    await change.db.query('DELETE FROM plans WHERE community = $1 AND plan_id = $2', [community, planId]);
    await change.audit('plan.delete', planId, { name: before.name, limits: before.limits });
    return before;
  });
}

async function countMembersOn({ db, community, now }: Change, planId: string): Promise<number> {
  const { rows } = await db.query<{ count: number }>(
    `SELECT count(*) AS count FROM members WHERE community = $1 AND plan = $2 AND status <> 'deleted'
       AND (plan_until IS NULL OR plan_until > $3)`,
    [community, planId, now],
  );
  return rows[0]!.count;
}

// ─── Plans of members ──────────────────────────────────────────────────────────────────────────────────────

export interface PlanHolder {
  readonly community: number;
  readonly pubkey: string;
}

/** The plan of a member at this moment. */
export interface MemberPlan {
  readonly planId: string;
  readonly name: string;
  readonly limits: PlanLimits;
  /** When it ends and the free plan follows. */
  readonly until: number | null;
}

export async function readMemberPlan(
  db: Db,
  { community, pubkey }: PlanHolder,
  now: number,
): Promise<MemberPlan> {
  const { rows } = await db.query<MemberPlan>({
    name: 'member-plan',
    text: `SELECT p.plan_id AS "planId", p.name, p.limits,
             CASE WHEN p.plan_id = m.plan THEN m.plan_until END AS until
           FROM (SELECT $1::integer AS community, $2::bytea AS pubkey) asked
           LEFT JOIN members m ON m.community = asked.community AND m.pubkey = asked.pubkey
             AND (m.plan_until IS NULL OR m.plan_until > $3)
           JOIN plans p ON p.community = asked.community AND p.plan_id IN (m.plan, $4)
           ORDER BY p.plan_id = m.plan DESC NULLS LAST LIMIT 1`,
    values: [community, bytes(pubkey), now, FREE_PLAN],
  });
  return rows[0] ?? { planId: FREE_PLAN, ...FREE, until: null };
}

export interface Assignment extends PlanHolder {
  readonly planId: string;
  /** Milliseconds. Without it the plan does not end. */
  readonly until?: number | null | undefined;
  readonly actor?: string | undefined;
}

/** Works also for a key that is not a member yet. Assigning the same plan twice changes nothing. */
export function assignPlan(pool: Pool, assignment: Assignment, now: number): Promise<MemberPlan | Denial> {
  return changeConfig(pool, { ...assignment, now }, async (change) => {
    const refused = await assign(change, assignment, {});
    return refused ?? readMemberPlan(change.db, assignment, now);
  });
}

export interface PlanEvent extends PlanHolder {
  /** The provider's id of the event. Each event is carried out once. */
  readonly eventId: string;
  readonly planId: string;
  readonly until?: number | null | undefined;
}

/** The result of a provider's call. */
export interface PlanEventResult {
  readonly eventId: string;
  readonly pubkey: string;
  readonly planId: string;
  readonly until: number | null;
}

/**
 * Assigns the plan and records the event in one transaction: a call that failed can be sent again, and one
 * that succeeded changes nothing more.
 */
export function applyPlanEvent(pool: Pool, event: PlanEvent, now: number): Promise<PlanEventResult | Denial> {
  const { community, eventId, pubkey, planId } = event;
  return changeConfig(pool, { community, now }, async (change) => {
    const before = await readPlanEvent(change, eventId);
    if (before !== undefined) return before;
    const until = endOf(event);
    const refused = await assign(change, event, { source: 'webhook', event_id: eventId });
    if (isDenial(refused)) return refused;
    await change.db.query(
      `INSERT INTO plan_events (community, event_id, pubkey, plan, plan_until, received_at)
       VALUES ($1, $2, $3, $4, $5, $6)`,
      [community, eventId, bytes(pubkey), planId, until, now],
    );
    return { eventId, pubkey, planId, until };
  });
}

async function readPlanEvent(
  { db, community }: Change,
  eventId: string,
): Promise<PlanEventResult | undefined> {
  const { rows } = await db.query<PlanEventResult>(
    `SELECT event_id AS "eventId", encode(pubkey, 'hex') AS pubkey, plan AS "planId", plan_until AS until
     FROM plan_events WHERE community = $1 AND event_id = $2`,
    [community, eventId],
  );
  return rows[0];
}

/** The free plan has no end. */
function endOf({ planId, until }: Pick<Assignment, 'planId' | 'until'>): number | null {
  return planId === FREE_PLAN ? null : (until ?? null);
}

async function assign(
  change: Change,
  assignment: Omit<Assignment, 'actor'>,
  details: Readonly<Record<string, unknown>>,
): Promise<Denial | undefined> {
  const { db, community, now } = change;
  const { pubkey, planId } = assignment;
  const until = endOf(assignment);
  if (until !== null && until <= now) {
    return denial('INVALID_REQUEST', { problems: [{ path: 'until', message: 'not in the future' }] });
  }
  if ((await readPlan(db, community, planId)) === undefined) return denial('NOT_FOUND');
  const status = await readMemberStatus(db, community, pubkey);
  if (status === 'deleted' || status === 'erasing') return refuseAccount(status);
  await ensureMember(change, pubkey);
  const { rowCount } = await db.query(
    `UPDATE members SET plan = $3, plan_until = $4, updated_at = $5 WHERE community = $1 AND pubkey = $2
       AND (plan, plan_until) IS DISTINCT FROM ($3, $4::bigint)`,
    [community, bytes(pubkey), planId, until, now],
  );
  if (rowCount === 1) await change.audit('plan.assign', pubkey, { plan: planId, until, ...details });
  return undefined;
}
