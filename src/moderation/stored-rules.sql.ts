/**
 * The stored rules of moderation. Each change has an audit row. Events that are stored after a change was
 * acknowledged are judged by it, on every instance (I16). Changing the conditions, action or label of a rule
 * makes a new version, which must be tried before it is enabled.
 */
import { randomUUID } from 'node:crypto';
import type { ClientBase, Pool } from 'pg';
import { type Denial, denial } from '../api/rules-errors.js';
import { type Change, changeBetweenBatches, changeConfig } from '../communities/config-change.sql.js';
import { errorCode, SQLSTATE } from '../postgres/rules-error-code.js';
import { type Db, isUuid } from '../postgres/values.js';
import { releaseOf } from './batches.sql.js';
import { patternSteps, RULE_STEPS_MAX, RULES_MAX, type Rule, type RuleSpec } from './rules.js';

export interface KeptRule extends Rule {
  readonly enabled: boolean;
  /** The version that was tried last. */
  readonly triedVersion: number | null;
  readonly createdAt: number;
  readonly updatedAt: number;
}

const COLUMNS = `rule_id AS "ruleId", name, priority, enabled, enabled_at AS "enabledAt", conditions, action,
  label, version, tried_version AS "triedVersion", created_at AS "createdAt", updated_at AS "updatedAt"`;
const IN_ORDER = 'ORDER BY priority DESC, name COLLATE "C"';

/** All of them, the highest priority first; there are few. */
export async function listRules(db: Db, community: number): Promise<KeptRule[]> {
  const { rows } = await db.query<KeptRule>(
    `SELECT ${COLUMNS} FROM moderation_rules WHERE community = $1 ${IN_ORDER} LIMIT $2`,
    [community, RULES_MAX],
  );
  return rows;
}

export async function findRule(db: Db, community: number, ruleId: string): Promise<KeptRule | Denial> {
  if (!isUuid(ruleId)) return denial('NOT_FOUND');
  const { rows } = await db.query<KeptRule>(
    `SELECT ${COLUMNS} FROM moderation_rules WHERE community = $1 AND rule_id = $2`,
    [community, ruleId],
  );
  return rows[0] ?? denial('NOT_FOUND');
}

/** The enabled rules, by community. */
export async function readEnabledRules(db: ClientBase | Pool): Promise<Map<number, Rule[]>> {
  const { rows } = await db.query<Rule & { community: number }>({
    name: 'enabled-rules',
    text: `SELECT community, ${COLUMNS} FROM moderation_rules WHERE enabled`,
  });
  const byCommunity = new Map<number, Rule[]>();
  for (const { community, ...rule } of rows)
    byCommunity.set(community, [...(byCommunity.get(community) ?? []), rule]);
  return byCommunity;
}

export interface RuleRef {
  readonly community: number;
  readonly ruleId: string;
  readonly actor?: string | undefined;
}

/** Names of rules are unique in a community. */
async function named<T>(work: Promise<T | Denial>): Promise<T | Denial> {
  try {
    return await work;
  } catch (error) {
    if (errorCode(error) !== SQLSTATE.uniqueViolation) throw error;
    return denial('RULE_EXISTS');
  }
}

export function createRule(
  pool: Pool,
  { community, actor }: Omit<RuleRef, 'ruleId'>,
  spec: RuleSpec,
  now: number,
): Promise<KeptRule | Denial> {
  const ruleId = randomUUID();
  const { name, priority, conditions, action, label } = spec;
  return named(
    changeConfig(pool, { community, actor, now }, async (change) => {
      if ((await listRules(change.db, community)).length >= RULES_MAX)
        return denial('RULE_LIMIT_REACHED', { limit: RULES_MAX });
      await change.db.query(
        `INSERT INTO moderation_rules (rule_id, community, name, priority, conditions, action, label,
           created_at, updated_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $8)`,
        [ruleId, community, name, priority, JSON.stringify(conditions), action, jsonOrNull(label), now],
      );
      await change.audit('rule.create', ruleId, { ...spec });
      return findRule(change.db, community, ruleId);
    }),
  );
}

const jsonOrNull = (value: object | null | undefined) => (value ? JSON.stringify(value) : null);

export interface RuleChange extends Partial<RuleSpec> {
  readonly enabled?: boolean | undefined;
}

