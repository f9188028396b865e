/**
 * Writes what rules do to events, in the transaction of the consumer that judges them. Doing it again changes
 * nothing: a rule acts on an event at most once, and rules leave alone what a moderator has restored.
 */
import { randomUUID } from 'node:crypto';
import type { ClientBase } from 'pg';
import type { EventRef } from '../events/store.js';
import type { StoredEvents } from '../events/stored-events.js';
import { putLabel } from '../labels/labels.sql.js';
import { hexArray, int4Array, int8Array, textArray } from '../postgres/binary.js';
import { bytes, type Db } from '../postgres/values.js';
import { moveCase, openCase } from './cases.sql.js';
import type { Rule } from './rules.js';

export interface Judged extends EventRef {
  readonly author: string;
  readonly topics: readonly string[];
}

const keyOf = ({ community, id }: EventRef) => `${community}/${id}`;
const refValues = (refs: readonly EventRef[]) => [
  int4Array(refs.map(({ community }) => community)),
  hexArray(refs.map(({ id }) => id)),
];

/** Public keys that the node signs or has signed with, by community. */
export async function ownKeys(db: Db): Promise<Map<number, ReadonlySet<string>>> {
  const { rows } = await db.query<{ community: number; keys: string[] }>({
    name: 'own-keys',
    text: `SELECT community, array_agg(encode(pubkey, 'hex')) AS keys FROM node_keys GROUP BY community`,
  });
  return new Map(rows.map(({ community, keys }) => [community, new Set(keys)]));
}

export interface Settled {
  /** A rule or a moderator has decided about it. */
  readonly decided: ReadonlySet<string>;
  /** A moderator has restored it. */
  readonly restored: ReadonlySet<string>;
}

export async function readSettled(tx: ClientBase, refs: readonly EventRef[]): Promise<Settled> {
  const { rows } = await tx.query<EventRef & { restored: boolean }>({
    name: 'settled-events',
    text: `SELECT a.community, encode(a.target_event, 'hex') AS id, bool_or(a.action = 'restore') AS restored
      FROM unnest($1::int[], $2::bytea[]) AS asked (community, event_id)
      JOIN moderation_actions a ON a.community = asked.community AND a.target_event = asked.event_id
      WHERE a.action IN ('remove', 'restore') GROUP BY a.community, a.target_event`,
    values: refValues(refs),
  });
  return {
    decided: new Set(rows.map(keyOf)),
    restored: new Set(rows.filter(({ restored }) => restored).map(keyOf)),
  };
}

// ── Rates ──────────────────────────────────────────────────────────────────────────────────────────────────

export interface Counted extends EventRef {
  readonly rule: Pick<Rule, 'ruleId' | 'conditions'>;
  readonly author: string;
  /** When it came in, in milliseconds. */
  readonly at: number;
  readonly seq: number;
}

export const OVER_RATE_SQL = `SELECT c.rule_id || '/' || encode(c.event_id, 'hex') AS key
  FROM unnest($1::text[], $2::int[], $3::bytea[], $4::bigint[], $5::bigint[], $6::bytea[], $7::int[],
      $8::bigint[])
    AS c (rule_id, community, event_id, at, seq, pubkey, allowed, window_ms)
  WHERE (SELECT count(*) FROM (SELECT 1 FROM moderation_rates r
    WHERE r.rule_id = c.rule_id::uuid AND r.pubkey = c.pubkey
      AND r.at > c.at - c.window_ms AND r.at <= c.at AND r.seq <= c.seq
    ORDER BY r.at DESC LIMIT c.allowed + 1) latest) > c.allowed`;

/**
 * Counts each event once, and returns the keys of events whose author has sent more than the rule allows up
 * to that event. It reads at most one row more than the rule allows: the cost per event does not grow with a
 * flood.
 */
