/**
 * Labels of events that a rule holds on arrival. The lane's transaction only adds them as pending actions:
 * writing a label locks rows of trust, and the lane must not wait for a consumer. The moderation consumer
 * puts each label soon after, once.
 */
import { randomUUID } from 'node:crypto';
import type { ClientBase, Pool } from 'pg';
import type { HeldEvent } from '../../events/rules/batch/judged.js';
import { factKey } from '../../events/rules/facts.js';
import type { StoredEvents } from '../../events/stored-events.js';
import { putLabel } from '../../labels/labels.sql.js';
import type { LabelSpec } from '../../labels/rules.js';
import { hexArray, int4Array, textArray } from '../../postgres/binary.js';
import { BEGIN_BRIEFLY, inTransaction } from '../../postgres/transaction.js';
import { topicsOfEvents } from '../cases.sql.js';
import { countRates } from '../judge.sql.js';
import type { Rule } from '../rules.js';

/** Labels that one call puts. */
const LABELS_MAX = 100;

export async function addPendingLabels(
  client: ClientBase,
  held: readonly HeldEvent[],
  now: number,
): Promise<void> {
  const added = held.flatMap(({ submission, labels }) => labels.map((rule) => ({ submission, rule })));
  if (added.length === 0) return;
  await client.query({
    name: 'pending-labels',
    text: `INSERT INTO moderation_actions
        (action_id, community, rule_id, action, at, target_event, target_pubkey, note)
      SELECT action_id::uuid, community, rule_id::uuid, 'label', $6::bigint, event_id, pubkey, note
      FROM unnest($1::text[], $2::int[], $3::text[], $4::bytea[], $5::bytea[], $7::text[])
        AS o (action_id, community, rule_id, event_id, pubkey, note)
      ON CONFLICT (rule_id, target_event) WHERE rule_id IS NOT NULL DO NOTHING`,
    values: [
      textArray(added.map(() => randomUUID())),
      int4Array(added.map(({ submission }) => submission.community)),
      textArray(added.map(({ rule }) => rule.ruleId)),
      hexArray(added.map(({ submission }) => submission.event.id)),
      hexArray(added.map(({ submission }) => submission.event.pubkey)),
      now,
      textArray(added.map(({ rule }) => `rule: ${rule.name}`)),
    ],
  });
}

interface PendingLabel {
  readonly actionId: string;
  readonly community: number;
  readonly at: number;
  readonly id: string;
  readonly author: string;
  /** Null where another store has the event. */
  readonly topics: readonly string[] | null;
  /** Null when the rule was deleted meanwhile. */
  readonly ruleId: string | null;
  readonly label: LabelSpec | null;
  readonly conditions: Rule['conditions'] | null;
}

const TOPICS = 'topics_of_event(a.community, a.target_event)';

/** The oldest that no other process is putting now. */
export async function putPendingLabels(pool: Pool, events: StoredEvents, now: number): Promise<void> {
  await inTransaction(pool, BEGIN_BRIEFLY, async (tx) => {
    const { rows } = await tx.query<PendingLabel>(
      `SELECT a.action_id AS "actionId", a.community, a.at, encode(a.target_event, 'hex') AS id,
         encode(a.target_pubkey, 'hex') AS author, ${events.inDatabase ? TOPICS : 'NULL'} AS topics,
         r.rule_id AS "ruleId", r.label, r.conditions
       FROM (SELECT * FROM moderation_actions WHERE done_at IS NULL AND action = 'label'
         ORDER BY position LIMIT ${LABELS_MAX} FOR UPDATE SKIP LOCKED) a
       LEFT JOIN moderation_rules r USING (rule_id) ORDER BY a.position`,
    );
    const elsewhere = events.inDatabase ? undefined : await topicsOfEvents(tx, events, rows);
    for (const pending of rows) {
      const topics = elsewhere?.get(factKey(pending.community, pending.id)) ?? pending.topics ?? [];
      await put(tx, { ...pending, topics }, now);
    }
  });
}

async function put(
  tx: ClientBase,
  pending: PendingLabel & { readonly topics: readonly string[] },
  now: number,
): Promise<void> {
  const { actionId, community, id, author, topics, ruleId, label } = pending;
  if (ruleId === null || label === null || !(await isOverRate(tx, pending))) {
    await tx.query('DELETE FROM moderation_actions WHERE action_id = $1', [actionId]);
    return;
  }
  await putLabel(tx, { community, event: id, pubkey: author, topics }, label, { ruleId }, now);
  await tx.query(`UPDATE moderation_actions SET done_at = $2, outcome = 'done' WHERE action_id = $1`, [
    actionId,
    now,
  ]);
}

/** Always true for a rule without a rate. */
async function isOverRate(
  tx: ClientBase,
  { ruleId, conditions, community, id, author, at }: PendingLabel,
): Promise<boolean> {
  if (ruleId === null || conditions?.rate === undefined) return true;
  const rule = { ruleId, conditions };
  const over = await countRates(tx, [{ rule, community, id, author, at, seq: Number.MAX_SAFE_INTEGER }]);
  return over.size > 0;
}