/** Returns the rule after the change, or the reason why it is invalid. */
export type Merged = (before: KeptRule) => RuleSpec | Denial;

/**
 * `merge` checks the whole rule. New conditions, action or label make a new version, which is disabled until
 * it was tried.
 */
export function changeRule(
  pool: Pool,
  ref: RuleRef,
  { enabled, ...given }: RuleChange,
  merge: Merged,
  now: number,
): Promise<KeptRule | Denial> {
  const { community, ruleId, actor } = ref;
  return named(
    changeBetweenBatches(pool, { community, actor, now }, async (change) => {
      const before = await findRule(change.db, community, ruleId);
      if ('denied' in before) return before;
      const spec = merge(before);
      if ('denied' in spec) return spec;
      const isAnother = ['conditions', 'action', 'label'].some((key) => key in given);
      const isTried = !isAnother && before.triedVersion === before.version;
      const after = enabled ?? (before.enabled && !isAnother);
      if (after && !isTried) return denial('RULE_NOT_TRIED', { rule_id: ruleId });
      if (after && !before.enabled) {
        const steps = await stepsWith(change.db, community, before);
        if (steps > RULE_STEPS_MAX) return denial('RULE_STEPS_EXCEEDED', { steps, limit: RULE_STEPS_MAX });
      }
      await writeChange(change, before, spec, { isAnother, enabled: after });
      await change.audit('rule.change', ruleId, { ...given, enabled: after });
      change.raiseVersion();
      return findRule(change.db, community, ruleId);
    }),
  );
}

/** Steps of all enabled patterns and of this rule's patterns. */
async function stepsWith(db: Db, community: number, rule: KeptRule): Promise<number> {
  const inForce = (await listRules(db, community)).filter(({ enabled }) => enabled);
  return [...inForce, rule].reduce((sum, { conditions }) => sum + patternSteps(conditions), 0);
}

async function writeChange(
  { db, now }: Change,
  before: KeptRule,
  { name, priority, conditions, action, label }: RuleSpec,
  { isAnother, enabled }: { readonly isAnother: boolean; readonly enabled: boolean },
): Promise<void> {
  const enabledAt = before.enabled && enabled ? before.enabledAt : enabled ? now : null;
  await db.query(
    `UPDATE moderation_rules SET name = $2, priority = $3, conditions = $4, action = $5, label = $6,
       version = $7, enabled = $8, enabled_at = $9, updated_at = $10 WHERE rule_id = $1`,
    [
      before.ruleId,
      name,
      priority,
      JSON.stringify(conditions),
      action,
      jsonOrNull(label),
      before.version + (isAnother ? 1 : 0),
      enabled,
      enabledAt,
      now,
    ],
  );
}

export interface DeleteRule {
  /** Leave held what the rule holds. */
  readonly keep?: boolean | undefined;
  /** Restore also what the rule has hidden. */
  readonly hidden?: boolean | undefined;
}

export interface DeletedRule extends KeptRule {
  /** The batch that releases what the rule held; undefined when there was nothing to release. */
  readonly released: string | undefined;
}

/** Releases what the rule holds, as a batch that can be undone. Its other actions stay, without its id. */
export function deleteRule(
  pool: Pool,
  { community, ruleId, actor }: RuleRef,
  now: number,
  { keep = false, hidden = false }: DeleteRule = {},
): Promise<DeletedRule | Denial> {
  return changeBetweenBatches(pool, { community, actor, now }, async (change) => {
    const before = await findRule(change.db, community, ruleId);
    if ('denied' in before) return before;
    const { name, conditions } = before;
    const released = keep ? undefined : await releaseOf(change, { ruleId, name, conditions, hidden });
    await change.db.query('DELETE FROM moderation_rules WHERE rule_id = $1', [ruleId]);
    await change.audit('rule.delete', ruleId, { name, ...(released === undefined ? {} : { released }) });
    change.raiseVersion();
    return { ...before, released };
  });
}

/** Does nothing when the rule was changed during the trial. */
export async function noteTried(pool: Pool, { ruleId, version }: KeptRule): Promise<void> {
  await pool.query('UPDATE moderation_rules SET tried_version = $2 WHERE rule_id = $1 AND version = $2', [
    ruleId,
    version,
  ]);
}