export async function countRates(tx: ClientBase, counted: readonly Counted[]): Promise<Set<string>> {
  if (counted.length === 0) return new Set();
  const values = [
    textArray(counted.map(({ rule }) => rule.ruleId)),
    ...refValues(counted),
    int8Array(counted.map(({ at }) => at)),
    int8Array(counted.map(({ seq }) => seq)),
    hexArray(counted.map(({ author }) => author)),
    int4Array(counted.map(({ rule }) => rule.conditions.rate!.count)),
    int8Array(counted.map(({ rule }) => rule.conditions.rate!.seconds * 1_000)),
  ];
  await tx.query({
    text: `INSERT INTO moderation_rates (rule_id, community, event_id, at, seq, pubkey)
      SELECT rule_id::uuid, community, event_id, at, seq, pubkey
      FROM unnest($1::text[], $2::int[], $3::bytea[], $4::bigint[], $5::bigint[], $6::bytea[])
        AS c (rule_id, community, event_id, at, seq, pubkey)
      ON CONFLICT DO NOTHING`,
    values: values.slice(0, 6),
  });
  const { rows } = await tx.query<{ key: string }>({ text: OVER_RATE_SQL, values });
  return new Set(rows.map(({ key }) => key));
}

export const rateKey = ({ ruleId }: Rule, id: string) => `${ruleId}/${id}`;

/** Deletes counts that are too old for any rule. */
export async function forgetRates(db: Db, before: number, limit: number): Promise<number> {
  const { rowCount } = await db.query(
    `DELETE FROM moderation_rates WHERE (rule_id, event_id) IN
       (SELECT rule_id, event_id FROM moderation_rates WHERE at < $1 ORDER BY at LIMIT $2)`,
    [before, limit],
  );
  return rowCount ?? 0;
}

// ── What rules do ──────────────────────────────────────────────────────────────────────────────────────────

/**
 * Writes the action of the rule. Returns its id, or undefined when this rule has acted on the event before.
 */
async function note(
  tx: ClientBase,
  rule: Rule,
  { community, id, author }: Judged,
  action: 'label' | 'remove',
  now: number,
): Promise<string | undefined> {
  const isPending = action === 'remove';
  const { rows } = await tx.query<{ action_id: string }>(
    `INSERT INTO moderation_actions (action_id, community, rule_id, action, at, done_at, outcome,
       target_event, target_pubkey, note)
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
     ON CONFLICT (rule_id, target_event) WHERE rule_id IS NOT NULL DO NOTHING RETURNING action_id`,
    [
      randomUUID(),
      community,
      rule.ruleId,
      action,
      now,
      isPending ? null : now,
      isPending ? null : 'done',
      bytes(id),
      bytes(author),
      `rule: ${rule.name}`,
    ],
  );
  return rows[0]?.action_id;
}

export async function labelByRule(tx: ClientBase, rule: Rule, judged: Judged, now: number): Promise<void> {
  if (rule.label === null || (await note(tx, rule, judged, 'label', now)) === undefined) return;
  const { community, id: event, author: pubkey, topics } = judged;
  await putLabel(tx, { community, event, pubkey, topics }, rule.label, { ruleId: rule.ruleId }, now);
}

/**
 * A held event waits for a moderator. For a hidden one a new case is resolved at once, so that moderators can
 * see and undo it; a case that was open already stays open, because hiding does not answer its reports.
 */
export async function removeByRule(
  tx: ClientBase,
  events: StoredEvents,
  rule: Rule,
  judged: Judged,
  now: number,
): Promise<void> {
  const actionId = await note(tx, rule, judged, 'remove', now);
  if (actionId === undefined) return;
  const { community, id: event, author: pubkey, topics } = judged;
  const opening = { community, event, pubkey, topics, reason: `rule: ${rule.name}`, ruleId: rule.ruleId };
  const { caseId, isNew } = await openCase(tx, events, opening, now);
  if (rule.action === 'hold') await moveCase(tx, caseId, 'held', now);
  else if (isNew) await moveCase(tx, caseId, 'resolved', now);
  await tx.query('UPDATE moderation_actions SET case_id = $2 WHERE action_id = $1', [actionId, caseId]);
}
